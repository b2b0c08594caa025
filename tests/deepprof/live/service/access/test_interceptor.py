"""Calls at the door: tokens and scopes, and messages too large to come in, against a real server."""

from __future__ import annotations

import asyncio
import logging
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from deepprof.live.service.access import AccessGuard, make_interceptors, open_ports, server_options
from deepprof.live.service.access.guard import LONG
from deepprof.live.service.access.interceptor import SCOPES, AccessInterceptor
from deepprof.live.service.config import Config
from deepprof.live.service.refusal import Refusals
from deepprof.v1 import admin_pb2, ingest_pb2, query_pb2
from tests.deepprof.live.service.access.servers import WAIT_S, ask, bearer, configure, dialled, serving

INGEST, READ, ADMIN, ALL = "ingest-token-00001", "read-token-0000001", "admin-token-000001", "every-token-000001"
LINES = f"node ingest {INGEST}\ndash read {READ}\nops admin {ADMIN}\nall ingest,read,admin {ALL}\n"
NEEDED = {"ListJobs": READ, "Watch": READ, "Send": INGEST, "Drain": ADMIN}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Return the configuration of a daemon with tokens."""
    path = tmp_path / "tokens"
    path.write_text(LINES)
    path.chmod(0o600)
    return configure(listen__addresses="127.0.0.1:0", tokens__file=str(path))


def answers(config: Config, calls: Sequence[tuple[str, Sequence[tuple[str, Any]]]]) -> list[str]:
    """Return the answers to calls on one connection."""

    async def run() -> list[str]:
        async with serving(config) as (address, *_), dialled(address) as channel:
            return [await ask(channel, call, headers) for call, headers in calls]

    return asyncio.run(run())


@pytest.mark.parametrize("call", NEEDED)
@pytest.mark.parametrize("token", [INGEST, READ, ADMIN, ALL])
def test_every_method_needs_its_scope(call: str, token: str, config: Config) -> None:
    (answer,) = answers(config, [(call, bearer(token))])
    wanted = "OK" if token in {ALL, NEEDED[call]} else "PERMISSION_DENIED: "
    assert answer.startswith(wanted)
    assert token not in answer


@pytest.mark.parametrize("call", NEEDED)
@pytest.mark.parametrize(
    "headers",
    [
        [],
        bearer(""),
        bearer("unknown-token-0001"),
        bearer(ALL[:-1]),
        bearer(ALL + "x"),
        bearer("x" * 2000),
        bearer(ALL) + bearer(ALL),
        bearer(INGEST) + bearer(ALL),
        [("authorization", ALL)],
        [("authorization", f"Basic {ALL}")],
        [("authorization-bin", f"Bearer {ALL}".encode())],
        [("x-authorization", f"Bearer {ALL}")],
    ],
    ids=str,
)
def test_who_is_not_known_is_turned_away(call: str, headers: Any, config: Config) -> None:
    (answer,) = answers(config, [(call, headers)])
    assert answer.startswith("UNAUTHENTICATED: ")
    assert ALL not in answer


def test_the_scheme_is_read_in_any_case(config: Config) -> None:
    assert answers(config, [("ListJobs", [("authorization", f"bEARER  {ALL}")])]) == ["OK"]


def test_a_token_is_needed_on_the_socket_too(config: Config, tmp_path: Path) -> None:
    own = configure(listen__addresses=f"unix:{tmp_path}/run/a.sock", tokens__file=config.tokens.file)
    assert answers(own, [("Drain", []), ("Drain", bearer(ADMIN))]) == [
        "UNAUTHENTICATED: a token is needed, as authorization: Bearer TOKEN",
        "OK",
    ]


def test_without_a_token_file_a_port_gives_all_but_orders() -> None:
    open_endpoint = configure(listen__addresses="127.0.0.1:0")
    answer = answers(open_endpoint, [("ListJobs", []), ("Send", []), ("Watch", bearer("any-token")), ("Drain", [])])
    assert answer[:3] == ["OK"] * 3
    assert answer[3] == "PERMISSION_DENIED: anyone lacks the scope admin; use the daemon's Unix socket or a token"


def test_a_changed_file_counts_at_once_and_on_open_connections(config: Config) -> None:
    async def run() -> None:
        async with serving(config) as (address, *_), dialled(address) as channel:
            assert await ask(channel, "ListJobs", bearer(READ)) == "OK"
            Path(config.tokens.file).write_text(LINES.replace(READ, "another-token-00001"))
            assert (await ask(channel, "ListJobs", bearer(READ))).startswith("UNAUTHENTICATED")
            assert await ask(channel, "ListJobs", bearer("another-token-00001")) == "OK"
            Path(config.tokens.file).chmod(0o644)
            assert await ask(channel, "ListJobs", bearer("another-token-00001")) == "OK"

    asyncio.run(run())


def test_guessing_ends_and_the_honest_go_on(config: Config) -> None:
    guesses: list[Any] = [("ListJobs", bearer(f"guess-number-{number:05}")) for number in range(15)]
    got = answers(config, [("ListJobs", bearer(READ)), *guesses, ("ListJobs", bearer(READ)), ("ListJobs", bearer(ALL))])
    assert [answer for answer in got if answer == "OK"] == ["OK", "OK"]
    assert got[1] == "UNAUTHENTICATED: the token is not known"
    assert got[12:16] == ["UNAUTHENTICATED: too many unknown tokens from this address; wait a minute"] * 4
    assert got[-2] == "OK"
    assert got[-1] == got[12]  # a good one that was not seen there before waits with the guesser


def test_a_token_that_nobody_can_guess_waits_for_no_guesser(tmp_path: Path) -> None:
    """After a start no token was seen before, and who guesses at the same address must keep none of them out."""
    path, long = tmp_path / "tokens", "f" * LONG
    path.write_text(f"node read {long}\nshort read {READ}\n")
    path.chmod(0o600)
    config = configure(listen__addresses="127.0.0.1:0", tokens__file=str(path))
    guesses: list[Any] = [("ListJobs", bearer(f"guess-number-{number:05}")) for number in range(15)]
    got = answers(config, [*guesses, ("ListJobs", bearer(long)), ("ListJobs", bearer(READ))])
    assert got[-2:] == ["OK", "UNAUTHENTICATED: too many unknown tokens from this address; wait a minute"]


def test_a_token_that_was_removed_and_is_still_shown_keeps_nobody_out(config: Config) -> None:
    stale: list[Any] = [("ListJobs", bearer("0" * LONG))] * 15
    got = answers(config, [*stale, ("ListJobs", bearer(READ))])
    assert got == ["UNAUTHENTICATED: the token is not known"] * 15 + ["OK"]


def test_refusals_are_logged_without_tokens(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    answers(config, [("ListJobs", bearer("guess-number-00001")), ("Drain", bearer(READ))])
    refused = [vars(record) for record in caplog.records if record.getMessage() == "call-refused"]
    assert [record["problem"] for record in refused] == ["the token is not known", "dash lacks the scope admin"]
    assert refused[0]["method"] == "/deepprof.v1.Query/ListJobs"
    assert refused[0]["peer"].startswith("ipv4:127.0.0.1:")
    assert "guess-number" not in str(refused)
    assert READ not in str(refused)


@pytest.mark.parametrize("method", ["/deepprof.v1.Query/Nothing", "/deepprof.v1.Other/ListJobs", "/x", "//", "/a/b/c"])
def test_unknown_methods_are_unimplemented(method: str, config: Config) -> None:
    async def run() -> str:
        async with serving(config) as (address, *_), dialled(address) as channel:
            try:
                await channel.unary_unary(method)(b"", timeout=WAIT_S)
            except grpc.RpcError as error:
                return str(error.code().name)  # type: ignore[attr-defined]
            return "OK"

    assert asyncio.run(run()) == "UNIMPLEMENTED"


def test_a_service_that_nobody_listed_is_not_there() -> None:
    async def run() -> Any:
        supervisor = AccessInterceptor(AccessGuard(Config()), Refusals())

        async def found(_: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda *_: None)

        call = type(
            "Details", (grpc.HandlerCallDetails,), {"method": "/deepprof.v1.New/Do", "invocation_metadata": ()}
        )()
        return await supervisor.intercept_service(found, call)

    assert asyncio.run(run()) is None


def test_every_service_of_ours_is_listed() -> None:
    modules = (ingest_pb2, query_pb2, admin_pb2)
    ours = {s.full_name for module in modules for s in module.DESCRIPTOR.services_by_name.values()}
    assert ours <= {service for service, scope in SCOPES.items() if scope}


def test_health_needs_no_token(config: Config) -> None:
    async def run() -> int:
        server = aio.server(
            options=server_options(config), interceptors=make_interceptors(AccessGuard(config), Refusals())
        )
        health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
        listening = open_ports(server, config)
        await server.start()
        try:
            async with dialled(listening.addresses[0]) as channel:
                stub = health_pb2_grpc.HealthStub(channel)
                return int((await stub.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)).status)
        finally:
            await server.stop(0)

    assert asyncio.run(run()) == health_pb2.HealthCheckResponse.SERVING


def test_a_call_without_a_request_ends() -> None:
    async def run() -> str:
        async with serving(configure(listen__addresses="127.0.0.1:0")) as (address,), dialled(address) as channel:
            call = channel.stream_unary("/deepprof.v1.Query/ListJobs")(iter([]), timeout=WAIT_S)
            try:
                await call
            except grpc.RpcError as error:
                return str(error.code().name)  # type: ignore[attr-defined]
            return "OK"

    assert asyncio.run(run()) == "INVALID_ARGUMENT"


# A client of its own process, so that only the server's memory is measured here.
SEND = """
import grpc, sys
target, size, compressed, wait_s = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True", float(sys.argv[4])
options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
call = grpc.insecure_channel(target, options=options).unary_unary("/deepprof.v1.Query/ListJobs")
page_token = lambda n: b"\\x12" + bytes((n >> s & 127) | (128 if s < 28 else 0) for s in range(0, 35, 7)) + b"0" * n
try:
    call(page_token(size - 6), compression=grpc.Compression.Gzip if compressed else None, timeout=wait_s)
    print("OK")
except grpc.RpcError as error:
    print(error.code().name, error.details())
"""


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize(
    ("size", "compressed", "wanted"),
    [
        (15 << 20, False, "OK"),
        ((16 << 20) + 1, False, "RESOURCE_EXHAUSTED"),
        (256 << 20, False, "RESOURCE_EXHAUSTED"),
        (256 << 20, True, "UNIMPLEMENTED Compression algorithm 'gzip' is disabled."),
        pytest.param(1 << 20, True, "UNIMPLEMENTED", marks=pytest.mark.slow),
    ],
)
def test_messages_too_large_or_compressed(size: int, compressed: bool, wanted: str) -> None:
    async def run() -> str:
        async with serving(configure(listen__addresses="127.0.0.1:0")) as (address,):
            words = [sys.executable, "-c", SEND, address, str(size), str(compressed), str(WAIT_S)]
            process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            out, _ = await process.communicate()
            return out.decode()

    before = peak_mib()
    answer = asyncio.run(run())
    assert answer.startswith(wanted)
    assert peak_mib() - before < 100


# A client that may do nothing and sends all the same, on many streams at a time.
FLOOD = """
import grpc, sys
send = grpc.insecure_channel(sys.argv[1]).stream_stream("/deepprof.v1.Ingest/Send")
calls = [send((bytes(4 << 20) for _ in range(20)), timeout=float(sys.argv[2])) for _ in range(100)]
for call in calls:
    try:
        list(call)
    except grpc.RpcError as error:
        print(error.code().name)
"""


def test_what_strangers_send_is_not_held(config: Config) -> None:
    async def run() -> list[str]:
        async with serving(config) as (address,):
            process = await asyncio.create_subprocess_exec(
                *[sys.executable, "-c", FLOOD, address, str(WAIT_S)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            out, _ = await process.communicate()
            return out.decode().split()

    before = peak_mib()
    assert asyncio.run(run()) == ["UNAUTHENTICATED"] * 100
    assert peak_mib() - before < 32


def test_connections_are_bounded() -> None:
    async def run() -> list[str]:
        config = configure(listen__addresses="127.0.0.1:0", listen__connections="2")
        async with serving(config) as (address,), dialled(address) as first, dialled(address) as second:
            answers = [await ask(first), await ask(second)]
            async with dialled(address) as third:
                answers.append(await ask(third))
            return [*answers, await ask(first)]

    got = asyncio.run(run())
    assert got[:2] == ["OK", "OK"]
    assert got[2].startswith("UNAVAILABLE")
    assert got[3] == "OK"


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    """Hear warnings of the door."""
    caplog.set_level(logging.INFO, logger="deepprof")
