"""An engine under whatever may happen to it, in any order, held against sessions that nothing ever happened to."""

from __future__ import annotations

import errno
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from deepprof.live.service.folder import StoreError
from deepprof.live.service.ingest import IngestConnection
from deepprof.live.service.journal import JournalPlace
from deepprof.live.service.refusal import RefusedError
from deepprof.live.service.session import RankSession
from deepprof.live.service.views import HISTORY
from deepprof.live.wire.checking import check_batch, count_records
from deepprof.live.wire.cutting import cut
from deepprof.live.wire.limits import WireLimits
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, End, Gap
from tests.chance import examples
from tests.deepprof.live.service.engines import Steps, hello
from tests.deepprof.live.service.traces import gpu_only_trace

JOBS = ("a/b", "c")
COLLECTORS = ("one", "two")
EVENTS = ("device", "stream", "loop", "index", "start_ns", "end_ns")


@cache
def recording() -> tuple[Batch, ...]:
    return tuple(cut(gpu_only_trace(iterations=150, kernels=20), records=100))


@dataclass(frozen=True)
class Message:
    """A message that was sent, and the numbers that it needs."""

    kind: str
    first: int
    count: int
    request: SendRequest

    @property
    def end(self) -> int:
        return self.first + self.count


@dataclass
class Sent:
    """A session as its collector has it: what is in the journal or on its way there, how much was acknowledged."""

    job: str
    collector: str
    number: int
    messages: list[Message] = field(default_factory=list)
    durable: int = 0
    ended: bool = False
    saved: JournalPlace | None = None

    @property
    def next(self) -> int:
        return self.messages[-1].end if self.messages else 0

    @property
    def batches(self) -> int:
        return sum(message.kind == "batch" for message in self.messages)

    @property
    def records(self) -> int:
        return sum(message.count for message in self.messages if message.kind == "batch")

    @property
    def over(self) -> bool:
        return bool(self.messages) and self.messages[-1].kind == "end"

    def keep(self, durable: int, ended: bool) -> None:
        """Forget what has not come to the journal: it will be sent again."""
        assert durable >= self.durable, "acknowledged records are gone"
        assert ended or not self.ended, "an acknowledged end is gone"
        self.messages = [
            message for message in self.messages if message.end <= durable and (ended or message.kind != "end")
        ]
        assert self.next == durable

    def expected(self) -> tuple[pl.DataFrame, int]:
        """Return the iterations of an undisturbed session, and how many records it drops."""
        session, tables = RankSession(), []
        for message in self.messages:
            if message.kind == "batch":
                session.take(check_batch(message.request.batch, WireLimits(), len(session.names)))
            elif message.kind == "gap":
                session.gap(message.count)
            else:
                session.end()
            tables.append(session.advance().iterations)
        return pl.concat([pl.DataFrame(schema=HISTORY), *tables]), sum(session.dropped.values())


class EngineMachine(RuleBasedStateMachine):
    """Two jobs of one rank, each sent by one of two collectors at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="dp-"))
        self.steps = Steps(self.folder / "store")
        self.streams: dict[str, IngestConnection] = {}
        self.sent: dict[str, list[Sent]] = {job: [] for job in JOBS}
        self.history_fails = False

    def teardown(self) -> None:
        self.let_history_work()
        self.compare()
        self.steps.close()
        shutil.rmtree(self.folder)

    # -- clients --

    @rule(job=st.sampled_from(JOBS), collector=st.sampled_from(COLLECTORS))
    def attach(self, job: str, collector: str) -> None:
        known = self.sent[job][-1] if self.sent[job] else None
        stands = job in self.streams and not self.streams[job].rank.ended
        if stands and known and known.collector != collector:
            self.refused(hello(job, collector), "ALREADY_EXISTS")
            return
        try:
            stream = self.steps.attach(hello(job, collector))
        except RefusedError:
            assert self.history_fails
            return
        self.streams[job] = stream
        if known is None or known.number != stream.rank.number:
            if known is not None:
                known.keep(known.next, known.over)
            self.sent[job].append(Sent(job, collector, stream.rank.number))
        latest = self.sent[job][-1]
        assert latest.collector == collector
        latest.keep(stream.rank.durable, stream.rank.ended)
        assert stream.rank.next == latest.next
        assert stream.rank.names == sum(len(message.request.batch.names) for message in latest.messages)

    def refused(self, greeting: Any, code: str) -> None:
        with pytest.raises(RefusedError) as refusal:
            self.steps.attach(greeting)
        assert refusal.value.code == code

    @rule(job=st.sampled_from(JOBS))
    def leave(self, job: str) -> None:
        if stream := self.streams.pop(job, None):
            self.steps.detach(stream)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), number=st.integers(1, 20))
    def send(self, data: st.DataObject, number: int) -> None:
        _, stream, sent = self.choose(data)
        for _ in range(number):
            if sent.over or sent.batches >= len(recording()):
                return
            request = SendRequest(batch=recording()[sent.batches])
            request.batch.first = sent.next
            self.give(stream, sent, "batch", count_records(request.batch), request)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), lost=st.integers(1, 1000))
    def gap(self, data: st.DataObject, lost: int) -> None:
        _, stream, sent = self.choose(data)
        if not sent.over:
            self.give(stream, sent, "gap", lost, SendRequest(gap=Gap(first=sent.next, lost=lost)))

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        _, stream, sent = self.choose(data)
        if not sent.over:
            self.give(stream, sent, "end", 0, SendRequest(end=End()))

    def choose(self, data: st.DataObject) -> tuple[str, IngestConnection, Sent]:
        job = data.draw(st.sampled_from(sorted(self.streams)))
        return job, self.streams[job], self.sent[job][-1]

    def give(self, stream: IngestConnection, sent: Sent, kind: str, count: int, request: SendRequest) -> None:
        task = self.steps.begin(stream.take(request))
        assert task.done()
        assert task.exception() is None
        sent.messages.append(Message(kind, sent.next, count, request))

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        _, stream, sent = self.choose(data)
        if not sent.messages or sent.over:
            return
        message = data.draw(st.sampled_from(sent.messages))
        before = stream.rank.accounts._duplicate
        self.steps.run(stream.take(message.request))
        again = message.count if message.kind == "batch" else 0
        assert stream.rank.accounts._duplicate == before + again

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), by=st.integers(1, 50))
    def jump(self, data: st.DataObject, by: int) -> None:
        job, stream, sent = self.choose(data)
        if sent.over or sent.batches >= len(recording()):
            return
        message = SendRequest(batch=recording()[sent.batches])
        message.batch.first = sent.next + by
        with pytest.raises(RefusedError) as refusal:
            self.steps.run(stream.take(message))
        assert refusal.value.code == "OUT_OF_RANGE"
        self.leave(job)

    # -- threads --

    @rule()
    def write(self) -> None:
        self.steps.write()

    @rule()
    def mine(self) -> None:
        self.steps.mine()

    @rule()
    def turn(self) -> None:
        self.steps.turn()

    @rule(seconds=st.integers(1, 100))
    def wait(self, seconds: int) -> None:
        self.steps.clock.now_ns += seconds * 10**9

    @precondition(lambda self: not self.history_fails)
    @rule()
    def tidy(self) -> None:
        engine = self.steps.engine
        engine.writer.release(engine.worker.needed())
        engine.writer.work()
        engine.history.seal(self.steps.clock.now_ns - 10**10, window_ns=10**9)

    # -- what goes wrong --

    @rule()
    def crash(self) -> None:
        self.history_fails = False
        self.streams.clear()
        self.steps.crash()
        self.after_start()

    def after_start(self) -> None:
        for sessions in self.sent.values():
            for sent in sessions[-1:]:
                rank = self.steps.find(sent.job)
                assert rank.number == sent.number
                sent.keep(rank.durable, rank.ended)

    @rule()
    def drain_and_start(self) -> None:
        if not self.history_fails:
            self.steps.run(self.steps.engine.drain())
            assert all(rank.saved == rank.latest for rank in self.steps.engine.roster)
            self.crash()

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def fill_disk(self, data: st.DataObject) -> None:
        self.steps.write()
        self.steps.turn()
        self.steps.fail_disk(OSError(errno.ENOSPC, "No space left on device"))
        self.send(data, 2)
        self.steps.write()
        self.steps.turn()
        self.steps.fail_disk(None)
        for job, stream in list(self.streams.items()):
            if stream.rank.broken:
                self.leave(job)
        for sessions in self.sent.values():
            for sent in sessions[-1:]:
                rank = self.steps.find(sent.job)
                sent.keep(rank.durable, rank.ended)

    @rule()
    def fill_history(self) -> None:
        def refuse(_: object) -> None:
            raise StoreError(self.folder, "is full")

        self.history_fails = True
        self.steps.engine.history.checkpoint = refuse  # type: ignore[method-assign]

    @rule()
    def let_history_work(self) -> None:
        self.history_fails = False
        self.steps.engine.history.__dict__.pop("checkpoint", None)

    @rule(job=st.sampled_from(JOBS))
    def forget(self, job: str) -> None:
        if self.sent[job] and job not in self.streams:
            self.steps.run(self.steps.engine.forget(job))
            self.sent[job] = []
            return
        with pytest.raises(RefusedError) as refusal:
            self.steps.run(self.steps.engine.forget(job))
        assert refusal.value.code == ("FAILED_PRECONDITION" if self.sent[job] else "NOT_FOUND")

    # -- what always contains --

    @invariant()
    def every_record_is_in_one_count(self) -> None:
        for rank in self.steps.engine.roster:
            assert rank.accounts.view().adds_up
            assert not rank.failed

    @invariant()
    def what_was_acknowledged_or_saved_stays(self) -> None:
        for sessions in self.sent.values():
            for sent in sessions[-1:]:
                rank = self.steps.find(sent.job)
                assert rank.durable >= sent.durable
                sent.durable, sent.ended = rank.durable, rank.ended
                if sent.saved is not None:
                    assert rank.saved is not None
                    assert rank.saved >= sent.saved
                sent.saved = rank.saved

    @precondition(lambda self: not self.history_fails)
    @rule()
    def compare(self) -> None:
        """Hold what the history has against sessions that were never disturbed."""
        self.steps.settle()
        self.steps.turn()
        engine = self.steps.engine
        engine.worker.save(engine.roster)
        for job, sessions in self.sent.items():
            found, after = [pl.DataFrame(schema={"rank": pl.Int64, **HISTORY})], ""
            while True:
                page, after = engine.history.iterations(job, after=after, limit=7)
                found.append(page.cast({"rank": pl.Int64}))
                if not after:
                    break
            rows, dropped = sessions[-1].expected() if sessions else (pl.DataFrame(schema=HISTORY), 0)
            assert pl.concat(found).select(HISTORY.names()).equals(rows)  # another collector's run is another run
            if sessions:
                self.check_counts(sessions[-1], dropped)

    def check_counts(self, sent: Sent, dropped: int) -> None:
        rank = self.steps.find(sent.job)
        account = rank.accounts.view()
        gaps = [message.count for message in sent.messages if message.kind == "gap"]
        assert rank.accounts.in_flight == 0
        assert not rank.failed
        assert account.accepted == sent.records - dropped
        assert (account.gaps, account.lost) == (len(gaps), sum(gaps))
        assert rank.mined == rank.durable == sent.next
        assert rank.mined_end == rank.ended == sent.over


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(
    max_examples=examples(30), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
