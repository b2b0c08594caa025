"""Training programs with step markers: what the daemon settles is what the analysis of the same records gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.simulation import simulate, simulate_ranks, write, write_ranks
from tests.deepprof.analysis.test_breaks import recorded, windows
from tests.deepprof.live.service.daemons import Daemon, running
from tests.deepprof.live.service.sending import iterations_of, open_client, wait_settled
from tests.widening import slow_unless

SCENARIOS = ["healthy", "graph-growth", "accumulation", "recompilation", "memory-growth", "logging", "inference"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as found:
        yield found


def check(daemon: Daemon, job: str, traces: list[Trace]) -> None:
    """Send a job, and compare each view of what was settled with the analysis of every trace, on its own clock."""
    with open_client(daemon) as client:
        client.send(traces, job)
        wait_settled(client, job)
        analyses = [deepprof.analyze(trace) for trace in traces]
        found, file = client.iterations(job), pl.concat(map(iterations_of, analyses))
        order = ["rank", "device", "loop", "index"]
        assert found.sort(order).equals(file.sort(order))
        shown = {rank.rank: sum(device.iterations for device in rank.devices) for rank in client.ranks(job)}
        assert shown == dict(file.group_by("rank").len().iter_rows())
        again = deepprof.analyze(client.window(job))
        whole = deepprof.analyze(traces) if len(traces) > 1 else analyses[0]
        assert iterations_of(again).equals(iterations_of(whole))


@pytest.mark.parametrize("seed", [5, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scenario", slow_unless({"healthy", "accumulation", "inference"}.__contains__, SCENARIOS))
def test_of_a_training_program(scenario: str, seed: int, daemon: Daemon, tmp_path: Path) -> None:
    write(simulate(scenario, iterations=10, seed=seed, annotate=True), tmp_path / "job.json.gz")
    check(daemon, f"{scenario}-{seed}", [deepprof.read(tmp_path / "job.json.gz")])


def test_of_several_ranks(daemon: Daemon, tmp_path: Path) -> None:
    write_ranks(simulate_ranks("ranks-healthy", ranks=2, iterations=10, seed=5, annotate=True), tmp_path)
    check(daemon, "ranks", deepprof.read_job(tmp_path))


def test_of_a_recording_with_breaks(daemon: Daemon, tmp_path: Path) -> None:
    made = simulate("healthy", iterations=77, seed=5, annotate=True)
    write(made, tmp_path / "job.json.gz")
    whole = deepprof.read(tmp_path / "job.json.gz")
    check(daemon, "breaks", [recorded(whole, windows(made, whole))])
