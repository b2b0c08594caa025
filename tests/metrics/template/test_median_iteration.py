"""The iteration that represents a loop, the places of nested loops, and the operators around launches."""

from statistics import median

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepprof
from deepprof.metrics.iteration import ITERATIONS
from deepprof.metrics.template.blocks import BLOCKS, place_blocks
from deepprof.metrics.template.median_iteration import find_median_iteration, operators_at_launch
from deepprof.mining.nesting import NestedBlock
from tests.deepprof.builders import build_loop
from tests.deepprof.render.test_perfetto import job
from tests.tables import event, launch, make_trace


def loop_of(bounds, kernels, blocks=(), **columns):
    """A loop with complete iterations (start, next start) of this many kernels each."""
    rows = [
        {
            "index": i,
            "start_ns": start,
            "end_ns": end,
            "kernels": count,
            "complete": True,
            "warmup": False,
            "iteration_ns": end - start,
            "interval_ns": 0,
        }
        for i, ((start, end), count) in enumerate(zip(bounds, kernels, strict=True))
    ]
    table = pl.DataFrame([{key: row.get(key) for key in ITERATIONS} for row in rows], schema=ITERATIONS)
    return build_loop([1], iterations=table.with_columns(**columns), blocks=tuple(blocks))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=3, max_size=3), min_size=1, max_size=6)
)
def test_every_position_has_its_median(iterations):
    events, bounds, time = [], [], 0
    for kernels in iterations:
        begin = time = time + 100
        for place, (gap, length) in enumerate(kernels):
            time += gap if place else 0
            events.append(event(place, time, time + length))
            time += length
        bounds.append((begin, time))
    found = find_median_iteration(loop_of(bounds, [3] * len(iterations)), make_trace(events))
    assert found is not None
    assert found.iterations == len(iterations)
    for place in range(3):
        gaps, lengths = zip(*(kernels[place] for kernels in iterations), strict=True)
        assert found.busy_ns[place] == np.rint(median(lengths))
        assert found.gap_ns[place] == (np.rint(median(gaps)) if place else 0)


def test_kernels_that_overlap_count_once():
    trace = make_trace([event(0, 0, 10), event(1, 5, 8), event(2, 9, 20)])
    found = find_median_iteration(loop_of([(0, 20)], [3]), trace)
    assert (found.gap_ns.tolist(), found.busy_ns.tolist()) == ([0, 0, 0], [10, 0, 10])


def test_the_most_frequent_kernels_stand_for_all():
    names = [0, 1, 2, 0, 3, 2, 0, 3, 2]
    trace = make_trace([event(name, 10 * i, 10 * i + 5) for i, name in enumerate(names)], names="abcde")
    found = find_median_iteration(loop_of([(0, 30), (30, 60), (60, 90)], [3] * 3), trace)
    assert (found.iterations, found.name_ids.tolist(), found.events.tolist()) == (2, [0, 3, 2], [3, 4, 5])


def test_without_iterations_or_kernels_nothing_stands_for_them():
    trace = make_trace([event(0, 0, 5)])
    assert find_median_iteration(loop_of([], []), trace) is None
    assert find_median_iteration(loop_of([(0, 5)], [1], complete=pl.lit(False)), trace) is None
    assert find_median_iteration(loop_of([(0, 5)], [1]), make_trace()) is None


def test_blocks_are_placed_where_they_repeat():
    names = [0, 1, 2, 1, 2, 1, 2, 3, 0, 4, 1, 2, 1, 2, 1, 2, 3]
    trace = make_trace([event(name, 10 * i, 10 * i + 8) for i, name in enumerate(names)], names="abcde")
    loop = loop_of([(0, 80), (80, 170)], [8, 9], [NestedBlock(1, 2, 3)])
    rows = place_blocks(loop, trace).rows()
    assert rows == [(0, 0, 0, 10, 68), (0, 0, 1, 10, 28), (0, 0, 2, 30, 48), (0, 0, 3, 50, 68)]


def test_repetitions_that_overlap_end_where_the_next_begins():
    trace = make_trace([event(name, 10 * i, 10 * i + 13) for i, name in enumerate([0, 1, 1, 1])])
    loop = loop_of([(0, 43)], [4], [NestedBlock(1, 1, 3)])
    assert place_blocks(loop, trace)["end_ns"].to_list() == [43, 20, 30, 43]


@pytest.mark.parametrize(
    "loop", [loop_of([], []), loop_of([(0, 5)], [1]), loop_of([(0, 5)], [1], [NestedBlock(0, 1, 3)])]
)
def test_no_iteration_no_block_or_none_that_fits(loop):
    placed = place_blocks(loop, make_trace([event(0, 0, 5)]))
    assert (placed.height, placed.schema) == (0, BLOCKS)


TREE = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.sampled_from([1, 2, 4, 8, 16])), max_size=25)
CALLS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40)), max_size=8)


@given(TREE, CALLS)
def test_operators_around_a_launch_are_those_of_its_thread_and_time(tree, calls):
    operators = {(thread, start * length, start * length + length) for thread, start, length in tree}
    rows = [
        launch(0, start, end) | {"category": "op", "correlation": None, "thread": thread}
        for thread, start, end in operators
    ]
    rows += [launch(i + 1, time, time + 1) | {"thread": thread} for i, (thread, time) in enumerate(calls)]
    device = [event(0, 1_000 + i, 1_001 + i, correlation=i + 1) for i in range(len(calls))]
    trace = make_trace([*device, event(0, 2_000, 2_001)], rows)
    found = operators_at_launch(trace, np.arange(len(calls) + 1))
    times = trace.host_events.select("thread", "start_ns", "end_ns").rows()
    for row, (thread, time) in zip(found, calls, strict=False):
        around = [o for o in operators if o[0] == thread and o[1] <= time < o[2]]
        assert [times[i] for i in row if i >= 0] == sorted(around, key=lambda o: (o[1], -o[2]))
        assert (row[len(around) :] == -1).all()
    assert (found[-1] == -1).all()


def test_no_event_and_no_host():
    assert operators_at_launch(make_trace(), np.empty(0, np.int64)).shape[0] == 0
    assert operators_at_launch(make_trace([event(0, 0, 1)]), np.array([0])).tolist() == [[-1]]


def test_the_blocks_of_a_mined_loop_have_the_kinds_that_the_report_names():
    (loop,) = deepprof.analyze(job()).loops
    assert [{"events": b.events, "repeats": b.repeats} for b in loop.blocks] == [dict(kind) for kind in loop.nested]
    assert len(loop.blocks) == 1
