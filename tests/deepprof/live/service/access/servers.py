"""A real gRPC server behind the guard, certificates for it, and the calls that try to get in."""

# ruff: noqa: N802 - gRPC names methods so
from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc import aio

from deepprof.live.service.access import AccessGuard, make_interceptors, open_ports, server_options
from deepprof.live.service.config import Config, load_config
from deepprof.live.service.refusal import Refusals
from deepprof.live.wire.addresses import parse_address
from deepprof.v1 import admin_pb2, admin_pb2_grpc, ingest_pb2, ingest_pb2_grpc, query_pb2, query_pb2_grpc
from tests.patience import PATIENCE_S

WAIT_S = PATIENCE_S  # of a call

# What grpc.aio's client states when a refusal comes while it writes: it loses the status that the server gave.
LOST_ANSWER = "INTERNAL: Internal error from Core"


class Query(query_pb2_grpc.QueryServicer):
    """One method of every kind that Query has."""

    async def ListJobs(self, request: query_pb2.ListJobsRequest, context: Any) -> query_pb2.ListJobsResponse:
        return query_pb2.ListJobsResponse(next_page_token=request.page_token)

    async def Watch(self, request: query_pb2.WatchRequest, context: Any) -> AsyncIterator[query_pb2.WatchResponse]:
        for now in range(3):
            yield query_pb2.WatchResponse(now_unix_ns=now)


class Ingest(ingest_pb2_grpc.IngestServicer):
    """Answers each message with its number; read and write in the other style that gRPC has."""

    async def Send(self, requests: Any, context: Any) -> None:
        number = 0
        async for _ in requests:
            number += 1
            await context.write(ingest_pb2.SendResponse(durable=number))


class Admin(admin_pb2_grpc.AdminServicer):
    async def Drain(self, request: admin_pb2.DrainRequest, context: Any) -> admin_pb2.DrainResponse:
        return admin_pb2.DrainResponse(records=1)


@asynccontextmanager
async def serving(config: Config) -> AsyncIterator[list[str]]:
    """Serve on the configured addresses and yield them."""
    guard = AccessGuard(config, clock=lambda: 0.0)  # no time passes that would allow more guesses
    server = aio.server(options=server_options(config), interceptors=make_interceptors(guard, Refusals()))
    query_pb2_grpc.add_QueryServicer_to_server(Query(), server)
    ingest_pb2_grpc.add_IngestServicer_to_server(Ingest(), server)
    admin_pb2_grpc.add_AdminServicer_to_server(Admin(), server)
    listening = open_ports(server, config)
    try:
        await server.start()
        yield listening.addresses
    finally:
        await server.stop(0)
        listening.close()


def configure(**flags: str) -> Config:
    """Return a configuration; `__` represents the dot in keys."""
    return load_config(None, {name.replace("__", "."): value for name, value in flags.items()}, {})


@asynccontextmanager
async def dialled(address: str, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[aio.Channel]:
    """Yield a channel that shares no connection with others."""
    target = parse_address(address).target
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    if credentials is None:
        channel = aio.insecure_channel(target, options=options)
    else:
        channel = aio.secure_channel(target, credentials, options=options)
    async with channel:
        yield channel


async def ask(channel: aio.Channel, call: str = "ListJobs", headers: Sequence[tuple[str, Any]] = ()) -> str:
    """Make a call; return `OK` or the status and its text."""
    answer = await ask_once(channel, call, headers)
    while answer == LOST_ANSWER:
        answer = await ask_once(channel, call, headers)
    return answer


async def ask_once(channel: aio.Channel, call: str, headers: Sequence[tuple[str, Any]]) -> str:
    try:
        await CALLS[call](channel, headers)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"  # type: ignore[attr-defined]
    return "OK"


async def list_jobs(channel: aio.Channel, headers: Any) -> None:
    request = query_pb2.ListJobsRequest(page_token="next")  # noqa: S106
    answer = await query_pb2_grpc.QueryStub(channel).ListJobs(request, metadata=headers, timeout=WAIT_S)
    assert answer.next_page_token == "next"  # noqa: S105


async def watch(channel: aio.Channel, headers: Any) -> None:
    call = query_pb2_grpc.QueryStub(channel).Watch(query_pb2.WatchRequest(), metadata=headers, timeout=WAIT_S)
    assert [answer.now_unix_ns async for answer in call] == [0, 1, 2]


async def send(channel: aio.Channel, headers: Any) -> None:
    messages = iter([ingest_pb2.SendRequest(), ingest_pb2.SendRequest()])
    call = ingest_pb2_grpc.IngestStub(channel).Send(messages, metadata=headers, timeout=WAIT_S)
    assert [answer.durable async for answer in call] == [1, 2]


async def drain(channel: aio.Channel, headers: Any) -> None:
    answer = await admin_pb2_grpc.AdminStub(channel).Drain(admin_pb2.DrainRequest(), metadata=headers, timeout=WAIT_S)
    assert answer.records == 1


CALLS = {"ListJobs": list_jobs, "Watch": watch, "Send": send, "Drain": drain}


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


@dataclass
class Pair:
    """A certificate and its key."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        return self.cert.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())

    def write(self, folder: Path, stem: str) -> tuple[str, str]:
        """Write both as `STEM.crt` and `STEM.key` by renaming, as renewers do, and return the paths."""
        return replace(folder / f"{stem}.crt", self.cert_pem), replace(folder / f"{stem}.key", self.key_pem)


def replace(path: Path, content: bytes) -> str:
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.chmod(0o600)
    os.replace(part, path)
    return str(path)


def certify(name: str | None, signer: Pair | None = None, days: int = 1) -> Pair:
    """Make a certificate: an authority's own without `signer`. A negative number of `days` makes it expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder(issuer_name=signer.cert.subject if signer else subject, subject_name=subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=10))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
    )
    if signer:
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return Pair(builder.sign(signer.key if signer else key, hashes.SHA256()), key)


def trusting(authority: Pair, own: Pair | None = None) -> grpc.ChannelCredentials:
    """Return a client's credentials: whom it trusts, and its own certificate."""
    return grpc.ssl_channel_credentials(authority.cert_pem, own and own.key_pem, own and own.cert_pem)
