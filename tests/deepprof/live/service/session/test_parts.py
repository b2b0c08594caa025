"""The session's parts against what a whole table would state."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.session.choice import FIRST_LOOK, LOOK_EVERY, StreamChoice, next_look
from deepprof.live.service.session.columns import CALLS, NOBODY, RANGES, Columns, empty, height, select
from deepprof.live.service.session.launches import LAG_NS, UNKNOWN_NS, Launches
from deepprof.live.service.session.names import GRAPH_MARK, WAIT_MARK, RangeFamilies, SessionNames
from deepprof.live.service.session.pending import Pending
from deepprof.live.service.session.ranges import GRID, RangeQueue
from deepprof.live.service.session.spans import RunningUnion
from deepprof.metrics.spans import covered, union
from deepprof.metrics.streams import classify_streams
from tests.deepprof.live.service.session.feeding import device_rows, make_trace

TIME = st.integers(0, 60)
SPANS = st.lists(st.tuples(TIME, st.integers(0, 20)), min_size=1, max_size=30)


def arrays(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start, length = np.array(sorted(spans), np.int64).T
    return start, start + length


@given(spans=SPANS, cuts=st.lists(st.integers(0, 30)), time=st.integers(0, 90))
def test_a_running_union_covers_what_the_whole_one_does(
    spans: list[tuple[int, int]], cuts: list[int], time: int
) -> None:
    start, end = arrays(spans)
    running, silent, before = RunningUnion(), RunningUnion(), []
    for first, until in zip([0, *sorted(cuts)], [*sorted(cuts), len(start)], strict=True):
        before.append(running.add(start[first:until], end[first:until]))
        silent.grow(start[first:until], end[first:until])
    whole, zero = union(start, end), np.zeros(len(start), np.int64)
    assert np.concatenate(before).tolist() == covered(whole, zero, start).tolist()
    assert running == silent
    assert running.total_ns == whole.total_ns
    late = max(time, int(start[-1]))
    assert running.before(late) == covered(whole, np.array([0]), np.array([late]))[0]


def calls_of(rows: list[tuple[int, int, int, int]]) -> Columns:
    start, length, correlation, marks = np.array(sorted(rows, key=lambda row: row[0]), np.int64).reshape(-1, 4).T
    ids = np.where(correlation, correlation, -1).astype(np.uint64)
    return {"start": start, "end": start + length, "correlation": ids, "marks": marks.astype(np.uint8)}


CALL = st.tuples(TIME, st.integers(0, 20), st.integers(0, 6), st.sampled_from([0, 0, WAIT_MARK, GRAPH_MARK]))


@given(rows=st.lists(CALL, max_size=30), cuts=st.lists(TIME, max_size=4), most=st.sampled_from([2, 5, 100]))
def test_kernels_find_their_launches_however_calls_come(
    rows: list[tuple[int, int, int, int]], cuts: list[int], most: int
) -> None:
    calls, launches = calls_of(rows), Launches(most)
    wanted = np.arange(1, 7, dtype=np.uint64)
    for first, until in zip([0, *sorted(cuts)], [*sorted(cuts), 100], strict=True):
        launches.read(select(calls, (calls["start"] >= first) & (calls["start"] < until)), until)
        launches.forget()
    found = launches.find(wanted, np.full(6, 100 - LAG_NS))
    linked = np.flatnonzero(calls["correlation"] != NOBODY)[-most:]
    ids = calls["correlation"]
    everyone = np.flatnonzero(ids != NOBODY)
    for place, number in enumerate(wanted):
        # Of the latest calls the first with this id that has none of the same id among the `most` before it.
        own = [
            i for i in linked
            if ids[i] == number
            and number not in ids[everyone[max(0, k := int(np.searchsorted(everyone, i))) - min(k, most - 1) : k]]
        ]  # fmt: skip
        assert found.launch[place] == (calls["start"][own[0]] if own else UNKNOWN_NS)
        if own:
            at = int(calls["start"][own[0]])
            whole = union(calls["start"], calls["end"])
            assert found.elapsed[place] == covered(whole, np.array([0]), np.array([at]))[0]
            ends = calls["end"][(calls["marks"] & WAIT_MARK) != 0]
            assert found.waits[place] == (ends <= at).sum()
            begun = calls["start"][(calls["marks"] & GRAPH_MARK) != 0]
            assert found.graphs[place] == (begun <= at).sum()


def test_a_kernel_without_launches_has_none() -> None:
    launches = Launches(4)
    launches.read(empty(CALLS), 10)
    found = launches.find(np.array([3, NOBODY], np.uint64), np.array([1, 2]))
    assert found.launch.tolist() == [UNKNOWN_NS] * 2
    assert not found.any_known()


@given(
    ranges=st.lists(st.tuples(TIME, st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=20),
    times=st.lists(TIME, min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
)
def test_ranges_find_their_places(ranges: list[tuple[int, int, int]], times: list[int], cuts: list[int]) -> None:
    start, length, family = np.array(sorted(ranges), np.int64).T
    symbols, by_end = np.array(sorted(times), np.int64), np.array([False, False, True])
    queue = RangeQueue(1000, 3)
    rows = empty(RANGES) | {"start": start, "end": start + length, "family": family.astype(np.int32)}
    queue.add(rows)
    edges = sorted({0, len(symbols), *(c for c in cuts if c < len(symbols))})
    for first, end in itertools.pairwise(edges):
        queue.place(symbols[first:end], first, by_end)
    queue.close(len(symbols))
    given_ = set(zip(*(queue.ready[name].tolist() for name in ("family", "begin", "end")), strict=True))
    ends = np.searchsorted(symbols, start + length)
    begins = np.where(by_end[family], ends, np.searchsorted(symbols, start))
    wanted: dict[tuple[int, int], tuple[int, int]] = {}
    for f, b, e, _ in sorted(
        zip(family.tolist(), begins.tolist(), ends.tolist(), start.tolist(), strict=True), key=lambda row: row[3]
    ):
        if b < len(symbols):
            wanted.setdefault((f, b), (f, e))
    assert {(f, b) for f, b, _ in given_} == set(wanted)
    assert {(f, b, e) for f, b, e in given_ if not by_end[f]} == {(f, b, wanted[f, b][1]) for f, b in wanted if f < 2}


def test_ranges_are_told_at_the_grid_behind_their_end() -> None:
    queue = RangeQueue(10, 1)
    names = SessionNames()
    names.add(["step_1"], 0)
    families = RangeFamilies(1)
    family = families.find(np.array([0]), np.array([False]), names.texts)
    queue.add({"start": np.array([5]), "end": np.array([70]), "device": np.array([-1]), "family": family})
    queue.place(np.arange(200), 0, families.end_tells())
    assert queue.breaks(0, 200) == [2 * GRID]
    assert queue.tell(GRID, families.known) == ()
    (told,) = queue.tell(2 * GRID, families.known)
    assert (told.positions.tolist(), told.trust, told.coverage) == ([5 - 2 * GRID], "step", 1.0)
    assert told.ends is not None
    assert told.ends.tolist() == [70 - 2 * GRID]


def test_room_is_left_for_step_markers() -> None:
    names, families = SessionNames(), RangeFamilies(4)
    texts = [f"module_{chr(97 + i)}" for i in range(10)] + ["ProfilerStep#3", "Optimizer.step#SGD.step", "nccl:all"]
    names.add(texts, 0)
    own = families.find(np.arange(13), np.arange(13) == 11, names.texts).tolist()
    assert own == [0, 1, 2, *[-1] * 7, 3, -1, -1]
    assert [one.trust for one in families.known] == ["range", "range", "range", "step"]
    assert families.find(np.array([10, 1]), np.array([False, False]), names.texts).tolist() == [3, 1]


def test_names_with_a_hole_are_refused_and_known_ones_skipped() -> None:
    names = SessionNames()
    names.add(["a", "cudaStreamSynchronize"], 0)
    names.add(["cudaStreamSynchronize", "sgd"], 1)
    assert names.texts == ["a", "cudaStreamSynchronize", "sgd"]
    assert names.optimizer.tolist() == [False, False, True]
    assert (names.marks & WAIT_MARK != 0).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="only 3 are known"):
        names.add(["x"], 4)


def test_packed_names_come_back_however_often_they_were_packed() -> None:
    names = SessionNames()
    for number in range(200):
        names.add([f"kernel_{number}"], number)
        blocks = names.pack()
        assert names.pack() is blocks
    assert len(blocks) <= 65
    assert SessionNames.unpack(blocks).texts == names.texts


@given(
    parts=st.lists(st.lists(TIME, max_size=8), max_size=6),
    until=st.lists(TIME, max_size=4).map(sorted),
)
def test_pending_rows_come_out_by_start(parts: list[list[int]], until: list[int]) -> None:
    pending, everything = Pending(), []
    for number, part in enumerate(parts):
        everything += [(time, number, place) for place, time in enumerate(part)]
        marks = np.array([10 * number + place for place in range(len(part))], np.int64)
        pending.add({"start": np.array(part, np.int64), "mark": marks})
    low = -1
    for time in [*until, 1000]:
        rows = pending.release(time)
        wanted = [10 * n + p for t, n, p in sorted(everything) if low <= t < time]
        assert (rows["mark"].tolist() if rows else []) == wanted
        low = max(low, time)
    assert pending.rows == 0


@given(
    kernels=st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 9)), min_size=1, max_size=30),
    cut=st.integers(0, 30),
)
def test_the_main_stream_is_that_of_the_whole_trace(kernels: list[tuple[int, bool, int]], cut: int) -> None:
    streams, collective, lasting = (np.array(column) for column in zip(*kernels, strict=True))
    start = 100 * np.arange(len(streams))
    names = np.where(collective, 1, 0)
    trace = make_trace(
        device_rows(start_ns=start, end_ns=start + lasting, stream=streams, name_id=names),
        1,
        ["ncclDevKernel_AllReduce"],
    )
    choice = StreamChoice(10)
    for part in (slice(0, cut), slice(cut, None)):
        choice.count(streams[part], collective[part], lasting[part])
    main = classify_streams(trace).filter(role="main")["stream"].to_list()
    assert choice.choose(None, 0, ends=True) == (main[0] if main else None)


def test_looks_come_at_doubling_numbers_of_events_and_then_regularly() -> None:
    looks, seen = [], 0
    while seen < 3 * LOOK_EVERY:
        seen = next_look(seen)
        looks.append(seen)
    assert looks == [*(FIRST_LOOK << i for i in range(7)), 2 * LOOK_EVERY, 3 * LOOK_EVERY]
    assert all(next_look(look - 1) == look for look in looks)


def test_a_stream_that_ran_more_lately_is_the_main_one_only_where_it_is_clear() -> None:
    choice = StreamChoice(10)
    choice.count(np.full(1000, 1), np.zeros(1000, bool), np.ones(1000))
    choice.count(np.full(1500, 2), np.zeros(1500, bool), np.ones(1500))
    assert choice.choose(1, FIRST_LOOK) == 2
    assert choice.choose(1, LOOK_EVERY) == 1
    choice.fade()
    choice.count(np.full(1000, 2), np.zeros(1000, bool), np.ones(1000))
    assert choice.choose(1, LOOK_EVERY) == 2


def test_no_more_streams_are_counted_than_there_may_be() -> None:
    choice = StreamChoice(4)
    choice.count(np.arange(1000), np.zeros(1000, bool), np.ones(1000))
    assert len(choice.streams) == 4
    assert height(empty(CALLS)) == 0
