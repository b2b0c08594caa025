"""TLS: who is trusted, what a certificate allows, and files that are renewed while the server runs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from deepprof.collectors.errors import UsageError
from deepprof.live.service.access.certificates import read_certificates
from deepprof.live.service.config import Config, load_config
from deepprof.live.service.config.sections import TlsSection
from tests.deepprof.live.service.access.servers import Pair, ask, bearer, certify, dialled, replace, serving, trusting

TOKEN = "correct-horse-battery"  # noqa: S105


@pytest.fixture(scope="module")
def authority() -> Pair:
    return certify("authority")


@pytest.fixture(scope="module")
def stranger() -> Pair:
    return certify("stranger")


def secure(folder: Path, server: Pair, authority: Pair | None = None, more: str = "", tokens: str = "") -> Config:
    """Return the configuration of a server with a certificate, for everybody or for `authority`'s clients."""
    cert, key = server.write(folder, "server")
    text = f'[listen]\naddresses = ["localhost:0"]\n[tls]\ncert = "{cert}"\nkey = "{key}"\n'
    if authority:
        text += f'client_ca = "{replace(folder / "clients.crt", authority.cert_pem)}"\n'
    text += more
    if tokens:
        text += f'[tokens]\nfile = "{replace(folder / "tokens", tokens.encode())}"\n'
    (folder / "serve.toml").write_text(text)
    return load_config(folder / "serve.toml", {}, {})


def answer(config: Config, authority: Pair, own: Pair | None = None, call: str = "ListJobs", token: str = "") -> str:
    async def run() -> str:
        async with serving(config) as (address,), dialled(address, trusting(authority, own)) as channel:
            return await ask(channel, call, bearer(token) if token else ())

    return asyncio.run(run())


def test_the_right_authority(authority: Pair, tmp_path: Path) -> None:
    assert answer(secure(tmp_path, certify("s", authority)), authority) == "OK"


def test_the_wrong_authority(authority: Pair, stranger: Pair, tmp_path: Path) -> None:
    assert answer(secure(tmp_path, certify("s", authority)), stranger).startswith("UNAVAILABLE")


def test_an_expired_certificate(authority: Pair, tmp_path: Path) -> None:
    assert answer(secure(tmp_path, certify("s", authority, days=-1)), authority).startswith("UNAVAILABLE")


def test_plain_text_is_not_answered(authority: Pair, tmp_path: Path) -> None:
    async def run() -> str:
        async with serving(secure(tmp_path, certify("s", authority))) as (address,), dialled(address) as channel:
            return await ask(channel)

    assert asyncio.run(run()).startswith("UNAVAILABLE")


def test_tls_and_tokens(authority: Pair, tmp_path: Path) -> None:
    config = secure(tmp_path, certify("s", authority), tokens=f"ops admin {TOKEN}\n")
    assert answer(config, authority, call="Drain", token=TOKEN) == "OK"
    assert answer(config, authority, call="Drain").startswith("UNAUTHENTICATED")
    assert answer(config, authority, token=TOKEN).startswith("PERMISSION_DENIED")


def test_clients_need_a_certificate_of_their_authority(authority: Pair, stranger: Pair, tmp_path: Path) -> None:
    config = secure(tmp_path, certify("s", authority), authority)
    assert answer(config, authority, certify("node", authority)) == "OK"
    assert answer(config, authority, None).startswith("UNAVAILABLE")
    assert answer(config, authority, certify("node", stranger)).startswith("UNAVAILABLE")
    assert answer(config, authority, certify("node", authority, days=-1)).startswith("UNAVAILABLE")


def test_what_a_certificate_allows(authority: Pair, tmp_path: Path) -> None:
    table = 'scopes = ["ingest"]\n[tls.subjects]\nops = ["admin"]\nnobody = []\n'
    config = secure(tmp_path, certify("s", authority), authority, table)
    allowed = {
        name: [call for call in ("Send", "ListJobs", "Drain") if answer(config, authority, own, call) == "OK"]
        for name in ("node", "ops", "nobody", None)
        for own in [certify(name, authority)]
    }
    assert allowed == {"node": ["Send"], "ops": ["Drain"], "nobody": [], None: ["Send"]}


def test_a_token_says_more_than_a_certificate(authority: Pair, tmp_path: Path) -> None:
    config = secure(tmp_path, certify("s", authority), authority, tokens=f"ops admin {TOKEN}\n")
    node = certify("node", authority)
    assert answer(config, authority, node, "Drain", TOKEN) == "OK"
    assert answer(config, authority, node, "ListJobs") == "OK"
    assert answer(config, authority, node, "Drain").startswith("PERMISSION_DENIED: node lacks the scope admin")
    assert answer(config, authority, node, "ListJobs", "unknown-token-0001").startswith("UNAUTHENTICATED")


@pytest.mark.parametrize(("tokens", "wanted"), [("", "OK"), (f"ops admin {TOKEN}\n", "UNAUTHENTICATED")])
def test_a_socket_has_no_certificate(tokens: str, wanted: str, authority: Pair, tmp_path: Path) -> None:
    secured = secure(tmp_path, certify("s", authority), authority, tokens=tokens)
    config = load_config(tmp_path / "serve.toml", {"listen.addresses": f"unix:{tmp_path}/run/a.sock"}, {})
    assert config.tls == secured.tls

    async def run() -> str:
        async with serving(config) as (address,), dialled(address) as channel:
            return await ask(channel, "Drain" if not tokens else "ListJobs")

    assert asyncio.run(run()).startswith(wanted)


def test_renewed_files_serve_new_connections_and_broken_ones_do_not(
    authority: Pair, stranger: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="deepprof")
    config = secure(tmp_path, certify("s", authority))

    async def asked(address: str, trusted: Pair) -> str:
        async with dialled(address, trusting(trusted)) as channel:
            return await ask(channel)

    async def run() -> None:
        async with serving(config) as (address,), dialled(address, trusting(authority)) as old:
            assert await ask(old) == "OK"
            certify("s", stranger).write(tmp_path, "server")
            assert await asked(address, stranger) == "OK"
            assert (await asked(address, authority)).startswith("UNAVAILABLE")
            assert await ask(old) == "OK"
            for broken in (b"", b"nonsense", certify("other", authority).cert_pem):
                replace(tmp_path / "server.crt", broken)
                assert await asked(address, stranger) == "OK"
            Path(config.tls.key).unlink()
            assert await asked(address, stranger) == "OK"
            certify("s", authority).write(tmp_path, "server")
            assert await asked(address, authority) == "OK"

    asyncio.run(run())
    events = [record.getMessage() for record in caplog.records if record.getMessage().startswith("certificates-")]
    assert events == ["certificates-renewed", *["certificates-kept"] * 4, "certificates-renewed"]
    assert "PRIVATE KEY" not in caplog.text


def test_whom_to_trust_is_renewed_too(authority: Pair, stranger: Pair, tmp_path: Path) -> None:
    config = secure(tmp_path, certify("s", authority), authority)

    async def run() -> None:
        async with serving(config) as (address,):
            for trusted, other in ((authority, stranger), (stranger, authority)):
                replace(tmp_path / "clients.crt", trusted.cert_pem)
                async with dialled(address, trusting(authority, certify("n", trusted))) as channel:
                    assert await ask(channel) == "OK"
                async with dialled(address, trusting(authority, certify("n", other))) as channel:
                    assert (await ask(channel)).startswith("UNAVAILABLE")

    asyncio.run(run())


def locked(pair: Pair) -> bytes:
    """Return the key with a passphrase."""
    form = serialization.PrivateFormat.PKCS8
    return pair.key.private_bytes(
        serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"passphrase")
    )


@pytest.mark.parametrize(
    "case", ["swapped", "passphrase", "empty", "missing", "open key", "writable", "client_ca", "leaf"]
)
def test_files_that_cannot_be_used(case: str, authority: Pair, tmp_path: Path) -> None:
    own = certify("s", authority)
    cert, key = own.write(tmp_path, "server")
    ca = ""
    if case == "swapped":
        cert, key = key, cert
    elif case == "passphrase":
        replace(Path(key), locked(own))
    elif case == "empty":
        replace(Path(cert), b"")
    elif case == "missing":
        Path(key).unlink()
    elif case == "open key":
        Path(key).chmod(0o604)
    elif case == "writable":
        Path(cert).chmod(0o666)
    else:
        ca = replace(tmp_path / "ca", b"\xff\n" if case == "client_ca" else own.cert_pem)
    with pytest.raises(UsageError) as caught:
        read_certificates(TlsSection(cert=cert, key=key, client_ca=ca))
    line = str(caught.value)
    assert line.isprintable()
    assert "BEGIN" not in line
    assert str(tmp_path) in line


def test_the_key_is_not_shown(authority: Pair, tmp_path: Path) -> None:
    cert, key = certify("s", authority).write(tmp_path, "server")
    assert "PRIVATE" not in repr(read_certificates(TlsSection(cert=cert, key=key)))
