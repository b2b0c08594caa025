"""A daemon without its doors in the test's own process: clock, disk and threads are the test's to disturb."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import deepprof
from deepprof.live.service.config import Config, load_config
from deepprof.live.service.daemon import opened_store
from deepprof.live.service.daemon_rank import DaemonRank, QueuedMessage
from deepprof.live.service.engine import Engine
from deepprof.live.service.examiner import Examiner
from deepprof.live.service.examiner.captures import Captures
from deepprof.live.service.health import Health
from deepprof.live.service.ingest import find_devices
from deepprof.live.service.recovery import RecoveryResult, recover
from deepprof.live.wire.checking import check_batch
from deepprof.live.wire.cutting import cut
from deepprof.live.wire.heads import make_end, make_hello
from deepprof.live.wire.limits import LIMITS
from deepprof.v1.records_pb2 import Batch
from tests.patience import PATIENCE_S

__all__ = ["HOUR_NS", "Inside", "ManualClock", "check_accounts", "inside", "item_of", "until"]

DEADLINE_S = PATIENCE_S
HOUR_NS = 3600 * 10**9


@dataclass
class ManualClock:
    """A clock that only a test moves."""

    unix: int = 1_800_000_000 * 10**9
    monotonic: int = 10**9

    def unix_ns(self) -> int:
        return self.unix

    def monotonic_ns(self) -> int:
        return self.monotonic

    def pass_by(self, ns: int) -> None:
        """Let time pass on both clocks."""
        self.unix, self.monotonic = self.unix + ns, self.monotonic + ns


@dataclass
class Inside:
    """The parts of a daemon, and a client of one rank that speaks to them directly."""

    config: Config
    engine: Engine
    examiner: Examiner
    clock: ManualClock
    found: RecoveryResult

    @property
    def health(self) -> Health:
        return Health(self.engine, self.examiner, self.clock)

    async def attach(self, trace: deepprof.Trace, job: str, connection: object, collector: str = "test") -> DaemonRank:
        return await self.engine.attach(make_hello(trace, job, collector=collector), connection)

    async def put(self, rank: DaemonRank, item: QueuedMessage) -> None:
        """Hand a message to the journal, once there is room for it."""
        async with self.engine.room(rank, item.nbytes):
            self.engine.submit(rank, item)

    async def submit(self, rank: DaemonRank, batch: Batch) -> None:
        """Count a batch as come, and hand it to the journal."""
        item = item_of(batch, rank)
        rank.accounts.arrive(item.count)
        await self.put(rank, item)

    async def send(
        self, trace: deepprof.Trace, job: str, *, records: int = 1000, end: bool = True, collector: str = "test"
    ) -> DaemonRank:
        """Send a whole trace as one stream, and wait until it is mined."""
        connection = object()
        rank = await self.attach(trace, job, connection, collector)
        for batch in cut(trace, records=records):
            if batch.first >= rank.next:
                await self.submit(rank, batch)
        if end:
            await self.put(rank, QueuedMessage("end", make_end(trace).SerializeToString(), rank.next, 0))
        await until(lambda: not rank.submitted and not rank.queue, "everything is mined")
        self.engine.detach(rank, connection)
        return rank


def item_of(batch: Batch, rank: DaemonRank) -> QueuedMessage:
    """Return a batch as the ingest service would hand it on."""
    records = check_batch(batch, LIMITS, rank.names, rank.names_nbytes)
    return QueuedMessage("batch", batch.SerializeToString(), records.first, records.count, records, find_devices(batch))


async def until(what: Callable[[], object], why: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until `what()` is true; fail when that does not happen in time."""
    end = asyncio.get_running_loop().time() + deadline_s
    while not what():
        assert asyncio.get_running_loop().time() < end, f"not within {deadline_s:.0f} s: {why}"
        await asyncio.sleep(0.005)


def check_accounts(engine: Engine) -> None:
    """Assert that every record of every rank has exactly one fate, and none is under way."""
    for rank in engine.roster:
        account = rank.accounts.view()
        fates = account.accepted + account.invalid + account.duplicate + sum(account.dropped.values())
        assert account.received == fates, (rank.key, account)
        assert rank.accounts.in_flight == 0, rank.key


@asynccontextmanager
async def inside(
    folder: Path, settings: Mapping[str, str] | None = None, clock: ManualClock | None = None, *, checked: bool = True
) -> AsyncIterator[Inside]:
    """Give a daemon on the store in `folder`, recovered and started; at the end it is closed as by SIGTERM."""
    config = load_config(None, {"store.path": str(folder / "store"), **(settings or {})}, {})
    time = clock or ManualClock()
    with opened_store(config, time) as store:
        engine = Engine(config, store.journal, store.history, time)
        captures = Captures.open(store.folder / "captures", config.captures.count, config.captures.nbytes)
        examiner = Examiner(engine, config, captures)
        engine.notice = examiner.notice
        found = await asyncio.to_thread(recover, engine)
        examiner.remember()
        engine.start()
        try:
            yield Inside(config, engine, examiner, time, found)
            if checked:
                with contextlib.suppress(TimeoutError):
                    await until(lambda: not any(rank.accounts.in_flight for rank in engine.roster), "nothing is open")
                check_accounts(engine)
        finally:
            await asyncio.to_thread(engine.close)
