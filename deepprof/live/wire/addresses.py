"""Where a daemon listens: `unix:PATH` or `HOST:PORT`, written in the same way for the daemon and for its clients."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote

from deepprof.collectors.errors import UsageError, escaped

UNIX = "unix:"
PATH_NBYTES = 107  # longest path that the kernel can store in a socket's address
HOST_CHARS, PORTS = 253, 1 << 16
HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?", re.ASCII)
SHOWN = 120  # characters of a wrong address that a message repeats
FORMS = "give unix:PATH or HOST:PORT, such as 127.0.0.1:7600 or [::1]:7600"
SOCKET = "deepprof/deepprof.sock"
SYSTEM = "/run"


@dataclass(frozen=True, slots=True)
class DaemonAddress:
    """Where a daemon listens: the absolute `path` of a unix socket, else `host` (IPv6 without brackets) and `port`.

    Port 0 leaves the choice to the system; that makes sense only for a process that listens.
    """

    path: str | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"{UNIX}{self.path}" if self.path is not None else f"{self.bracketed}:{self.port}"

    @property
    def target(self) -> str:
        """The address as gRPC expects it: a URL in which special characters of a path are escaped."""
        return str(self) if self.path is None else f"{UNIX}{quote(os.fsencode(self.path))}"

    @property
    def bracketed(self) -> str:
        """The host as it is written in a URL: IPv6 in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_unix(self) -> bool:
        """Whether it is a unix socket."""
        return self.path is not None

    @property
    def is_local(self) -> bool:
        """Whether data sent to this address stays on the machine. A name other than `localhost` is not looked up."""
        if self.is_unix or self.host.lower() == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> DaemonAddress:
    """Return the address that `text` names; raises `UsageError` for anything else. No name is looked up."""
    return _parse_path(text) if text.startswith(UNIX) else _parse_host(text)


def _parse_path(text: str) -> DaemonAddress:
    """Return `unix:PATH` as an address; a relative path counts from the current directory."""
    path = text.removeprefix(UNIX)
    if path.startswith("//"):  # gRPC's other way to write an absolute path
        path = path[2:]
    if not path or path.endswith("/") or not path.isprintable():
        raise _wrong(text, "names no socket file")
    absolute = os.path.abspath(path)
    if len(os.fsencode(absolute)) > PATH_NBYTES:
        raise _wrong(text, f"is longer than the {PATH_NBYTES} bytes of a socket's address", "choose a shorter path")
    return DaemonAddress(path=absolute)


def _parse_host(text: str) -> DaemonAddress:
    """Return `HOST:PORT` as an address."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < PORTS):
        raise _wrong(text, "is no address of a daemon")
    if host.startswith("[") and host.endswith("]"):
        return DaemonAddress(host=_parse_ipv6(text, host[1:-1]), port=int(port))
    if len(host) > HOST_CHARS or not HOST.fullmatch(host):
        raise _wrong(text, "has no host name or IP address in front of its port")
    return DaemonAddress(host=host, port=int(port))


def _parse_ipv6(text: str, inner: str) -> str:
    """Return `inner`, the text between the brackets, which must be an IPv6 address."""
    try:
        address = ip_address(inner)
    except ValueError:
        raise _wrong(text, "has no IPv6 address in its brackets") from None
    if address.version != 6 or "%" in inner:  # an address to connect to has no zone
        raise _wrong(text, "has no IPv6 address in its brackets")
    return inner


def _wrong(text: str, problem: str, advice: str = FORMS) -> UsageError:
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return UsageError(f"address {escaped(shown)!r} {problem}; {advice}")


def default_address(environ: Mapping[str, str] | None = None, system: str | Path = SYSTEM) -> DaemonAddress:
    """Return where a daemon without a configured address listens: a socket of the user's session, else of the system.

    Without XDG_RUNTIME_DIR it is the system's socket if that exists (in `/run/deepprof`), else one below the home
    directory.
    """
    variables = os.environ if environ is None else environ
    runtime = variables.get("XDG_RUNTIME_DIR")
    if runtime:
        return parse_address(f"{UNIX}{Path(runtime) / SOCKET}")
    if (Path(system) / SOCKET).exists():
        return parse_address(f"{UNIX}{Path(system) / SOCKET}")
    home = variables.get("HOME") or str(Path.home())
    return parse_address(f"{UNIX}{Path(home) / '.local/state' / SOCKET}")
