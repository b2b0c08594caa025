"""Time cut into segments: the innermost slice of a thread, the event that a device runs or waits for."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.annotation.device_segments import _find_running, find_open, find_window
from deepprof.metrics.annotation.host_segments import cut_thread
from deepprof.metrics.contexts.slices import read_slices
from tests.metrics.contexts.test_slices import op
from tests.tables import make_trace

Spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12)


@given(Spans)
def test_each_time_belongs_to_the_innermost_open_slice(drawn: list[tuple[int, int]]) -> None:
    slices = read_slices(make_trace([], [op(1, start, start + length, 0) for start, length in drawn]))
    cut = cut_thread(slices, 0)
    assert (cut.start < cut.end).all()
    assert (cut.end[:-1] <= cut.start[1:]).all()
    owner = {t: int(r) for s, e, r in zip(cut.start, cut.end, cut.row, strict=True) for t in range(s, e)}
    for time in range(45):
        around = [r for r in range(len(slices.start)) if slices.start[r] <= time < slices.end[r]]
        assert owner.get(time) == (max(around) if around else None)  # parents are before their children


@given(Spans, st.lists(st.integers(-1, 45), max_size=8))
def test_the_last_begun_event_runs_or_else_the_longest(drawn: list[tuple[int, int]], times: list[int]) -> None:
    spans = sorted((start, start + length) for start, length in drawn)
    start, end = (np.array([each[k] for each in spans], np.int64) for k in (0, 1))
    for time, found in zip(times, find_open(start, end, np.array(times, np.int64)).tolist(), strict=True):
        begun = [row for row, (first, _) in enumerate(spans) if first <= time]
        if not begun or max(spans[row][1] for row in begun) <= time:
            assert found == -1
        else:
            assert spans[found][0] <= time < spans[found][1]
            assert found == begun[-1] or spans[begun[-1]][1] <= time


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 3)), max_size=12))
def test_the_main_stream_runs_before_those_with_most_events(drawn: list[tuple[int, int, int]]) -> None:
    rows = sorted((start, start + length, stream) for start, length, stream in drawn)
    work = pl.DataFrame(rows, dict.fromkeys(("start_ns", "end_ns", "stream"), pl.Int64), orient="row")
    many = [stream for *_, stream in rows]
    for time, found in enumerate(_find_running(work, 2, np.arange(45)).tolist()):
        streams = {stream for start, end, stream in rows if start <= time < end}
        if not streams:
            assert found == -1
            continue
        first = min(streams, key=lambda each: (each != 2, -many.count(each), each))
        start, end, stream = rows[found]
        assert stream == first
        assert start <= time < end


def test_times_lie_in_windows_that_do_not_overlap() -> None:
    begin, end = np.array([0, 10, 30]), np.array([10, 20, 31])
    assert find_window(begin, end, np.array([-1, 0, 9, 10, 20, 25, 30, 31])).tolist() == [-1, 0, 0, 1, -1, -1, 2, -1]
    nothing = np.array([], np.int64)
    assert find_window(nothing, nothing, np.array([3])).tolist() == [-1]
