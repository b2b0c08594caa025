"""TLS to a daemon: certificates that fit, and one line for those that do not."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deepprof.live.client.credentials import Credentials
from deepprof.live.client.daemon import Daemon
from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.client.errors import DaemonError

from .fake_daemon import FakeDaemon, listen

DAY = datetime.timedelta(days=1)


def make_pair(folder, name, host="localhost"):
    """A certificate that vouches for itself, and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        subject, subject, key.public_key(), x509.random_serial_number(), now - DAY, now + DAY
    )
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    builder = builder.add_extension(names, critical=False).add_extension(
        x509.BasicConstraints(True, None), critical=True
    )
    certificate = builder.sign(key, hashes.SHA256())
    cert, secret = folder / f"{name}.pem", folder / f"{name}.key"
    cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pkcs8 = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    secret.write_bytes(key.private_bytes(*pkcs8))
    return str(cert), str(secret)


@contextmanager
def secured(tmp_path, *, mutual=False, host="localhost") -> Iterator[tuple[str, str]]:
    """Gives the address of a daemon with TLS, and the certificate that vouches for it."""
    cert, key = make_pair(tmp_path, "server", host)
    pair = [(read(key), read(cert))]
    credentials = grpc.ssl_server_credentials(pair, read(make_pair(tmp_path, "own")[0]) if mutual else None, mutual)
    with listen(FakeDaemon(), str(tmp_path), credentials) as address:
        yield address, cert


def read(path):
    with open(path, "rb") as file:
        return file.read()


def ask(address, **files):
    with Daemon(find_endpoint(address, Credentials(**files), {})) as daemon:
        return daemon.jobs()


def test_a_certificate_that_fits(tmp_path):
    with secured(tmp_path) as (address, cert):
        assert ask(address, ca=cert) == ()


def test_a_client_certificate_is_shown(tmp_path):
    with secured(tmp_path, mutual=True) as (address, cert):
        assert ask(address, ca=cert, cert=str(tmp_path / "own.pem"), key=str(tmp_path / "own.key")) == ()
        with pytest.raises(DaemonError):
            ask(address, ca=cert)


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        ("stranger", "check --ca"),
        ("other name", "the name in the address"),
        ("no TLS here", "give --ca"),
        ("no TLS there", "speaks no TLS"),
    ],
)
def test_what_does_not_fit_is_one_line_with_what_to_do(tmp_path, problem, advice):
    stranger, _ = make_pair(tmp_path, "stranger")
    with (
        secured(tmp_path, host="else.example" if problem == "other name" else "localhost") as (address, cert),
        plain() as bare,
    ):
        files = {} if problem == "no TLS here" else {"ca": stranger if problem == "stranger" else cert}
        with pytest.raises(DaemonError, match=advice) as told:
            ask(bare if problem == "no TLS there" else address, **files)
    assert str(told.value).isprintable()


@contextmanager
def plain() -> Iterator[str]:
    """Gives the address of a server without TLS."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(0).wait()
