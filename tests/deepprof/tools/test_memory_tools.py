"""The tools on memory, on traces made by hand."""

from __future__ import annotations

import polars as pl
import pytest

from deepprof.tools.builtin.leaks import Leaks
from deepprof.tools.builtin.memory import Memory
from deepprof.tools.builtin.out_of_memory import OutOfMemory
from deepprof.tools.tool import Tool
from deepprof.tools.tool_run import run
from tests.deepprof.diagnosis.test_memory_rules import MIB, failed_trace, split_trace
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


def test_memory_without_iterations() -> None:
    report = run(Memory(points=3), split_trace(spread=False))
    timeline, peak = report["timeline"], report["peak"]
    assert isinstance(timeline, pl.DataFrame)
    assert isinstance(peak, pl.DataFrame)
    assert timeline["high_nbytes"].to_list() == [20 * MIB, 30 * MIB, 50 * MIB]
    assert timeline["reserved_nbytes"].to_list() == [100 * MIB] * 3
    assert peak.select("category", "nbytes", "share_ratio").rows() == [("unknown", 50 * MIB, 1.0)]
    assert report["summary"] == "rank 0, device 0: 50.0 MiB at the peak"


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (Memory(), "no memory event was recorded"),
        (Leaks(), "no line leaves memory in nearly all iterations"),
        (OutOfMemory(), "no allocation failed"),
    ],
)
def test_a_trace_without_memory_events(tool: Tool, said: str) -> None:
    assert run(tool, make_trace())["summary"] == said
