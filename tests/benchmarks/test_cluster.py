"""The table of `benchmarks/cluster.py` comes out, on jobs whose ranks are what they are numbered as."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import deepprof
from benchmarks import cluster
from benchmarks.cluster import run, write_job
from deepprof.simulation import simulate_ranks


def test_copies_are_ranks_of_their_own(tmp_path: Path) -> None:
    write_job(tmp_path, simulate_ranks("straggler", ranks=2, iterations=4), 5)
    traces = deepprof.read_job(tmp_path)
    assert [(trace.rank, trace.world_size) for trace in traces] == [(rank, 5) for rank in range(5)]


@pytest.mark.parametrize("runs_commands", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_row_per_job(runs_commands: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands themselves, alone and over a cluster, are what `deepprof diagnose` is tested with."""
    if not runs_commands:
        monkeypatch.setattr(cluster, "take", lambda *_: cluster.Taken(2.0, 3.0, b"the report"))
    console = Console(file=io.StringIO(), width=120)
    run(console, quick=True)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert [line.split("│")[1].strip() for line in told.splitlines() if line.startswith("│")] == ["1", "8"]
