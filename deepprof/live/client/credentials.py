"""A client's credentials: a token from a file, and certificates. The token is never sent where others can read it."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

from deepprof.collectors.errors import UsageError
from deepprof.live.wire.addresses import DaemonAddress

VARIABLES = {
    "token_file": "DEEPPROF_TOKEN_FILE",
    "ca": "DEEPPROF_CA",
    "cert": "DEEPPROF_CERT",
    "key": "DEEPPROF_KEY",
}
TOKEN_CHARS = 4096
CERTIFICATE_NBYTES = 1 << 20
OTHERS = stat.S_IRGRP | stat.S_IROTH


@dataclass(frozen=True, slots=True)
class Credentials:
    """Names of files: a token; the certificates that authenticate the daemon; a client's own certificate and key.

    The files are read for every connection, so that files renewed on disk are used.
    """

    token_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @property
    def is_tls(self) -> bool:
        """Whether these credentials require TLS."""
        return self.ca is not None or self.cert is not None


def choose_credentials(given: Credentials, environ: Mapping[str, str] | None = None) -> Credentials:
    """Return `given`, completed from the environment. Raises `UsageError` for a certificate or a key alone."""
    variables = os.environ if environ is None else environ
    absent = {name: variables.get(key) or None for name, key in VARIABLES.items() if getattr(given, name) is None}
    if given.cert is not None or given.key is not None:  # both come from the arguments or both from the environment
        absent = {name: value for name, value in absent.items() if name not in {"cert", "key"}}
    chosen = replace(given, **absent)
    if (chosen.cert is None) != (chosen.key is None):
        raise UsageError("a client certificate needs its key, and a key its certificate; give --cert and --key")
    return chosen


def check_secrecy(credentials: Credentials, address: DaemonAddress) -> None:
    """Raise `UsageError` where the token would be sent over the network unencrypted."""
    if credentials.token_file is not None and not address.is_local and not credentials.is_tls:
        raise UsageError(f"the token would go to {address} unencrypted; give --ca FILE for TLS, or use its unix socket")


def read_token(path: str) -> str:
    """Return the token, the only line of a file; warns where other users can read the file. Raises `UsageError`."""
    content, mode = _read_small(path, "a token", TOKEN_CHARS)
    token = content.decode("ascii", "replace").strip()
    if not token or not token.isprintable() or not token.isascii() or " " in token:
        raise UsageError(f"{path}: holds no token; write one line of ASCII without blanks into it")
    if mode & OTHERS:
        warnings.warn(f"{path}: others can read this token; chmod 600 {path}", stacklevel=2)
    return token


def read_certificate(path: str | None) -> bytes | None:
    """Return certificates or a key in PEM, None for no path. Raises `UsageError`."""
    if path is None:
        return None
    content, _ = _read_small(path, "a certificate", CERTIFICATE_NBYTES)
    if b"-----BEGIN " not in content:
        raise UsageError(f"{path}: holds no certificate or key in PEM; give the file that begins with -----BEGIN")
    return content


def _read_small(path: str, what: str, most: int) -> tuple[bytes, int]:
    """Return a file's content and mode; raises `UsageError` for no regular file or more than `most` bytes."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(most + 1) if stat.S_ISREG(mode) else b""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path}: cannot be read as {what}: {reason}; check the path") from error
    if not stat.S_ISREG(mode) or len(content) > most:
        raise UsageError(f"{path}: is no file with {what}; check the path")
    return content, mode


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting, so that a pipe without a writer does not block."""
    return os.open(path, flags | os.O_NONBLOCK)
