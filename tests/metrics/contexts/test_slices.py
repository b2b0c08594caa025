"""Slices of the host, against a stack that is pushed and popped."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.metrics.contexts.slices import HostSlices, find_open, read_slices
from tests.chance import examples
from tests.tables import Row, make_trace, span

ROWS = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 20), st.integers(0, 12), st.booleans()), max_size=24)


def op(thread: int, start: int, end: int, name: int = 0, **more: object) -> Row:
    fixed: Row = {"process": 1, "thread": thread, "category": "op"}
    return fixed | {"start_ns": start, "end_ns": end, "name_id": name} | more


def read(rows: list[tuple[int, int, int, bool]]) -> HostSlices:
    events = [op(thread, start, start + length) for thread, start, length, is_range in rows if not is_range]
    ranges = [span(0, start, start + length, thread=thread) for thread, start, length, is_range in rows if is_range]
    return read_slices(make_trace(host=events, annotations=ranges))


def stacked(slices: HostSlices) -> tuple[list[int], list[int]]:
    """Return parents and ends as a stack gives them, slice after slice."""
    ends = (slices.rows["end_ns"]).to_list()
    parents, stack = [], list[int]()
    for row, start in enumerate(slices.start.tolist()):
        while stack and (slices.track[stack[-1]] != slices.track[row] or ends[stack[-1]] <= start):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        ends[row] = min([ends[row], *(ends[around] for around in stack[-1:])])
        stack += [row] if ends[row] > start else []
    return parents, ends


@settings(max_examples=examples(400))
@given(ROWS)
def test_slices_lie_in_what_is_open_and_end_with_it(rows: list[tuple[int, int, int, bool]]) -> None:
    slices = read(rows)
    parents, ends = stacked(slices)
    assert slices.parent.tolist() == parents
    assert slices.end.tolist() == ends


@settings(max_examples=examples(200))
@given(ROWS, st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 35)), max_size=8))
def test_the_innermost_open_slice_is_found(
    rows: list[tuple[int, int, int, bool]], moments: list[tuple[int, int]]
) -> None:
    slices = read(rows)
    asked = pl.DataFrame(
        {
            "process": [1] * len(moments),
            "thread": [thread for thread, _ in moments],
            "time_ns": [at for _, at in moments],
        },
        schema={"process": pl.Int64, "thread": pl.Int64, "time_ns": pl.Int64},
    )
    thread = slices.rows["thread"].to_numpy()
    open_ones = [
        np.flatnonzero((thread == wanted) & (slices.start <= at) & (slices.end > at)).tolist() for wanted, at in moments
    ]
    assert find_open(slices, asked).tolist() == [max(rows, default=-1) for rows in open_ones]


def test_of_slices_that_begin_and_end_together_the_range_is_around_the_function_and_that_around_the_call() -> None:
    kinds = ("runtime", "op", "python")
    slices = read_slices(make_trace(host=[op(1, 0, 9, category=kind) for kind in kinds], annotations=[span(0, 0, 9)]))
    assert slices.rows["kind"].to_list() == ["range", "python", "operator", "runtime"]
    assert slices.parent.tolist() == [-1, 0, 1, 2]


def test_a_long_chain_of_crossings_ends() -> None:
    rows = [op(1, at, 1000 + at) for at in range(200)]
    slices = read_slices(make_trace(host=rows))
    assert slices.end.max() <= 1199
    assert (slices.parent < np.arange(200)).all()


def test_threads_are_numbered_by_their_first_begin() -> None:
    slices = read_slices(make_trace(host=[op(5, 3, 4), op(9, 1, 2), op(7, 8, 9)]))
    assert dict(zip(slices.rows["thread"].to_list(), slices.track.tolist(), strict=True)) == {9: 0, 5: 1, 7: 2}
    assert slices.threads == 3


def test_a_thread_that_is_not_recorded_is_one() -> None:
    slices = read_slices(make_trace(host=[op(1, 0, 9) | {"thread": None, "process": None}, op(1, 2, 3)]))
    assert slices.threads == 2
    assert slices.parent.tolist() == [-1, -1]


def test_nothing_was_open() -> None:
    slices = read_slices(make_trace())
    assert (slices.threads, len(slices.parent)) == (0, 0)
    moments = pl.DataFrame({"process": [1], "thread": [1], "time_ns": [1]})
    assert find_open(slices, moments).tolist() == [-1]
