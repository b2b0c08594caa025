"""Drift: from where to where, what carries it, and when nothing is stated."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepprof
from deepprof.diagnosis.rules.drift import drift
from deepprof.metrics.series import changes
from deepprof.metrics.series.changes import INSTALL, can_find_changes
from deepprof.simulation import simulate, write
from tests.loops import MS, make_loop
from tests.tables import make_trace

needs_library = pytest.mark.skipif(not can_find_changes(), reason="needs ruptures: pip install 'deepprof[changes]'")
LATER = [100.0] * 14 + [140.0] * 16


def step(before: float, after: float) -> list[float]:
    return [before] * 14 + [after] * 16


@needs_library
def test_the_same_kernels_become_slower() -> None:
    (found,) = drift(make_loop(LATER), make_trace())
    assert (found.rule, found.severity, found.title) == ("drift", "warning", "The same kernels become slower")
    assert found.headroom_ns_per_iteration == round(40 * MS * 16 / 30)  # the others do not lose it
    assert (found.evidence["kind"], found.evidence["at_iteration"]) == ("shift", 14)
    assert (found.evidence["early_median_ns"], found.evidence["late_median_ns"]) == (100 * MS, 140 * MS)
    assert found.iterations == (14, 29)
    assert "from iteration 14 on" in found.summary
    assert "as many kernels as before" in found.summary


@pytest.mark.parametrize(
    ("columns", "carrier"),
    [
        ({"idle_input_ns": step(2, 42)}, "input"),
        ({"exposed_communication_ns": step(2, 40)}, "communication"),
        ({"exposed_htod_ns": step(0, 20), "exposed_copy_ns": step(0, 10)}, "copies"),
        ({"idle_allocator_ns": step(0, 39)}, "allocator"),
        ({"idle_launch_ns": step(0, 20), "idle_sync_ns": step(0, 15)}, "host"),
        ({"idle_unknown_ns": step(0, 40)}, "unknown"),
        ({"kernels": step(140, 110)}, "unknown"),  # not the same work
    ],
)
def test_what_carries_it(columns: dict[str, list[float]], carrier: str) -> None:
    (found,) = drift(make_loop(LATER, **columns), make_trace())
    assert found.evidence["carrier"] == carrier


def test_twice_as_slow_is_critical() -> None:
    (found,) = drift(make_loop(step(100, 200)), make_trace())
    assert found.severity == "critical"


def test_kernels_that_become_more_are_growth() -> None:
    times = [100.0 + 4 * i for i in range(20)]
    assert len(list(drift(make_loop(times), make_trace()))) == 1
    assert list(drift(make_loop(times, kernels=[100.0 + 4 * i for i in range(20)]), make_trace())) == []


@pytest.mark.parametrize("times", [[], [5.0], [100.0] * 6 + [150.0] * 5, [100.0] * 30, step(140, 100), step(100, 106)])
def test_silence(times: list[float]) -> None:
    assert list(drift(make_loop(times), make_trace())) == []


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda _: None)
    (found,) = drift(make_loop([100.0] * 19 + [140.0] * 11), make_trace())
    assert found.evidence["at_iteration"] is None
    assert INSTALL in found.advice


@pytest.mark.widens(3)
@needs_library
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scenario", ["drift", "healthy", "starvation", "graph-growth"])
def test_simulated_jobs(tmp_path: Path, scenario: str, seed: int) -> None:
    job = simulate(scenario, iterations=30, seed=seed)
    write(job, tmp_path / "job.json")
    analysis = deepprof.analyze(deepprof.read(tmp_path / "job.json"))
    found = [f for loop in analysis.loops for f in drift(loop, analysis.traces[0])]
    assert [f.evidence["carrier"] for f in found] == (["compute"] if scenario == "drift" else [])
