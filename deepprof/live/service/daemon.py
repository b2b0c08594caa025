"""The daemon: opens its store and its endpoints, runs until it is instructed to stop, and then saves everything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from deepprof.live.process.file_limit import raise_file_limit
from deepprof.live.process.stopping import stop_on_signals, wake
from deepprof.live.service.access import (
    AccessGuard,
    ListeningServer,
    make_interceptors,
    offers_reflection,
    open_ports,
    server_options,
)
from deepprof.live.service.admin import AdminServicer
from deepprof.live.service.clock import DaemonClock, DaemonSystemClock
from deepprof.live.service.config import Config, find_store
from deepprof.live.service.engine import Engine
from deepprof.live.service.examiner import Examiner
from deepprof.live.service.examiner.captures import Captures
from deepprof.live.service.folder import lock_store, prepare_folder
from deepprof.live.service.health import Health, exporting
from deepprof.live.service.history import History
from deepprof.live.service.housekeeping import keep_house
from deepprof.live.service.ingest import IngestServicer
from deepprof.live.service.journal import Journal
from deepprof.live.service.kept_contexts import read_in_thread
from deepprof.live.service.query import QueryServicer
from deepprof.live.service.recovery import recover
from deepprof.v1 import admin_pb2, admin_pb2_grpc, ingest_pb2, query_pb2, query_pb2_grpc


@dataclass(frozen=True, slots=True)
class _OpenStore:
    """The parts of a store."""

    folder: Path
    journal: Journal
    history: History


log = logging.getLogger(__name__)

GRACE_S = 5.0  # for calls that are under way when the daemon is instructed to stop
SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in ((ingest_pb2, "Ingest"), (query_pb2, "Query"), (admin_pb2, "Admin"))
)


@dataclass(slots=True)
class _DaemonServer:
    """The gRPC server, its addresses and its health."""

    server: grpc.aio.Server
    listening: ListeningServer
    health: health.aio.HealthServicer


async def serve(config: Config) -> None:
    """Run a daemon until SIGTERM, SIGINT or SIGHUP.

    Raises `UsageError`, `StoreError` and `OSError` where it cannot run, and `ProcessFailedError` where a bug stops it:
    acknowledged records are then kept, and those not yet mined are mined after the next start.
    """
    clock = DaemonSystemClock()
    raise_file_limit()
    async with AsyncExitStack() as stack:
        stopping = stack.enter_context(stop_on_signals())
        store = stack.enter_context(opened_store(config, clock))
        engine = Engine(config, store.journal, store.history, clock)
        captures = Captures.open(store.folder / "captures", config.captures.count, config.captures.nbytes)
        examiner = Examiner(engine, config, captures)
        engine.notice = examiner.notice
        state = Health(engine, examiner, clock)
        contexts = read_in_thread(engine, asyncio.get_running_loop())
        metrics = stack.enter_context(exporting(config, state, contexts))
        doors = await stack.enter_async_context(_opened(config, engine, examiner))
        engine.vitals.failed = partial(wake, asyncio.get_running_loop(), stopping)
        if engine.vitals.problem:
            stopping.set()
        heeding = asyncio.create_task(_heed(stopping, engine))
        stack.callback(heeding.cancel)
        await begin(engine, examiner, doors, metrics)
        await _work(engine, examiner, heeding)
    engine.vitals.check("the daemon")
    log.info("stopped")


async def _work(engine: Engine, examiner: Examiner, heeding: asyncio.Task[None]) -> None:
    """Run the tasks next to the calls until the daemon is to stop. Raises the error that stops one of them."""
    watch = partial(engine.vitals.watch, "the daemon's house")
    tasks = [asyncio.create_task(watch(each)) for each in (examiner.run(), keep_house(engine))]
    await asyncio.wait((heeding, *tasks), return_when=asyncio.FIRST_COMPLETED)
    log.info("stopping")
    engine.stopping = True
    engine.stop_taking()
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def _heed(stopping: asyncio.Event, engine: Engine) -> None:
    """Notify the engine as soon as the daemon is to stop, whatever the daemon is doing."""
    await stopping.wait()
    engine.stopping = True
    engine.stop_taking()


async def begin(engine: Engine, examiner: Examiner, doors: _DaemonServer, metrics: str) -> None:
    """Recover the ranks from before the start, then take records."""
    log.info("listening", extra={"addresses": " ".join(doors.listening.addresses), "metrics": metrics})
    found = await asyncio.to_thread(recover, engine)
    examiner.remember()
    engine.start()
    if engine.stopping:
        return
    for service in ("", *SERVICES):
        await doors.health.set(service, health_pb2.HealthCheckResponse.SERVING)
    extra = {"ranks": found.ranks, "messages": found.messages, "records": found.records, "damaged": found.damaged}
    log.info("ready", extra=extra)


@asynccontextmanager
async def _opened(config: Config, engine: Engine, examiner: Examiner) -> AsyncIterator[_DaemonServer]:
    """Give the listening server; at the end calls get `GRACE_S` to finish, and then the received records are saved."""
    guard = AccessGuard(config)
    engine.senders.share_of = guard.share_of
    doorkeepers = make_interceptors(guard, engine.refusals)
    server = grpc.aio.server(interceptors=doorkeepers, options=server_options(config))
    IngestServicer(engine).add_to(server)
    query_pb2_grpc.add_QueryServicer_to_server(QueryServicer(engine, examiner), server)
    admin_pb2_grpc.add_AdminServicer_to_server(AdminServicer(engine, examiner), server)
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if offers_reflection(config):
        from grpc_reflection.v1alpha import reflection

        reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    for service in ("", *SERVICES):
        await servicer.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
    listening = open_ports(server, config)
    try:
        await server.start()
        yield _DaemonServer(server, listening, servicer)
    finally:
        await servicer.enter_graceful_shutdown()
        await server.stop(GRACE_S)
        await asyncio.to_thread(engine.close)
        listening.close()


@contextmanager
def opened_store(config: Config, clock: DaemonClock) -> Iterator[_OpenStore]:
    """Give the store that the configuration names, created if it is missing. Raises `StoreError` and `OSError`."""
    folder = find_store(config)
    folder.parent.mkdir(parents=True, exist_ok=True)
    prepare_folder(folder)
    with lock_store(folder):
        history = History.open(folder, clock=clock.unix_ns)
        try:
            journal = _open_journal(folder, config, history)
            try:
                yield _OpenStore(folder, journal, history)
            finally:
                journal.close()
        finally:
            history.close()


def _open_journal(folder: Path, config: Config, history: History) -> Journal:
    """Return the journal, which never assigns a position that the history has noted already."""
    sizes = config.journal
    journal = Journal.open(
        folder / "journal",
        segment_nbytes=sizes.segment_nbytes,
        total_nbytes=sizes.total_nbytes,
        beyond=history.farthest,
    )
    if journal.repaired or journal.damaged:
        log.warning("journal-repaired", extra={"cut_nbytes": journal.repaired, "damaged": journal.damaged})
    return journal
