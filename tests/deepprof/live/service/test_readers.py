"""Readers that do not read, over a real connection: they hold nothing that others need, and not for ever."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

import deepprof
from deepprof.live.service.query import QueryServicer
from deepprof.v1 import query_pb2, query_pb2_grpc
from tests.deepprof.live.service.inside import Inside, inside, until
from tests.deepprof.live.service.traces import gpu_only_trace

SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0))


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=400, kernels=300)


@asynccontextmanager
async def asked(daemon: Inside) -> AsyncIterator[tuple[QueryServicer, query_pb2_grpc.QueryStub]]:
    """Give the query service behind a socket, and a client of it."""
    server = grpc.aio.server()
    servicer = QueryServicer(daemon.engine, daemon.examiner)
    query_pb2_grpc.add_QueryServicer_to_server(servicer, server)
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        server.add_insecure_port(f"unix:{folder}/s")
        await server.start()
        async with grpc.aio.insecure_channel(f"unix:{folder}/s", SMALL_WINDOW) as channel:
            yield servicer, query_pb2_grpc.QueryStub(channel)
        await server.stop(0)


def test_a_reader_that_reads_nothing_is_sent_away(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepprof.live.service.query.STALLED_S", 0.2)

    async def main() -> None:
        async with inside(tmp_path) as daemon, asked(daemon) as (servicer, stub):
            await daemon.send(trace, "a", records=5000, end=False)
            call = stub.ReadWindow(query_pb2.ReadWindowRequest(job="a"))
            await until(lambda: len(servicer.readers) == 1, "it began")
            await until(lambda: len(servicer.readers) == 0, "it was sent away")
            assert daemon.engine.journal._pins == 0
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                _ = [message async for message in call]
            assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    asyncio.run(main())


def test_a_slow_reader_does_not_keep_the_journal(
    tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepprof.live.service.examiner.examiner.PIN_S", 0.1)

    async def main() -> None:
        async with inside(tmp_path) as daemon, asked(daemon) as (servicer, stub):
            await daemon.send(trace, "a", records=5000, end=False)
            call = stub.ReadWindow(query_pb2.ReadWindowRequest(job="a"))
            await until(lambda: len(servicer.readers) == 1, "it began")
            await until(lambda: daemon.engine.journal._pins == 0, "the journal may let go")
            count = 0
            async for message in call:
                count += len(message.batch.tables) > 0
            assert count == -(-trace.accounting.kept // 5000)

    asyncio.run(main())


def test_only_so_many_read_at_a_time(tmp_path: Path, trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepprof.live.service.query.READERS", 4)

    async def main() -> None:
        async with inside(tmp_path) as daemon, asked(daemon) as (servicer, stub):
            await daemon.send(trace, "a", records=5000, end=False)
            calls = [stub.ReadWindow(query_pb2.ReadWindowRequest(job="a")) for _ in range(2)]
            await until(lambda: len(servicer.readers) == 2, "both began")
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                _ = [message async for message in stub.ReadWindow(query_pb2.ReadWindowRequest(job="a"))]
            assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            calls[0].cancel()
            await until(lambda: len(servicer.readers) == 1, "one has gone")
            messages = [message async for message in stub.ReadWindow(query_pb2.ReadWindowRequest(job="a"))]
            assert messages

    asyncio.run(main())


def test_nothing_is_said_of_jobs_before_they_are_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with inside(tmp_path) as daemon, asked(daemon) as (_, stub):
            daemon.engine.ready = False
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stub.ListRanks(query_pb2.ListRanksRequest(job="a"))
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
            daemon.engine.ready = True
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stub.ListRanks(query_pb2.ListRanksRequest(job="a"))
            assert failed.value.code() is grpc.StatusCode.NOT_FOUND

    asyncio.run(main())
