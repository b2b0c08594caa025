"""The paper's Table III on traces small enough to compute it by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from deepprof.collectors.trace import Trace
from deepprof.metrics.iteration import ITERATIONS
from deepprof.metrics.iteration_table import (
    measure_coverage,
    measure_iterations,
    measure_steadiness,
    summarize,
    warmup_length,
)
from deepprof.metrics.sequence import main_sequence
from deepprof.mining.iterations import Iterations
from tests.tables import Row, copy, event, make_trace


def iterations(*bounds: tuple[int, int], complete: bool = True) -> Iterations:
    first, end = (np.array([b[i] for b in bounds], np.int64) for i in (0, 1))
    return Iterations(first, end, end - first, np.zeros(len(bounds), np.int64), np.full(len(bounds), complete))


def measured(trace: Trace, found: Iterations) -> pl.DataFrame:
    return measure_iterations(trace, main_sequence(trace, 0, 7), found)


def three_iterations() -> Trace:
    """Two kernels of 10 each per iteration; intervals of 20 (a copy fills 5) and 40 (a copy fills 30)."""
    kernels = [event(1, t, t + 10) for t in (0, 10, 40, 50, 100, 110)]
    return make_trace([*kernels, copy(25, 30, 1000), copy(60, 90, 3000)])


def test_table_three_is_the_papers() -> None:
    table = measured(three_iterations(), iterations((0, 2), (2, 4), (4, 6)))
    metrics = summarize(table)
    assert table["interval_ns"].to_list() == [20, 40, None]
    assert metrics.avg_interval_ns == 30
    assert metrics.max_interval_ns == 40
    assert metrics.avg_overlap_ratio == pytest.approx((5 / 20 + 30 / 40) / 2)
    assert metrics.avg_operation_ns == 20
    assert metrics.avg_size_bytes == 2000
    assert metrics.iteration_ns is not None
    assert metrics.iteration_ns.median == 50


def test_the_per_iteration_table_adds_up() -> None:
    table = measured(three_iterations(), iterations((0, 2), (2, 4), (4, 6)))
    assert table.schema == ITERATIONS
    assert table["iteration_ns"].to_list() == [40, 60, None]
    assert table["busy_ns"].to_list() == [25, 50, 20]
    assert (table["busy_ns"] + table["idle_ns"]).to_list() == [40, 60, 20]
    assert table["events"].to_list() == [3, 3, 2]
    assert table["htod_bytes"].to_list() == [1000, 3000, 0]


@pytest.mark.parametrize(("last", "mean"), [(100, 100), (104, 101), (160, 100), (60, 100)])
def test_a_last_iteration_counts_only_if_it_takes_as_long_as_the_others(last: int, mean: int) -> None:
    kernels = [event(1, 200 * i, 200 * i + (last if i == 3 else 100)) for i in range(4)]
    table = measured(make_trace(kernels), iterations((0, 1), (1, 2), (2, 3), (3, 4)))
    assert summarize(table).avg_operation_ns == mean


def test_the_coverage_of_iterations_counts_copies_outside_of_them() -> None:
    trace = make_trace([copy(0, 100, 1000), *(event(1, t, t + 50) for t in (200, 300, 400)), event(2, 500, 550)])
    table = measured(trace, iterations((0, 1), (1, 2), (2, 3)))
    assert measure_coverage(trace, 0, table) == pytest.approx(150 / 300)
    assert measure_coverage(trace, 0, table, ("kernel",)) == pytest.approx(150 / 200)
    assert measure_steadiness(table) == 1.0


def test_overlapping_kernels_and_copies_count_once() -> None:
    rows = [event(1, 0, 30), event(1, 10, 20), copy(5, 25, 10), event(1, 40, 50), copy(42, 60, 10, stream=20)]
    table = measured(make_trace(rows), iterations((0, 2), (2, 3)))
    assert table["operation_ns"].to_list() == [30, 10]
    assert table["busy_ns"].to_list() == [30, 10]


def test_another_iteration_is_no_neighbour_across_foreign_kernels() -> None:
    rows = [event(1, t, t + 5) for t in (0, 10, 20, 30)]
    table = measured(make_trace(rows), iterations((0, 1), (3, 4)))
    assert table["interval_ns"].to_list() == [None, None]


def test_copies_back_and_copies_on_other_devices_do_not_overlap_the_interval() -> None:
    rows = [event(1, 0, 10), copy(10, 20, 9, kind="DtoH"), copy(10, 20, 9, device=1), event(1, 20, 30)]
    assert measured(make_trace(rows), iterations((0, 1), (1, 2)))["overlap_ratio"].to_list() == [0.0, None]


@pytest.mark.parametrize("bounds", [[], [(0, 1)]])
def test_none_and_one_iteration_have_no_interval(bounds: list[tuple[int, int]]) -> None:
    table = measured(make_trace([event(1, 3, 7)]), iterations(*bounds))
    metrics = summarize(table)
    assert table.height == len(bounds)
    assert metrics.avg_interval_ns is metrics.max_interval_ns is metrics.avg_overlap_ratio is None
    assert metrics.avg_operation_ns == (4 if bounds else None)


def durations(*lengths: int) -> pl.DataFrame:
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    rows: list[Row] = [event(1, int(a), int(a) + n) for a, n in zip(starts, lengths, strict=True)]
    return measured(make_trace(rows), iterations(*[(i, i + 1) for i in range(len(lengths))]))


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((100, 100, 100, 100), 0),
        ((500, 100, 100, 100), 1),
        ((500, 300, 100, 100, 100, 100), 2),
        ((100, 500, 100, 100), 0),  # slow later on is an outlier, not warm-up
        ((500, 400, 300, 100), 2),  # never more than half
        ((500, 100), 0),  # two prove nothing
        ((100, 120, 140, 160, 180, 200), 0),  # growth is no warm-up
        (tuple(range(2_000, 200, -20)), 0),  # nor are the first steps of a problem that shrinks
        ((400, 300, *(100,) * 20), 2),  # what the rest is level after is
    ],
)
def test_warmup_is_the_slow_beginning(lengths: tuple[int, ...], expected: int) -> None:
    table = durations(*lengths)
    assert warmup_length(table) == expected
    assert summarize(table).warmup_excluded == expected


@pytest.mark.parametrize("count", [3, 4, 5])
def test_equal_iterations_are_no_warmup_though_the_last_has_no_interval(count: int) -> None:
    kernels = [event(1, 20 * k, 20 * k + 10) for k in range(count)]  # half of every iteration is its interval
    table = measured(make_trace(kernels), iterations(*((k, k + 1) for k in range(count))))
    assert warmup_length(table) == 0


@pytest.mark.parametrize("count", [1, 5, 6, 30])
def test_the_interval_of_the_median_takes_five_iteration_times(count: int) -> None:
    lengths = [100 + 7 * (i % 5) for i in range(count)]
    found = summarize(durations(*lengths)).iteration_ns
    times = lengths[:-1]  # the last one is not followed
    if len(times) < 5:
        assert found is None or (found.low, found.high) == (None, None)
        return
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert min(times) <= found.low <= found.median <= found.high <= max(times)


def test_an_incomplete_iteration_is_in_no_figure() -> None:
    rows = [event(1, 0, 1000), event(1, 1000, 1010), event(1, 1010, 1020)]
    found = iterations((0, 1), (1, 2), (2, 3))
    cut = Iterations(found.first, found.end, found.matched, found.edits, np.array([False, True, True]))
    assert summarize(measured(make_trace(rows), cut)).avg_operation_ns == 10
