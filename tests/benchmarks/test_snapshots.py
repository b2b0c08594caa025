"""The histories that are measured: as long as asked for, in the form of torch's, and balanced."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import deepprof
from benchmarks.readers import Reading
from benchmarks.snapshots import DEPTH, OWN, SHARED, WITHOUT, list_cells, make_snapshot


@pytest.mark.parametrize("frames", [WITHOUT, OWN, SHARED])
def test_a_history_is_one_that_an_allocator_writes(frames: str, tmp_path: Path) -> None:
    snapshot = make_snapshot(3_000, frames)
    (history,) = snapshot["device_traces"]
    assert len(history) - 3_000 in {0, 1}
    lists, depth = {id(entry["frames"]) for entry in history}, 0 if frames == WITHOUT else DEPTH
    assert {len(entry["frames"]) for entry in history} == {depth}
    assert (len(lists) == len(history)) == (frames == OWN)
    path = tmp_path / "snapshot"
    path.write_bytes(pickle.dumps(snapshot))
    trace = deepprof.read(path, details=True)
    path.write_text(json.dumps(snapshot))
    assert trace.accounting == deepprof.read(path).accounting
    assert trace.accounting.flagged == {}
    assert trace.memory_events["allocated_nbytes"][-1] == trace.memory_events["nbytes"].sum()
    assert trace.stacks.height == (0 if frames == WITHOUT else trace.allocations["stack_id"].n_unique())


def test_cells_of_a_reader() -> None:
    assert list_cells("a", Reading(9, 2.0, 100.0, 4.0), 1_000) == ["a", "500", "4.00", "2.00", "100"]
    assert list_cells("a", "not installed", 1_000) == ["a", "not installed"]
