"""The tools on memory, on traces made by hand."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.analysis import analyze
from deepprof.tools.builtin.leaks import Leaks
from deepprof.tools.builtin.memory import Memory
from deepprof.tools.builtin.out_of_memory import OutOfMemory
from deepprof.tools.tool import Tool
from deepprof.tools.tool_run import run
from tests.collectors.test_torch_snapshot import read
from tests.collectors.torch_snapshots import SEGMENT_NBYTES, SmallAllocator, make_snapshot
from tests.deepprof.diagnosis.test_memory_rules import MIB, failed_trace, split_trace, with_rows
from tests.tables import make_trace


def test_a_failure_with_enough_in_all_is_fragmentation() -> None:
    report = run(OutOfMemory(), failed_trace(60 * MIB, 12 * MIB))
    assert report["summary"] == (
        "1 allocation failed; of the last one: 60.0 MiB were asked for and 62.0 MiB free in all, "
        "but in shorter pieces: memory is fragmented"
    )
    failures, in_use = report["failures"], report["in_use"]
    assert isinstance(failures, pl.DataFrame)
    assert isinstance(in_use, pl.DataFrame)
    row = failures.row(0, named=True)
    assert (row["asked_nbytes"], row["free_nbytes"], row["fragmented"]) == (60 * MIB, 12 * MIB, True)
    assert (row["allocated_nbytes"], row["reserved_nbytes"]) == (50 * MIB, 100 * MIB)
    assert row["largest_free_nbytes"] == 10 * MIB
    assert row["asked_in"] == "forward model.py:7"
    assert in_use["nbytes"].sum() == 50 * MIB


def test_a_failure_without_enough_is_none() -> None:
    report = run(OutOfMemory(), failed_trace(80 * MIB, 12 * MIB))
    assert (
        report["summary"] == "1 allocation failed; of the last one: 80.0 MiB were asked for, and 62.0 MiB free in all"
    )


@pytest.mark.parametrize(("asked", "left"), [(60, 70), (8, 2)], ids=["at the driver", "in a segment"])
def test_a_failure_with_enough_in_one_piece_is_no_fragmentation(asked: int, left: int) -> None:
    """Of a process with a limit, or where what is free belongs to another stream."""
    report = run(OutOfMemory(), failed_trace(asked * MIB, left * MIB))
    assert f" and {left + 50:.0f}" in str(report["summary"])
    assert "enough of it in one piece" in str(report["summary"])
    assert report["failures"]["fragmented"].to_list() == [False]  # type: ignore[index, union-attr]


def test_of_many_failures_the_last_ones_are_examined() -> None:
    trace = failed_trace(80 * MIB, 12 * MIB)
    many = pl.concat([trace.failed_allocations] * 150)
    report = run(OutOfMemory(), with_rows(trace, failed_allocations=many))
    assert str(report["summary"]).startswith("150 allocations failed; of the last one: 80.0 MiB")
    assert report["left_out_failures"] == 50
    assert report["failures"].height == 100  # type: ignore[union-attr]


def test_failures_on_two_devices() -> None:
    """Each has its owners in the table, and the last one in time is told, whatever its device."""
    trace = failed_trace(60 * MIB, 12 * MIB)
    tables = {name: getattr(trace, name) for name in ("memory_events", "segments", "failed_allocations")}
    earlier = trace.failed_allocations.with_columns(pl.col("time_ns") - 1, nbytes=pl.lit(80 * MIB, pl.Int64))
    other = {**tables, "failed_allocations": earlier}
    both = {
        name: pl.concat([rows, other[name].with_columns(device=pl.lit(1, pl.Int32))]) for name, rows in tables.items()
    }
    sorted_ = {name: rows.sort("time_ns", maintain_order=True) for name, rows in both.items()}
    report = run(OutOfMemory(rows=1), with_rows(trace, **sorted_))
    assert "2 allocations failed; of the last one: 60.0 MiB" in str(report["summary"])
    assert report["in_use"]["device"].to_list() == [0, 1]  # type: ignore[index, union-attr]


def test_memory_without_iterations() -> None:
    report = run(Memory(points=3), split_trace(spread=False))
    timeline, peak = report["timeline"], report["peak"]
    assert isinstance(timeline, pl.DataFrame)
    assert isinstance(peak, pl.DataFrame)
    assert timeline["high_nbytes"].to_list() == [20 * MIB, 30 * MIB, 50 * MIB]
    assert timeline["reserved_nbytes"].to_list() == [100 * MIB] * 3
    assert peak.select("category", "nbytes", "share_ratio").rows() == [("unknown", 50 * MIB, 1.0)]
    assert report["summary"] == "rank 0, device 0: 50.0 MiB at the peak"
    trace = split_trace(spread=False)
    trace = replace(trace, memory_events=trace.memory_events.with_columns(allocated_nbytes=pl.lit(None, pl.UInt64)))
    said = "rank 0, device 0: 50.0 MiB at the peak above the least in the recording, which has no totals"
    assert run(Memory(points=3), trace)["summary"] == said


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (Memory(), "no memory event was recorded"),
        (Leaks(), "no iteration was found, so that nothing is known to be left by each"),
        (OutOfMemory(), "no allocation failed"),
    ],
)
def test_a_trace_without_memory_events(tool: Tool, said: str) -> None:
    assert run(tool, make_trace())["summary"] == said


def test_the_post_mortem_of_a_snapshot(tmp_path: Path) -> None:
    allocator = SmallAllocator(recording=True)
    places = [allocator.alloc(1_000_000, stack=4) for _ in range(10)]  # two in every segment of 2 MiB
    for place in places[::2]:
        allocator.free(place)
    allocator.fail(3_000_000, 100)
    report = run(OutOfMemory(), read(tmp_path / "snapshot.pickle", make_snapshot(allocator)))
    failures, in_use = report["failures"], report["in_use"]
    assert isinstance(failures, pl.DataFrame)
    assert isinstance(in_use, pl.DataFrame)
    row = failures.row(0, named=True)
    assert (row["asked_nbytes"], row["free_nbytes"], row["fragmented"]) == (3_000_000, 100, True)
    assert (row["allocated_nbytes"], row["reserved_nbytes"]) == (5_000_000, 5 * SEGMENT_NBYTES)
    assert 1_000_000 <= row["largest_free_nbytes"] < SEGMENT_NBYTES
    assert row["asked_in"] == "step_1 job/train_1.py:11"
    assert in_use.select("function", "line", "blocks", "nbytes").rows() == [("step_4", 14, 5, 5_000_000)]
    rules = {each.rule for each in analyze(read(tmp_path / "again.pickle", make_snapshot(allocator))).findings}
    assert "fragmentation" in rules


def test_a_failure_is_the_headline_of_a_snapshot_and_names_its_line_without_details(tmp_path: Path) -> None:
    allocator = SmallAllocator(recording=True)
    allocator.alloc(1_000_000, stack=4)
    allocator.fail(3_000_000, 100)
    for details in (False, True):
        trace = read(tmp_path / f"snapshot-{details}.pickle", make_snapshot(allocator), details=details)
        headline = analyze(trace).headline
        assert headline is not None
        assert (headline.rule, headline.severity) == ("out-of-memory", "critical")
        assert headline.location == {"function": "step_1", "file": "/job/train_1.py", "line": 11}
        assert ("from step_4 job/train_1.py:14" in headline.summary) == details
