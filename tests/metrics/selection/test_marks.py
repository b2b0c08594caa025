"""Which rows each selection marks, against oracles in plain Python that examine every pair."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.kept_rows import NOT_SELECTED, RowMarks, keep_rows
from deepprof.collectors.time_range import SIDE_TABLES
from deepprof.collectors.trace import LAUNCH_SHAPES, MEMORY_EVENTS, RECORD_TABLES, Accounting, Trace
from deepprof.metrics.selection.chosen_parts import count_kernels, mark_iterations, mark_kernels, number_kernels
from deepprof.metrics.selection.marks import combine, mark_nothing
from deepprof.metrics.selection.named_ranges import list_range_names, mark_ranges
from deepprof.metrics.selection.thread_spans import lie_in, merge_spans, overlap
from tests.loops import make_loop
from tests.tables import Row, event, launch, make_trace, span, table

NAMES = ("forward", "back[0]", "kernel")
TIME = st.integers(0, 30)
THREADS = st.integers(1, 2)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Return a trace of two threads and two devices, with launches that are there and that are not."""
    ranges = [
        span(name, start, start + length, thread=thread)
        if side
        else span(name, start, start + length, side="device", process=None, thread=None, device=thread - 1, stream=7)
        for name, start, length, thread, side in draw(
            st.lists(st.tuples(st.integers(0, 1), TIME, st.integers(0, 9), THREADS, st.booleans()), max_size=6)
        )
    ]
    calls = [
        launch(number, start, start + length, 2) | {"thread": thread}
        for number, (start, length, thread) in enumerate(
            draw(st.lists(st.tuples(TIME, st.integers(0, 3), THREADS), max_size=8))
        )
    ]
    events = [
        event(2, start, start + length, device=device, correlation=correlation, activity=activity)
        for start, length, device, correlation, activity in draw(
            st.lists(
                st.tuples(
                    TIME,
                    st.integers(0, 4),
                    st.integers(0, 1),
                    st.none() | st.integers(0, 9),
                    st.sampled_from(["kernel", "graph", "memcpy"]),
                ),
                max_size=10,
            )
        )
    ]
    memory = [
        {"time_ns": time, "process": 1, "thread": thread, "device": 0, "nbytes": 8}
        for time, thread in draw(st.lists(st.tuples(TIME, st.none() | THREADS), max_size=6))
    ]
    return with_memory(make_trace(events, calls, ranges, names=NAMES), memory)


def with_memory(trace: Trace, rows: list[Row]) -> Trace:
    count = trace.accounting.kept + len(rows)
    return replace(trace, memory_events=table(rows, MEMORY_EVENTS), accounting=Accounting(count, count))


def listed(marks: RowMarks) -> dict[str, list[bool]]:
    return {name: each.tolist() for name, each in marks.items()}


def inside(start: int, end: int, ranges: list[Row]) -> bool:
    """Return whether [start, end] begins in the time that ranges cover, and is not around it."""
    covered = {time for each in ranges for time in range(each["start_ns"], each["end_ns"])}  # type: ignore[call-overload]
    if start not in covered:
        return False
    return start - 1 in covered or all(time in covered for time in range(start, end))


def expect_ranges(trace: Trace, pattern: str) -> dict[str, list[bool]] | None:
    rows: Mapping[str, list[Row]] = {name: getattr(trace, name).rows(named=True) for name in RECORD_TABLES}
    names = trace.names.to_list()
    named = [names[r["name_id"]] == pattern or fnmatchcase(names[r["name_id"]], pattern) for r in rows["annotations"]]  # type: ignore[call-overload]
    if not any(named):
        return None
    chosen = [row for row, one in zip(rows["annotations"], named, strict=True) if one]
    host = {thread: [r for r in chosen if r["thread"] == thread] for thread in (1, 2)}
    device = [r for r in chosen if r["side"] == "device"]

    def on_device(row: Row) -> bool:
        return inside(row["start_ns"], row["end_ns"], [r for r in device if r["device"] == row["device"]])  # type: ignore[arg-type]

    def on_host(row: Row) -> bool:
        return inside(row["start_ns"], row["end_ns"], host[row["thread"]])  # type: ignore[arg-type, index]

    calls = {row["correlation"]: on_host(row) for row in reversed(rows["host_events"])}
    by_launch = any(r["side"] == "host" for r in chosen)
    every = [r for each in host.values() for r in each]
    return {
        "device_events": [
            calls.get(r["correlation"], on_device(r)) if by_launch else on_device(r) for r in rows["device_events"]
        ],
        "host_events": [on_host(row) for row in rows["host_events"]],
        "annotations": [
            one or (on_host(row) if row["side"] == "host" else on_device(row))
            for row, one in zip(rows["annotations"], named, strict=True)
        ],
        "memory_events": [
            inside(r["time_ns"], r["time_ns"], every if r["thread"] is None else host[r["thread"]])  # type: ignore[arg-type, index]
            for r in rows["memory_events"]
        ],
        "segments": [],
        "failed_allocations": [],
        "context_sums": [],
    }


@given(traces(), st.sampled_from(["forward", "back[0]", "*", "f*d", "absent"]))
def test_what_lies_in_ranges_is_marked(trace: Trace, pattern: str) -> None:
    found = mark_ranges(trace, pattern)
    assert (None if found is None else listed(found)) == expect_ranges(trace, pattern)


def expect_kernels(trace: Trace, first: int | None, last: int | None) -> dict[str, list[bool]] | None:
    calls: dict[Any, Row] = {}
    for row in trace.host_events.rows(named=True):
        calls.setdefault(row["correlation"], row)
    events = trace.device_events.rows(named=True)
    kept = [False] * len(events)
    host, device = [], []
    any_kernel = False
    for number in (0, 1):
        mine = [k for k, row in enumerate(events) if row["device"] == number]
        at = {
            k: calls[events[k]["correlation"]]["start_ns"]
            if events[k]["correlation"] in calls
            else events[k]["start_ns"]
            for k in mine
        }
        count = 0
        for k in sorted(mine, key=lambda k: (at[k], events[k]["start_ns"], k)):
            kept[k] = (first or 0) <= count and (last is None or count < last)
            kernel = events[k]["activity"] != "memcpy"
            any_kernel |= kernel and kept[k]
            count += kernel
        own = [events[k] for k in mine if kept[k]]
        if own:
            device += range(min(r["start_ns"] for r in own), max(max(r["end_ns"], r["start_ns"] + 1) for r in own))
            links = [calls[r["correlation"]] for r in own if r["correlation"] in calls]
            times = links or own
            host += range(min(r["start_ns"] for r in times), max(max(r["end_ns"], r["start_ns"] + 1) for r in times))
    if not any_kernel:
        return None

    def meets(start: int, end: int, times: list[int]) -> bool:
        return any(time in times for time in range(start, max(end, start + 1)))

    return {
        "device_events": kept,
        "host_events": [meets(r["start_ns"], r["end_ns"], host) for r in trace.host_events.rows(named=True)],
        "annotations": [
            meets(r["start_ns"], r["end_ns"], host if r["side"] == "host" else device)
            for r in trace.annotations.rows(named=True)
        ],
        "memory_events": [t in host for t in trace.memory_events["time_ns"].to_list()],
        "segments": [],
        "failed_allocations": [],
        "context_sums": [],
    }


@given(traces(), st.none() | st.integers(0, 5), st.none() | st.integers(1, 6))
def test_kernels_are_marked_by_their_number(trace: Trace, first: int | None, last: int | None) -> None:
    found = mark_kernels(trace, first, last)
    assert (None if found is None else listed(found)) == expect_kernels(trace, first, last)


@given(traces(), st.sampled_from(["forward", "back[0]"]), st.integers(0, 3))
def test_a_part_keeps_the_marked_rows_with_their_details_and_counts_the_rest(
    trace: Trace, name: str, first: int
) -> None:
    shapes = [{"event": row, "registers": row} for row in range(trace.device_events.height)]
    trace = replace(trace, launch_shapes=table(shapes, LAUNCH_SHAPES))
    found = [mark_ranges(trace, name), mark_kernels(trace, first, None)]
    marks = combine([mark_nothing(trace) if each is None else each for each in found])
    part = keep_rows(trace, marks)
    for each in RECORD_TABLES:
        rows = getattr(trace, each).rows()
        assert getattr(part, each).rows() == [row for row, kept in zip(rows, marks[each], strict=True) if kept]
    kept = sum(int(each.sum()) for each in marks.values())
    assert part.accounting.kept == kept
    assert part.accounting.dropped.get(NOT_SELECTED, 0) == trace.accounting.kept - kept
    assert part.launch_shapes["event"].to_list() == list(range(part.device_events.height))
    assert part.launch_shapes["registers"].to_list() == np.flatnonzero(marks["device_events"]).tolist()


def test_every_side_table_follows_its_rows() -> None:
    assert set(SIDE_TABLES.values()) <= set(RECORD_TABLES)


def test_empty_traces_have_nothing() -> None:
    empty = make_trace()
    assert mark_ranges(empty, "*") is None
    assert mark_kernels(empty, None, None) is None
    assert mark_iterations(empty, make_loop([]), 5, None) is None
    assert (count_kernels(empty), number_kernels(empty).tolist()) == (0, [])
    assert list_range_names(empty).is_empty()
    assert keep_rows(empty, mark_nothing(empty)).accounting == empty.accounting


def test_one_event_is_kernel_0() -> None:
    trace = make_trace([event(0, 5, 9)])
    assert listed(mark_kernels(trace, 0, 1) or {})["device_events"] == [True]
    assert mark_kernels(trace, 1, None) is None


def backward(name: int, start: int, end: int, thread: int) -> Row:
    return launch(0, start, end, name) | {"thread": thread, "category": "op", "correlation": None}


@pytest.mark.parametrize("node", ["autograd::engine::evaluate_function: MmBackward0", "MmBackward", "CopyBackwards"])
def test_the_backward_pass_on_a_thread_of_autograd_is_part_of_the_range_around_it(node: str) -> None:
    """Thread 1 trains and waits in the range, 2 is autograd's, 3 loads the next batch meanwhile."""
    names = ("step", "aten::mm", node, "aten::cat", "k", "load")
    host = [
        backward(1, 0, 5, 1),
        backward(1, 11, 15, 1),
        backward(2, 16, 18, 2),
        backward(2, 26, 28, 2),
        backward(3, 16, 18, 3),
        launch(8, 17, 18, 4) | {"thread": 2},
        launch(9, 17, 18, 4) | {"thread": 3},
    ]
    events = [event(4, 20, 30, correlation=8), event(4, 30, 40, correlation=9)]
    trace = make_trace(events, host, [span(0, 10, 20), span(5, 15, 20, thread=3)], names)
    found = listed(mark_ranges(trace, "step") or {})
    assert found["host_events"] == [False, True, True, False, True, False, False]
    assert found["device_events"] == [True, False]
    loading = listed(mark_ranges(trace, "load") or {})
    assert loading["host_events"] == [False, False, False, True, False, True, False]


def test_a_thread_that_runs_its_own_backward_pass_belongs_to_no_other_ones_ranges() -> None:
    """As on the CPU: thread 1 trains, mostly backward, while thread 3 loads in its own range."""
    names = ("load", "aten::mm", "autograd::engine::evaluate_function: MmBackward0", "aten::cat")
    host = [backward(1, 0, 2, 1), backward(2, 2, 20, 1), backward(3, 1, 2, 3)]
    trace = make_trace((), host, [span(0, 0, 20, thread=3)], names)
    assert listed(mark_ranges(trace, "load") or {})["host_events"] == [False, True, False]


def test_iterations_have_what_begins_in_them_and_what_launched_it() -> None:
    loop = make_loop([10e-6, 10e-6, 10e-6])  # 10 ns each, and one more of 1 ms
    starts = loop.table["start_ns"].to_list()
    assert starts == [0, 10, 20, 30]
    events = [event(0, 1 + 10 * k, 9 + 10 * k, correlation=k) for k in range(4)]
    events.append(event(0, 15, 16, correlation=9, stream=8))
    events[1] |= {"start_ns": 10}
    host = [launch(k, 2 + 4 * k, 3 + 4 * k) for k in range(4)] + [launch(9, 0, 1)]
    inner = [span(1, 4, 5), span(2, 6, 8), span(3, 0, 2), span(4, 11, 12)]
    trace = make_trace(events, host, inner)
    found = listed(mark_iterations(trace, loop, 1, 2) or {})
    assert [
        row for row, kept in zip(trace.device_events["correlation"], found["device_events"], strict=True) if kept
    ] == [1, 9]
    calls = [row for row, kept in zip(trace.host_events["correlation"], found["host_events"], strict=True) if kept]
    assert calls == [9, 1]  # the second launches at 6, the third at 10; 9 launched early what runs in it
    ranges = trace.annotations.filter(pl.Series(found["annotations"], dtype=pl.Boolean))["name_id"].to_list()
    assert ranges == [3, 2]  # 3 is around an early launch
    assert mark_iterations(trace, loop, 4, None) is None


SPANS = st.lists(st.tuples(st.integers(1, 2), TIME, st.none() | st.integers(0, 9)), max_size=8)


@given(SPANS, st.lists(st.tuples(st.none() | THREADS, TIME, st.integers(0, 9)), max_size=8))
def test_rows_lie_in_spans_or_overlap_them(spans: Any, rows: Any) -> None:
    ranges = [{"process": 1, "thread": t, "start_ns": s, "end_ns": None if n is None else s + n} for t, s, n in spans]
    asked = [{"process": 1, "thread": t, "start_ns": s, "end_ns": s + n} for t, s, n in rows]
    schema = {"process": pl.Int64, "thread": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    merged = merge_spans(pl.DataFrame(ranges, schema))
    known = [dict(each) | {"end_ns": 99 if each["end_ns"] is None else each["end_ns"]} for each in ranges]
    for what, find in ((lie_in, inside), (overlap, None)):
        found = what(pl.DataFrame(asked, schema), merged).tolist()
        for row, got in zip(asked, found, strict=True):
            own = [each for each in known if each["thread"] == row["thread"]]
            start, end = row["start_ns"], row["end_ns"]
            covered = {time for each in own for time in range(each["start_ns"], each["end_ns"])}
            meets = any(time in covered for time in range(start, max(end, start + 1)))
            assert got == (meets if find is None else inside(start, end, own))


def test_names_of_ranges_that_count_are_one() -> None:
    trace = make_trace(annotations=[span(k, k, k + 1) for k in (0, 1, 2, 0)], names=("Step#1", "Step#22", "other"))
    assert list_range_names(trace).rows() == [("Step#*", 3), ("other", 1)]


@pytest.mark.parametrize("name", ["step[train]#7", "a*"])
def test_a_name_with_wildcards_in_it_is_itself(name: str) -> None:
    trace = make_trace(annotations=[span(0, 0, 1)], names=(name,))
    assert mark_ranges(trace, name) is not None
