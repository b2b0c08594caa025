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


@pytest.mark.parametrize("ranks", [(2,), pytest.param((1, 8), marks=pytest.mark.slow)])
def test_a_row_per_job(ranks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RANKS", ranks)
    console = Console(file=io.StringIO(), width=120)
    run(console, quick=True)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert [line.split("│")[1].strip() for line in told.splitlines() if line.startswith("│")] == [
        str(each) for each in ranks
    ]
