"""Slow iterations: what is stated of them, and when nothing is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.diagnosis.rules.slow_iterations import slow_iterations
from deepprof.metrics.breakdown.host_states import read_states
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.simulation import simulate, write
from tests.loops import MS, make_loop
from tests.tables import launch, make_trace

AT = (7, 15, 29)
NO_LAUNCHES = pl.DataFrame(schema=dict.fromkeys(("launch_ns", "process", "thread", "kernels"), pl.Int64))


def slow(usual: float, much: float, at: tuple[int, ...] = AT, n: int = 30) -> list[float]:
    """Return `n` values, `much` at some of them."""
    return [much if i in at else usual for i in range(n)]


def test_waiting_for_some_batches() -> None:
    loop = make_loop(slow(100, 400), idle_input_ns=slow(1, 301))
    (found,) = slow_iterations(loop, make_trace())
    assert (found.rule, found.severity, found.title) == ("slow-iterations", "warning", "Some iterations wait for data")
    assert found.headroom_ns_per_iteration == 30 * MS
    assert found.evidence["slow_iterations"] == 3
    assert found.evidence["share_ratio"] == pytest.approx(900 / 3900, abs=1e-3)
    assert found.evidence["cause"] == "input"
    assert found.iterations == (7, 29)
    assert "7, 15, 29" in found.summary


@pytest.mark.parametrize(
    ("columns", "cause"),
    [
        ({"idle_allocator_ns": slow(0, 280)}, "allocator"),
        ({"idle_host_ns": slow(0, 280), "builds": slow(0, 3)}, "builds"),
        ({"exposed_communication_ns": slow(5, 290)}, "communication"),
        ({"exposed_dtoh_ns": slow(0, 290)}, "copies"),
        ({"kernels": slow(100, 160)}, "additional kernels"),
        ({}, "slower kernels"),
        ({"idle_launch_ns": slow(0, 180), "idle_host_ns": slow(0, 120)}, "host"),
        ({"idle_unknown_ns": slow(0, 300)}, "unknown"),
        ({"idle_unknown_ns": slow(0, 200), "idle_input_ns": slow(0, 100)}, "unknown"),
    ],
)
def test_what_they_have_in_common(columns: dict[str, list[float]], cause: str) -> None:
    (found,) = slow_iterations(make_loop(slow(100, 400), **columns), make_trace())
    assert found.evidence["cause"] == cause


@pytest.mark.parametrize(("share", "cause"), [(0.0, "unknown"), (0.4, "unknown"), (0.6, "recorder"), (1.0, "recorder")])
def test_what_the_profiler_costs_is_a_remark(share: float, cause: str) -> None:
    loop = make_loop(slow(100, 400), idle_unknown_ns=slow(0, 300))
    begin = loop.iterations["start_ns"].to_numpy()[list(AT)]
    flushes = [launch(0, int(b) + MS, int(b) + round((1 + 300 * share) * MS)) | {"category": "overhead"} for b in begin]
    whole = int(loop.iterations["start_ns"][-1])
    unknown = np.array([PART_NAMES.index("idle_unknown_ns")], np.int16)
    host = read_states(make_trace(host=flushes), NO_LAUNCHES)
    timeline = Timeline(0, np.array([0, whole]), unknown, host)
    (found,) = slow_iterations(replace(loop, timeline=timeline), make_trace())
    assert (found.evidence["cause"], found.severity) == (cause, "info" if cause == "recorder" else "warning")


@pytest.mark.parametrize(
    ("much", "at", "severity"),
    [(800, AT, "critical"), (250, AT, "warning"), (150, AT, "info"), (125, (7, 8), None), (8000, (7,), "info")],
)
def test_the_severity_is_the_share_of_all_time(much: float, at: tuple[int, ...], severity: str | None) -> None:
    found = list(slow_iterations(make_loop(slow(100, much, at)), make_trace()))
    assert [f.severity for f in found] == ([severity] if severity else [])


@pytest.mark.parametrize("times", [[], [5.0], [1.0, 1.0, 9.0, 1.0, 1.0], [100.0] * 30, slow(100, 260, (7,))])
def test_silence(times: list[float]) -> None:
    assert list(slow_iterations(make_loop(times), make_trace())) == []


def test_a_known_cycle_is_a_remark() -> None:
    loop = make_loop(slow(100, 300, (9, 19, 29)))
    loop = replace(loop, cycles=({"every": 10, "extra_events": 50, "kind": "evaluation"},))
    (found,) = slow_iterations(loop, make_trace())
    assert (found.severity, found.evidence["every"], found.evidence["kind"]) == ("info", 10, "evaluation")
    assert found.headroom_ns_per_iteration == 20 * MS


def test_slow_ones_beside_a_cycle_are_told_alone() -> None:
    loop = make_loop(slow(100, 300, (9, 13, 16, 19, 29)))
    loop = replace(loop, cycles=({"every": 10, "extra_events": 50, "kind": "evaluation"},))
    (found,) = slow_iterations(loop, make_trace())
    assert found.evidence["slow_iterations"] == 2
    assert found.iterations == (13, 16)


@pytest.mark.widens(3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scenario", ["starvation", "healthy", "input-bound", "drift"])
def test_simulated_jobs(tmp_path: Path, scenario: str, seed: int) -> None:
    write(simulate(scenario, iterations=30, seed=seed), tmp_path / "job.json")
    analysis = deepprof.analyze(deepprof.read(tmp_path / "job.json"))
    found = [f for loop in analysis.loops for f in slow_iterations(loop, analysis.traces[0])]
    assert [f.evidence["cause"] for f in found] == (["input"] if scenario == "starvation" else [])
    assert all("DataLoader" in str((f.location or {}).get("range")) for f in found)
