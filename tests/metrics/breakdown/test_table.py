"""The parts of iterations: next to the per-iteration table, and what the host was asked to do meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.trace import MEMORY_EVENTS, Accounting, Trace
from deepprof.metrics.breakdown.parts import BUSY_PARTS, COUNTS, PART_NAMES, PARTS
from deepprof.metrics.breakdown.parts_table import with_parts
from deepprof.metrics.breakdown.timeline import lay_out
from deepprof.metrics.host import read_host
from deepprof.metrics.iteration_table import measure_iterations, summarize
from deepprof.metrics.loop import Loop
from deepprof.metrics.sequence import main_sequence
from deepprof.mining import Iterations
from tests.tables import Row, copy, event, launch, make_trace, table

NAMES = ["-", "kernel", "cudaLaunchKernel", "cudaStreamSynchronize", "cudaMalloc", "cuModuleLoadData"]
LAUNCH, SYNC, MALLOC, LOAD = 2, 3, 4, 5


def measured(trace: Trace, firsts: list[int], ends: list[int]) -> Loop:
    """Return the loop whose iterations are these kernels of stream 7."""
    first, end = np.array(firsts, np.int64), np.array(ends, np.int64)
    zeros = np.zeros(len(first), np.int64)
    rows = measure_iterations(trace, main_sequence(trace, 0, 7), Iterations(first, end, end - first, zeros, zeros == 0))
    loop = Loop(
        rank=0,
        device=0,
        stream=7,
        period=1,
        confidence=1.0,
        evidence="by hand",
        boundary_source="mined",
        boundary_confidence=1.0,
        agreement=None,
        iterations=rows,
        metrics=summarize(rows),
    )
    return with_parts(loop, trace, lay_out(trace, 0, read_host(trace).launches))


def two(host: Sequence[Row] = ()) -> Trace:
    """Return a trace of kernels at 100 to 160, 200 to 260 and 300 to 360, launched 5 ns before."""
    kernels = [event(1, at, at + 60, correlation=at) for at in (100, 200, 300)]
    return make_trace(kernels, [*(launch(at, at - 5, at - 1, LAUNCH) for at in (100, 200, 300)), *host], names=NAMES)


def with_memory(trace: Trace, rows: list[Row]) -> Trace:
    made = table(rows, MEMORY_EVENTS)
    count = trace.accounting.kept + made.height
    return replace(trace, memory_events=made, accounting=Accounting(count, count))


def used(time: int, nbytes: int | None, device: int = 0) -> Row:
    return {"time_ns": time, "device": device, "allocated_nbytes": nbytes}


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(6, 8)), min_size=1, max_size=12),
    st.lists(st.integers(0, 60), max_size=4),
    st.integers(1, 3),
)
def test_the_parts_of_an_iteration_add_up_to_its_time(
    kernels: list[tuple[int, int, int]], copies: list[int], period: int
) -> None:
    at, rows = 0, []
    for gap, length, stream in kernels:
        at += gap
        rows.append(event(1, at, at + length, stream=stream))
    rows += [copy(start, start + 7, 1, stream=9) for start in copies]
    trace = make_trace(rows, names=NAMES)
    count = len([k for k in kernels if k[2] == 7]) // period
    found = measured(trace, [period * i for i in range(count)], [period * (i + 1) for i in range(count)]).table
    whole, busy = (found.select(pl.sum_horizontal(names)).to_series().to_list() for names in (PART_NAMES, BUSY_PARTS))
    assert whole == (found["busy_ns"] + found["idle_ns"]).to_list()
    assert busy == found["busy_ns"].to_list()
    assert [n if i is not None else None for n, i in zip(whole, found["iteration_ns"], strict=True)] == found[
        "iteration_ns"
    ].to_list()


def test_no_iterations_have_no_parts() -> None:
    found = measured(two(), [], []).parts
    assert found.schema == PARTS
    assert found.height == 0


def test_one_iteration_lasts_until_its_own_end() -> None:
    (row,) = measured(two(), [0], [1]).parts.rows(named=True)
    assert row["compute_ns"] == 60 == sum(row[name] for name in PART_NAMES)


def test_calls_count_in_the_iteration_in_which_they_begin() -> None:
    calls = [
        launch(1, 99, 101, SYNC),  # before the first iteration
        launch(2, 100, 150, SYNC),
        launch(3, 199, 199, MALLOC),
        launch(4, 200, 201, MALLOC),
        launch(5, 210, 230, LOAD),
        launch(6, 299, 320, SYNC),
    ]
    found = measured(two(calls), [0, 1, 2], [1, 2, 3]).parts
    assert found.select("index", *COUNTS).rows() == [(0, 1, 1, 1, 0), (1, 1, 1, 1, 1), (2, 0, 0, 0, 0)]
    assert found["waiting_ns"].to_list() == [50, 1, 20]


def test_a_trace_without_launch_records_counts_nothing() -> None:
    trace = make_trace([event(1, 100, 160), event(1, 200, 260)], [launch(1, 100, 150, SYNC)], names=NAMES)
    found = measured(trace, [0, 1], [1, 2]).parts
    assert found.select(*COUNTS, "waiting_ns").sum().row(0) == (0, 0, 0, 0, 0)
    assert found["idle_unknown_ns"].to_list() == [40, 0]


def test_memory_is_what_was_in_use_at_the_end() -> None:
    rows = [used(150, 7), used(200, 9), used(260, None), used(359, 11), used(900, 13), used(250, 99, device=-1)]
    trace = with_memory(two(), rows)
    assert measured(trace, [0, 1, 2], [1, 2, 3]).parts["memory_nbytes"].to_list() == [9, 9, 11]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([], [None]), ([used(500, 7)], [None]), ([used(1, 7, device=1)], [None]), ([used(1, 2**64 - 1)], [None])],
    ids=["none", "later", "of another device", "more than there is"],
)
def test_memory_is_null_where_it_is_not_known(rows: list[Row], expected: list[None]) -> None:
    assert measured(with_memory(two(), rows), [0], [1]).parts["memory_nbytes"].to_list() == expected
