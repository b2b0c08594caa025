"""Graph growth: the paper's, and its modern kin."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepprof
from deepprof.diagnosis.rules.graph_growth import graph_growth, show_slope
from deepprof.simulation import simulate, write
from tests.loops import MS, make_loop
from tests.metrics.series.test_growth import compiling
from tests.tables import make_trace


def test_kernels_that_become_more() -> None:
    loop = make_loop([100.0 + 5 * i for i in range(12)], kernels=[200.0 + 10 * i for i in range(12)])
    (found,) = graph_growth(loop, make_trace())
    assert (found.rule, found.severity) == ("graph-growth", "warning")
    assert (found.evidence["cause"], found.evidence["slope_per_iteration"]) == ("kernels", 10)
    assert (found.evidence["first_kernels"], found.evidence["last_kernels"]) == (215, 295)
    assert found.headroom_ns_per_iteration == 30 * MS  # what all of it costs a mean iteration
    assert found.confidence == 1


def test_kernels_that_become_more_in_the_same_time_are_told_too() -> None:
    (found,) = graph_growth(make_loop([100.0] * 12, kernels=[200.0 + 10 * i for i in range(12)]), make_trace())
    assert (found.severity, found.headroom_ns_per_iteration) == ("warning", 0)


def test_compiling_in_every_iteration() -> None:
    (found,) = graph_growth(make_loop([10.0] * 8), compiling(8, 0.5))
    assert (found.severity, found.evidence["cause"]) == ("critical", "compilation")
    assert found.location == {"range": "_compile.compile_inner (dynamo_timed)"}
    assert found.headroom_ns_per_iteration == 5 * MS


def test_the_costliest_cause_comes_alone() -> None:
    loop = make_loop([10.0] * 12, kernels=[200.0 + 10 * i for i in range(12)])
    (found,) = graph_growth(loop, compiling(12, 0.5))
    assert found.evidence["cause"] == "compilation"


@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_silence(count: int) -> None:
    assert list(graph_growth(make_loop([10.0] * count), make_trace())) == []


@pytest.mark.widens(4)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("scenario", "cause"),
    [
        ("graph-growth", "interval"),
        ("memory-growth", None),
        ("recompilation", "compilation"),
        ("recapture", "capture"),
        ("healthy", None),
        ("drift", None),
        ("starvation", None),
    ],
)
def test_simulated_jobs(tmp_path: Path, scenario: str, cause: str | None, seed: int) -> None:
    path = tmp_path / "job.json"
    write(simulate(scenario, iterations=20, seed=seed), path)
    analysis = deepprof.analyze(deepprof.read(path))
    found = [f for loop in analysis.loops for f in graph_growth(loop, analysis.traces[0])]
    assert [f.evidence["cause"] for f in found] == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("slope_ns", "said"), [(2.21e6, "+2.21 ms"), (-3e6, "-3.00 ms"), (1234.0, "+1.23 µs"), (9_999.0, "+10.00 µs")]
)
def test_a_slope_is_never_shown_as_nothing(slope_ns: float, said: str) -> None:
    assert show_slope(slope_ns) == said
