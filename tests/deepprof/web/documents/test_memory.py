"""Copies of iterations, and memory in use in sections of equal length."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import DEVICES, MEMORY_EVENTS, Accounting, Trace
from deepprof.metrics.memory.floors import HOST_MEMORY
from deepprof.web.documents import memory as module
from deepprof.web.documents.memory import MOST_POINTS, write_memory
from tests.deepprof.builders import build_analysis
from tests.deepprof.render.reports import read_simulated
from tests.deepprof.web.documents.columns import again
from tests.tables import Row, make_trace, table

Use = list[tuple[int, int | None, int]]  # time, in use in all, size


def trace_of(use: dict[int, Use], format: str = "kineto") -> Trace:
    """Return a trace with the memory events of every device."""
    rows: list[Row] = [
        {"time_ns": time, "process": 1, "thread": 1, "device": device, "nbytes": size, "allocated_nbytes": total}
        for device, events in use.items()
        for time, total, size in events
    ]
    devices = table([{"device": 0, "name": "A100", "memory_nbytes": 1_000}], DEVICES)
    count = Accounting(len(rows), len(rows))
    return replace(
        make_trace(), memory_events=table(rows, MEMORY_EVENTS), devices=devices, accounting=count, format=format
    )


def test_memory_in_use_of_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POINTS", 3)
    on_device: Use = [(100, 10, 10), (101, 50, 40), (102, 20, -30), (108, 60, 40)]
    analysis = build_analysis(traces=(trace_of({0: on_device, HOST_MEMORY: [(100, 5, 5)]}),), loops=())
    document = again(write_memory(analysis))
    assert document.problem is None
    assert [(each.title, each.device, each.limit_nbytes) for each in document.series] == [
        ("rank 0, host", -1, None),
        ("rank 0, device 0", 0, 1_000),
    ]
    host, device = document.series
    assert (host.time_ns, host.low_nbytes, host.high_nbytes) == ([0], [5], [5])
    assert device.time_ns == [0, 3, 6]
    assert device.low_nbytes == [10, 20, 20]
    assert device.high_nbytes == [50, 20, 60]


def test_sizes_without_totals_count_from_the_least_in_use() -> None:
    sizes: Use = [(0, None, -10), (1, None, 30), (2, None, -20)]
    (series,) = write_memory(build_analysis(traces=(trace_of({0: sizes}),), loops=())).series
    assert (series.low_nbytes, series.high_nbytes) == ([0, 0, 10], [0, 30, 30])


def test_totals_that_no_device_has_are_cut() -> None:
    (series,) = write_memory(build_analysis(traces=(trace_of({0: [(0, 2**64 - 1, 1)]}),), loops=())).series
    assert series.high_nbytes == [2**63 - 1]


def test_copies_are_those_of_the_report() -> None:
    analysis = deepprof.analyze(read_simulated("healthy", iterations=8))
    document = write_memory(analysis)
    assert [each.time_ns for each in document.copies] == analysis.copies["time_ns"].to_list()
    assert {each.direction for each in document.copies} <= {"from host", "to host", "on device"}
    assert all(each.loop == 0 for each in document.copies)


@pytest.mark.parametrize(
    ("format", "said"),
    [
        ("kineto", "No allocation was recorded; torch.profiler records them with profile_memory=True."),
        ("rocprof-csv", "No allocation was recorded; rocprofv3 records them with --memory-allocation-trace."),
        ("xplane", "No allocation was recorded."),
        (
            "nsys",
            "No allocation was recorded; none are read from nsys files; torch.profiler records them with "
            "profile_memory=True.",
        ),
    ],
)
def test_without_allocations_it_is_said_how_to_record_them(format: str, said: str) -> None:
    document = write_memory(build_analysis(traces=(trace_of({}, format),), loops=()))
    assert (document.series, document.problem) == ([], said)


def test_where_other_machines_examined_the_ranks_there_is_no_memory() -> None:
    document = write_memory(build_analysis(traces=()))
    assert document.problem is not None
    assert not document.series
    assert not document.copies


def test_a_long_series_is_bounded() -> None:
    use: Use = [(at, at % 7, 1) for at in range(3 * MOST_POINTS)]
    (series,) = write_memory(build_analysis(traces=(trace_of({0: use}),), loops=())).series
    assert len(series.time_ns) == MOST_POINTS
    assert pl.Series(series.high_nbytes).max() == 6
