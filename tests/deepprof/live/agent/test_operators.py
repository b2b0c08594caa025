"""Operators as kernels window by window: the same rows as of the whole, early enough, and of the right thread."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.trace import ANNOTATIONS, HOST_EVENTS
from deepprof.live.agent.operators import UNDECIDED_NS, UNDECIDED_ROWS, WAITING_ROWS, OperatorKernels, OperatorSplit
from deepprof.live.agent.threads import MAX_REMEMBERED_THREADS, SILENT_NS
from deepprof.metrics.cpu_fallback import stand_in
from deepprof.metrics.operators import is_stand_in
from tests.metrics.test_operators import (
    ADD,
    BACKWARD,
    COMPILING,
    LOADING,
    MAIN,
    NAMES,
    NODE,
    REDUCING,
    cpu_trace,
    many,
    op,
)
from tests.tables import Row, span, table

OTHER = 12
TABLES = ("device_events", "host_events", "annotations")


class Stream:
    """A process whose rows come in windows, and what was made of them."""

    def __init__(self) -> None:
        self.kernels = OperatorKernels()
        self.given: list[OperatorSplit] = []

    def window(self, until: int, host: Sequence[Row] = (), annotations: Sequence[Row] = ()) -> OperatorSplit:
        rows = table(host, HOST_EVENTS), table(annotations, ANNOTATIONS)
        return self.keep(self.kernels.split(*rows, NAMES, until))

    def finish(self) -> OperatorSplit:
        return self.keep(self.kernels.finish())

    def keep(self, split: OperatorSplit) -> OperatorSplit:
        reached = self.given[-1].until_ns if self.given else -(2**62)
        assert split.until_ns >= reached
        for rows in split.tables.values():
            assert rows["start_ns"].is_sorted()
            assert int(rows["start_ns"][0]) >= reached  # what was promised before is kept
        self.given.append(split)
        return split

    def rows(self, name: str) -> list[tuple[object, ...]]:
        found = [split.tables[name] for split in self.given if name in split.tables]
        return sorted(pl.concat(found).rows(), key=repr) if found else []


def streams(split: OperatorSplit) -> list[int]:
    return split.tables["device_events"]["stream"].unique().to_list() if "device_events" in split.tables else []


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """Operators of two threads, nested, crossing and empty, loading, compiling, and collectives between them."""
    times = st.tuples(st.integers(100, 180), st.integers(0, 30))
    spans = st.lists(st.tuples(times, st.sampled_from([MAIN, MAIN, OTHER])), min_size=2, max_size=20)
    host = [
        op(draw(st.sampled_from([ADD, ADD, ADD, NODE, COMPILING])), start, start + length, thread)
        for (start, length), thread in draw(spans)
    ]
    host += [op(NODE, s, s + d, t, category="dataloader") for (s, d), t in draw(spans)[:2]]
    ranges = [
        span(draw(st.sampled_from([LOADING, COMPILING, REDUCING, NODE])), start, start + length, thread=thread)
        for (start, length), thread in draw(spans)[:6]
    ]
    ranges += [span(REDUCING, s, 0, thread=t) | {"end_ns": None} for (s, _), t in draw(spans)[:1]]
    return [op(BACKWARD, 0, 9), *[op(ADD, k, k + 1) for k in range(10, 40)], *host, *many(12, start=300)], ranges


@given(programs(), st.lists(st.integers(95, 215), max_size=12))
def test_windows_give_what_the_whole_gives(program: tuple[list[Row], list[Row]], cuts: list[int]) -> None:
    host, ranges = program
    whole = stand_in(cpu_trace(host, ranges))
    assert whole is not None
    stream, before = Stream(), -1
    for until in [60, *sorted(cuts), 450]:
        mine = [[row for row in rows if before <= int(str(row["start_ns"])) < until] for rows in (host, ranges)]
        stream.window(until, *mine)
        before = until
    stream.finish()
    for name in TABLES:
        assert stream.rows(name) == sorted(getattr(whole, name).rows(), key=repr)
    assert (stream.kernels.note,) == whole.notes


def test_a_backward_pass_decides_at_once() -> None:
    stream = Stream()
    assert stream.window(1000, many(40, start=0, thread=OTHER)).tables == {}
    assert stream.kernels.note == ""
    split = stream.window(2000, [op(BACKWARD, 1000, 1005), *many(12, start=1010)])
    assert stream.kernels.note.endswith("operators of thread 11")
    assert is_stand_in(cpu_trace([], notes=(stream.kernels.note,)))
    assert (streams(split), split.until_ns) == ([MAIN], 2000)
    assert split.tables["host_events"].height == 40  # of the other thread, from the beginning


def test_without_one_the_busiest_thread_stands_after_a_while() -> None:
    stream = Stream()
    first = stream.window(UNDECIDED_NS, [*many(40, start=0, thread=OTHER), *many(12, start=0)])
    assert (first.tables, first.until_ns) == ({}, 0)
    assert streams(stream.window(UNDECIDED_NS + 1)) == [OTHER]


def test_what_waits_for_the_thread_is_bounded() -> None:
    stream = Stream()
    few = [op(ADD, 0, 5)]  # of an operator: too few to decide from
    marks = [span(NODE, k, k + 1, thread=MAIN) for k in range(UNDECIDED_ROWS)]
    split = stream.window(UNDECIDED_ROWS, few, marks)
    assert sum(rows.height for rows in split.tables.values()) == UNDECIDED_ROWS + 1
    assert "device_events" not in split.tables
    assert streams(stream.window(10**6, [op(BACKWARD, 10**5, 10**5 + 1), *many(12, start=10**5 + 9)])) == [MAIN]


def test_few_operators_are_no_rank_that_computes() -> None:
    stream = Stream()
    assert stream.window(10**12, many(11)).tables == {}
    assert set(stream.finish().tables) == {"host_events"}
    assert stream.kernels.note == ""
    assert Stream().finish().tables == {}


def test_the_end_decides_from_what_there_is() -> None:
    stream = Stream()
    assert stream.window(2000, many(12)).tables == {}
    assert streams(stream.finish()) == [MAIN]
    assert stream.given[-1].until_ns == 2000


def test_an_operator_waits_for_its_end_and_holds_what_starts_after_it() -> None:
    stream = Stream()
    stream.window(200, [op(BACKWARD, 0, 5), *many(12, start=6)])
    split = stream.window(400, [op(ADD, 200, 500), op(ADD, 300, 310, OTHER)])
    assert (split.until_ns, split.tables) == (200, {})
    split = stream.window(600, [], [span(COMPILING, 450, 460, thread=MAIN)])
    assert "device_events" not in split.tables  # it compiled
    assert split.until_ns == 600
    assert split.tables["host_events"].height == 2


def test_what_waits_for_an_end_is_bounded() -> None:
    stream = Stream()
    stream.window(1000, [op(BACKWARD, 0, 5), *many(12, start=10)])
    marks = [span(NODE, 1001 + k, 1002 + k, thread=OTHER) for k in range(WAITING_ROWS)]
    split = stream.window(10**6, [op(ADD, 1000, 10**9)], marks)
    assert split.until_ns == 10**6
    assert split.tables["device_events"].height == 1
    later = stream.window(10**9, [op(ADD, 10**8, 10**8 + 5)])
    assert "device_events" not in later.tables  # inside the long one
    assert stream.kernels.host_events.height == 0


def training(thread: int, start: int) -> list[Row]:
    return [op(BACKWARD, start, start + 9, thread), *many(12, start=start + 10, thread=thread)]


def test_a_thread_that_trains_takes_over_from_one_that_does_not() -> None:
    stream = Stream()
    stream.window(UNDECIDED_NS + 1000, many(12, thread=OTHER, start=0))
    assert stream.kernels.place == (1, OTHER)
    split = stream.window(UNDECIDED_NS + 2000, training(MAIN, UNDECIDED_NS + 1000))
    assert split.notice == "thread 12 trains no longer; the operators of thread 11 stand for kernels now"
    assert streams(split) == [MAIN]
    assert stream.window(UNDECIDED_NS + 3000, training(MAIN, UNDECIDED_NS + 2500)).notice == ""


def test_a_thread_that_falls_silent_is_replaced_by_one_that_trains() -> None:
    stream, late = Stream(), SILENT_NS + 1000
    stream.window(1000, training(MAIN, 0))
    assert stream.window(late, many(30, thread=OTHER, start=late - 500)).notice == ""  # computes, but does not train
    assert stream.window(late + 1000, training(MAIN, late)).notice == ""
    assert stream.window(late + 2000, training(OTHER, late + 1000)).notice == ""  # both at a time
    split = stream.window(2 * late + 2000, training(OTHER, 2 * late + 1000))
    assert split.notice != ""
    assert streams(split) == [OTHER]


def test_threads_beyond_number_are_forgotten_but_not_the_one_that_trains() -> None:
    stream = Stream()
    stream.window(1000, training(MAIN, 0))
    for number in range(3):
        crowd = [
            op(ADD, 1000 * number + 1000 + k % 900, 1000 * number + 1950, 100 + k)
            for k in range(MAX_REMEMBERED_THREADS)
        ]
        stream.window(1000 * number + 2000, crowd)
    assert len(stream.kernels.threads.seen) == MAX_REMEMBERED_THREADS + 1
    assert stream.kernels.place == (1, MAIN)


def test_records_that_are_missing_end_what_was_open() -> None:
    stream = Stream()
    stream.window(1000, training(MAIN, 0))
    stream.window(2000, [op(ADD, 1500, 9000)])
    assert stream.finish().tables["device_events"].height == 1
    assert streams(stream.window(4000, [op(ADD, 3000, 3005)])) == [MAIN]  # not inside the one before
