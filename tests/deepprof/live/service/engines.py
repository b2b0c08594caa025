"""A daemon's engine without threads and doors: every step of it is taken when a test reports it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from deepprof.live.service.config.sections import Config, IngestLimits
from deepprof.live.service.daemon_rank import DaemonRank
from deepprof.live.service.engine import Engine
from deepprof.live.service.history import History
from deepprof.live.service.ingest import IngestConnection
from deepprof.live.service.journal import Journal
from deepprof.live.service.recovery import recover
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import CLOCK_SESSION, Hello

__all__ = ["FakeClock", "Steps", "hello"]

T = TypeVar("T")
SEGMENT_NBYTES = 96 << 10


@dataclass
class FakeClock:
    """A clock that is until it is moved."""

    now_ns: int = 10**18

    def unix_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns


@dataclass
class Steps:
    """An engine over a real journal and a real history, whose threads' work is done by hand."""

    folder: Path
    limits: IngestLimits = field(default_factory=IngestLimits)
    clock: FakeClock = field(default_factory=FakeClock)
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.open()

    def open(self) -> None:
        """Start as a daemon does."""
        history = History.open(self.folder, clock=self.clock.unix_ns)
        sizes = {"segment_nbytes": SEGMENT_NBYTES, "total_nbytes": 3 * SEGMENT_NBYTES}
        journal = Journal.open(self.folder / "journal", **sizes, beyond=history.farthest)
        self.engine = Engine(Config(limits=self.limits), journal, history, self.clock)
        recover(self.engine)
        self.engine.note_start()
        self.engine._loop, self.engine.ready = self.loop, True

    def crash(self) -> None:
        """Leave everything as it is, and start again."""
        self.abandon()
        self.open()

    def abandon(self) -> None:
        """End as a process that was killed: nothing is saved."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.turn()
        self.engine._loop = None
        self.engine.journal.close()
        self.engine.history.close()

    def close(self) -> None:
        self.abandon()
        self.loop.close()

    def turn(self) -> None:
        """Let the event loop do what is due."""
        for _ in range(5):  # what is awaited of something that is awaited …
            self.loop.run_until_complete(asyncio.sleep(0))

    def write(self) -> None:
        """Do the journal thread's work; the event loop has not heard of it."""
        self.engine.writer.work()

    def mine(self) -> None:
        """Do a turn of the worker's thread."""
        self.engine.worker.work()

    def settle(self) -> None:
        """Do all that there is to do."""
        while any(rank.submitted or rank.queue for rank in self.engine.roster):
            self.write()
            self.turn()
            self.mine()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns, with all threads at work meanwhile."""
        task = self.loop.create_task(work)
        for _ in range(10_000):
            self.turn()
            if task.done():
                return task.result()
            self.write()
            self.mine()
        raise AssertionError("it never ends")

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have `work` begin, and leave it where it waits."""
        task = self.loop.create_task(work)
        self.turn()
        return task

    def attach(self, greeting: Hello, owner: str = "") -> IngestConnection:
        """Open a stream."""
        connection = object()
        rank = self.run(self.engine.attach(greeting, connection, owner))
        return IngestConnection(self.engine, rank, connection)  # type: ignore[arg-type]

    def send(self, stream: IngestConnection, request: SendRequest) -> None:
        """Send a message as the client of a stream that is still the rank's."""
        self.engine.check_owner(stream.rank, stream.context)
        self.run(stream.take(request))

    def detach(self, stream: IngestConnection) -> None:
        self.engine.detach(stream.rank, stream.context)

    def find(self, job: str, number: int = 0) -> DaemonRank:
        rank = self.engine.roster.find(job, number)
        assert rank is not None
        return rank

    def fail_disk(self, why: OSError | None) -> None:
        """Have the disk refuse to sync the journal, or take it again."""

        def refuse() -> None:
            with suppress(OSError):
                self.engine.journal._take_back()
            assert why is not None
            raise why

        self.engine.journal.__dict__.pop("sync", None)
        if why is not None:
            self.engine.journal.sync = refuse  # type: ignore[method-assign]


def hello(job: str, collector: str = "one", rank: int = 0) -> Hello:
    """Return what a collector states first."""
    return Hello(job=job, rank=rank, collector=collector, clock=CLOCK_SESSION)
