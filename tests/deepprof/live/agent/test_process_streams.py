"""Random streams of packets: every record is accepted, lost or dropped, once, and no promise is broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.collectors.live.packets import NO_TIME, RANGE, Kind, Reason
from deepprof.live.agent.hello import ProtocolError, read_hello
from deepprof.live.agent.process_decoder import ProcessDecoder
from tests.chance import examples
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.test_process import UNIX, Listener, say

MS = 10**6
SECOND = 10**9


@dataclass
class Store(Listener):
    """A rank whose spool outlives agents."""

    lost: int = 0
    dropped: int = 0
    ends: int = 0
    process: ProcessDecoder | None = None
    left_out: int = 0  # by that process, as far as `source_next` has of it

    def reach(self, source_next: int) -> None:
        if self.process is not None and source_next >= self.source_next:
            self.source_next = source_next
            self.left_out = sum(self.process.dropped.values())

    def send(self, tables: Mapping[str, pl.DataFrame], until_ns: int, source_next: int = 0) -> bool:
        self.reach(source_next)
        return super().send(tables, until_ns, source_next)

    def gap(self, reason: str, lost: int = 0, source_next: int = 0) -> None:
        self.lost += lost
        self.reach(source_next)
        super().gap(reason, lost, source_next)

    def end(self, dropped: Mapping[str, int] | None = None, flagged: Mapping[str, int] | None = None) -> None:
        self.dropped += sum((dropped or {}).values())
        self.ends += 1
        super().end(dropped, flagged)

    def seen(self) -> list[int]:
        return [number for rows in self.rows for number in rows["correlation"]]


@dataclass
class Job:
    """A process with two its own clocks, whose agent may be another one after each packet."""

    stand_in: bool
    rank: Store = field(default_factory=Store)
    now_ns: int = 1000 * SECOND
    unix_ns: int = UNIX
    next: int = 0
    killed: int = 0  # records that killed agents had left out

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        words = {"stand_in": 1} if self.stand_in else {}
        self.process = ProcessDecoder(read_hello(made.hello(**words)), lambda: self.rank)  # type: ignore[arg-type, return-value]
        self.rank.process, self.rank.left_out = self.process, 0
        say(self.process, (Kind.NAMES, made.names(["aten::mm", "relu", "autograd::engine::evaluate_function: X"])))

    def kill(self) -> None:
        self.killed += self.rank.left_out
        self.begin()
        self.rank.watermark_ns = -(2**62)  # the daemon's affair: the clocks of two agents differ a little

    def send(self, ages_ns: list[int], length_ns: int, reason: Reason, skipped: int, *, ranges: bool) -> None:
        self.next += skipped
        starts = self.now_ns - np.array(ages_ns, np.int64)
        numbers = np.arange(self.next, self.next + len(starts)) + 1
        if ranges:
            rows = np.zeros(len(starts), RANGE)
            rows["start_ns"], rows["end_ns"], rows["category"] = starts, starts + length_ns, 0
            rows["name"], rows["thread"], rows["correlation"] = numbers % 4, 7, numbers
            packet = Kind.RANGES, made.ranges(self.next, rows, reason)
        else:
            rows = made.kernels(starts, length_ns)
            rows["correlation"] = numbers
            packet = Kind.EVENTS, made.events(self.next, rows, reason)
        self.next += len(starts)
        say(self.process, packet)

    def tick(self, passed_ns: int, set_ns: int, open_ns: int, *, device: bool, rests: bool) -> None:
        self.now_ns += passed_ns
        self.unix_ns += passed_ns + set_ns
        more = {"unix_ns": self.unix_ns, "open_since_ns": self.now_ns - open_ns if open_ns else made.NEVER}
        if device and not rests:
            more["events_until_ns"] = NO_TIME
        say(self.process, (Kind.TICK, made.tick(self.now_ns, next=self.next, device=device, **more)))


records = st.tuples(
    st.just("records"),
    st.lists(st.integers(-2 * SECOND, 30 * SECOND), max_size=8),
    st.sampled_from([0, 1000, 50 * MS, 5 * SECOND, -1]),
    st.sampled_from([Reason.NONE] * 6 + list(Reason)),
    st.sampled_from([0, 0, 0, 0, 3]),
    st.booleans(),
)
ticks = st.tuples(
    st.just("tick"),
    st.integers(-10 * MS, 3 * SECOND),
    st.sampled_from([0] * 8 + [40 * MS, -40 * MS, 3600 * SECOND, -3600 * SECOND]),
    st.sampled_from([0, 0, 10 * MS, 20 * SECOND]),
    st.sampled_from([True, True, True, False]),
    st.booleans(),
)
breaks = st.sampled_from([("kill",), ("pause",), ("reconnect",)])


@settings(deadline=None, max_examples=examples(200))
@given(st.booleans(), st.lists(st.one_of(records, records, ticks, ticks, breaks), max_size=25))
def test_every_record_is_accounted_for_once(stand_in: bool, steps: list[tuple]) -> None:
    job = Job(stand_in)
    for what, *more in steps:
        if what == "records":
            *words, ranges = more
            job.send(*words, ranges=ranges)
        elif what == "tick":
            *words, device, rests = more
            job.tick(*words, device=device, rests=rests)
        elif what == "reconnect":
            job.process.reconnect(job.process.hello)
        else:
            if what == "pause":
                job.process.pause()
                assert job.process.waiting == sum(
                    each.order.held for each in (job.process.events, job.process.ranges) if not each.clock.is_set
                )
            job.kill()
        account = job.process.account
        assert account.held.total() == job.process.waiting
        assert account.counted.total() == job.process.next
    say(job.process, (Kind.END, made.end(job.next)))
    seen = job.rank.seen()
    assert len(seen) == len(set(seen))
    if job.process.rank is None:  # what a killed agent held is known to be missing once someone speaks of the rank
        assert job.rank.ends == 0
        return
    assert len(seen) + job.rank.lost + job.rank.dropped + job.killed == job.next
    assert job.process.waiting == 0


@given(st.data())
def test_bytes_of_strangers_end_nothing_but_their_connection(data: st.DataObject) -> None:
    process = Job(stand_in=data.draw(st.booleans())).process
    edges = st.sampled_from([-(2**63), -1, 0, 1, SECOND, 2**61 - 1, 2**61, 2**62, 2**63 - 1])
    fields = ("device_ns", "mono_ns", "unix_ns", "events_until_ns", "ranges_until_ns", "open_since_ns")
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from([Kind.EVENTS, Kind.RANGES, Kind.TICK]))
        if kind == Kind.TICK:
            payload = made.tick(0, **{name: data.draw(edges) for name in fields})
        else:
            dtype = made.EVENT if kind == Kind.EVENTS else RANGE
            count = data.draw(st.integers(0, 3))
            noise = data.draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
            rows = np.frombuffer(noise, dtype).copy()
            for row in rows:
                row["start_ns"], row["end_ns"] = data.draw(edges), data.draw(edges)
            head = made.head(process.next, count, 0)
            payload = head + rows.tobytes()
        try:
            say(process, (kind, payload))
        except ProtocolError:
            process.reconnect(process.hello)
    process.end()
