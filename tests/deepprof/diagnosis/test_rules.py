"""Each rule on loops made by hand: what it says, with which numbers, and when it is silent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.engine import diagnose_loop, rank
from deepprof.diagnosis.finding import Finding, Severity
from deepprof.metrics.iteration_table import measure_iterations, summarize
from deepprof.metrics.loop import Loop
from deepprof.metrics.sequence import main_sequence
from deepprof.mining import Iterations
from tests.tables import Row, copy, event, make_trace, span

MS = 1_000_000


@dataclass
class Case:
    """One kernel of `operation` ms per iteration, then an interval of which copies fill `copied`."""

    intervals: list[float]
    operation: float = 10.0
    copied: float = 0.0
    range_name: str | None = None

    def build(self) -> tuple[Loop, Trace]:
        """Return the loop and its trace."""
        device: list[Row] = []
        ranges: list[Row] = []
        now = 0.0
        for gap in self.intervals:
            end = now + self.operation
            device.append(event(1, round(now * MS), round(end * MS)))
            if self.copied:
                device.append(copy(round(end * MS), round((end + gap * self.copied) * MS), round(gap * 6e6)))
            if self.range_name:
                ranges.append(span(2, round(end * MS), round((end + gap) * MS), framework=True))
            now = end + gap
        device.append(event(1, round(now * MS), round((now + self.operation) * MS)))
        names = ["Memcpy HtoD (Pageable -> Device)", "kernel", self.range_name or "-"]
        trace = make_trace(device, annotations=ranges, names=names)
        return measure(trace, len(self.intervals) + 1), trace

    def findings(self) -> list[Finding]:
        """Return what all rules say."""
        return diagnose_loop(*self.build())


def measure(trace: Trace, count: int) -> Loop:
    first = np.arange(count)
    ones = np.ones(count, np.int64)
    table = measure_iterations(
        trace, main_sequence(trace, 0, 7), Iterations(first, first + 1, ones, ones * 0, ones == 1)
    )
    return Loop(
        rank=0,
        device=0,
        stream=7,
        period=1,
        confidence=1.0,
        evidence="made by hand",
        boundary_source="mined",
        boundary_confidence=0.9,
        agreement=None,
        iterations=table,
        metrics=summarize(table),
    )


def test_a_large_interval_that_grows_is_graph_growth() -> None:
    (found,) = Case([2.0 + i for i in range(30)]).findings()
    assert (found.rule, found.severity) == ("graph-growth", "critical")
    assert found.evidence["slope_ns_per_iteration"] == MS
    assert found.headroom_ns_per_iteration == pytest.approx(16.5 * MS)
    assert found.iterations == (0, 29)


def test_the_same_without_growth_is_host_bound() -> None:
    (found,) = Case([9.0, 11.0, 10.0] * 8).findings()
    assert (found.rule, found.severity) == ("host-bound", "critical")
    assert found.headroom_ns_per_iteration == 10 * MS
    assert found.location is None


def test_what_the_host_did_meanwhile_is_its_place() -> None:
    (found,) = Case([4.0] * 8, range_name="enumerate(DataLoader)#x").findings()
    assert (found.rule, found.severity) == ("host-bound", "warning")
    assert found.location == {"range": "enumerate(DataLoader)#x"}
    assert "enumerate(DataLoader)#x" in found.summary


def test_copies_that_fill_the_interval_are_copy_bound() -> None:
    (found,) = Case([20.0] * 8, copied=0.9).findings()
    assert (found.rule, found.severity) == ("copy-bound", "critical")
    assert found.headroom_ns_per_iteration == 18 * MS
    assert found.evidence["copied_bytes_per_iteration"] == 120_000_000
    assert found.evidence["bytes_per_second"] == pytest.approx(120e6 / 18e-3)
    assert found.evidence["pageable"] == "yes"


@pytest.mark.parametrize(
    "case",
    [
        Case([0.5] * 20),  # a small interval
        Case([0.1 * i for i in range(20)], operation=100),  # growing, but small
        Case([0.5] * 8, copied=0.9),  # copies in a small interval
        Case([]),  # one iteration
        Case([50.0]),  # two iterations, one interval: thin
    ],
    ids=["small", "small growth", "small copies", "one", "two"],
)
def test_rules_are_silent_where_there_is_little_to_say(case: Case) -> None:
    assert case.findings() == []


def test_growth_needs_more_than_an_outlier() -> None:
    (found,) = Case([8.0] * 10 + [80.0]).findings()
    assert found.rule == "host-bound"


def test_an_empty_trace_has_no_findings() -> None:
    assert diagnose_loop(measure(make_trace(), 0), make_trace()) == []


def finding(severity: Severity, headroom: int | None, confidence: float = 1.0) -> Finding:
    return Finding(
        rule=f"{severity}-{headroom}",
        severity=severity,
        title="",
        summary="",
        evidence={},
        advice="",
        confidence=confidence,
        headroom_ns_per_iteration=headroom,
    )


def test_the_most_severe_comes_first_then_the_most_costly() -> None:
    found = [finding("info", 9 * MS), finding("warning", MS), finding("critical", None), finding("warning", 2 * MS)]
    assert [f.rule for f in rank(found)] == ["critical-None", f"warning-{2 * MS}", f"warning-{MS}", f"info-{9 * MS}"]


def test_rules_of_others_are_asked_too() -> None:
    def stranger(loop: Loop, trace: Trace) -> list[Finding]:
        return [finding("info", loop.period)]

    loop, trace = Case([0.1] * 5).build()
    assert [f.rule for f in diagnose_loop(loop, trace, [stranger])] == ["info-1"]
