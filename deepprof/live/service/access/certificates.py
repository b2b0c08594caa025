"""TLS from files that may be renewed while the daemon runs: new connections use the new files, without a restart."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deepprof.collectors.errors import UsageError, escaped
from deepprof.live.service.access.watched import WatchedFiles, read_private
from deepprof.live.service.config.sections import TlsSection

if TYPE_CHECKING:
    import grpc

FILE_NBYTES = 1 << 20
WRITABLE, FOREIGN = 0o022, 0o027  # forbidden modes: others may read a certificate, only the group a key


@dataclass(frozen=True, slots=True)
class Certificates:
    """The daemon's certificate and key, and the authority of clients' certificates (empty: none needed); all PEM."""

    cert: bytes
    key: bytes = field(repr=False)
    client_ca: bytes = b""


def make_credentials(tls: TlsSection) -> grpc.ServerCredentials:
    """Return credentials that check the files for changes at every connection.

    Raises `UsageError` where the files cannot be used now; if that happens later, the former certificates stay and an
    error is logged.
    """
    import grpc

    paths = [path for path in (tls.cert, tls.key, tls.client_ca) if path]
    watched = WatchedFiles(paths, lambda: read_certificates(tls), "certificates")

    def configure() -> grpc.ServerCertificateConfiguration:
        found = watched.look()
        return grpc.ssl_server_certificate_configuration([(found.key, found.cert)], found.client_ca or None)

    return grpc.dynamic_ssl_server_credentials(configure(), configure, bool(tls.client_ca))


def read_certificates(tls: TlsSection) -> Certificates:
    """Return the contents of the files, checked to belong together. Raises `UsageError`."""
    cert, _ = read_private(tls.cert, FILE_NBYTES, WRITABLE)
    key, _ = read_private(tls.key, FILE_NBYTES, FOREIGN)
    authority = read_private(tls.client_ca, FILE_NBYTES, WRITABLE)[0] if tls.client_ca else b""
    _check_pair(tls, cert, key)
    if authority:
        _check_authority(tls.client_ca, authority)
    return Certificates(cert, key, authority)


def _check_pair(tls: TlsSection, cert: bytes, key: bytes) -> None:
    """Raise `UsageError` unless `key` belongs to `cert`.

    OpenSSL checks only files, so they are compared with both afterwards.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.cert, tls.key, password=lambda: b"")  # never asks at the terminal
    except (ssl.SSLError, OSError, ValueError) as error:
        problem = "are no certificate and its key without a passphrase, PEM"
        raise UsageError(escaped(f"{tls.cert} and {tls.key}: {problem} ({name(error)}); check them")) from error
    if (read_private(tls.cert, FILE_NBYTES, WRITABLE)[0], read_private(tls.key, FILE_NBYTES, FOREIGN)[0]) != (
        cert,
        key,
    ):
        raise UsageError(escaped(f"{tls.cert}: changes while it is read; replace files by renaming"))


def _check_authority(path: str, content: bytes) -> None:
    """Raise `UsageError` unless `content` contains certificates that can sign."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(escaped(f"{path}: holds no certificates, PEM ({name(error)}); check it")) from error
    if not context.get_ca_certs():
        raise UsageError(escaped(f"{path}: holds no certificate of an authority; check it"))


def name(error: Exception) -> str:
    """Return OpenSSL's name for an error."""
    return getattr(error, "reason", None) or type(error).__name__
