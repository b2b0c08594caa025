"""How bad and how sure a claim is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.diagnosis.judgement import CostClaim, FindingTexts, SeverityLimits, format_ms
from deepprof.metrics.breakdown.costs import Cost
from tests.deepprof.builders import build_loop

LIMITS = SeverityLimits(warning=0.1, critical=0.3)
TEXTS = FindingTexts("title", "summary", "advice")


def claim(
    share: float,
    *,
    steadiness: float = 1.0,
    iterations: int = 9,
    loop: float = 1.0,
    certainty: float = 1.0,
    affected: int = 9,
) -> CostClaim:
    cost = Cost(share * 1e6, 1e6, steadiness, iterations, (1, 9), affected, 2 * share * 1e6, share)
    built = build_loop(confidence=loop)
    return CostClaim(rule="x", loop=built, cost=cost, parts=(), limits=LIMITS, certainty=certainty)


@pytest.mark.parametrize(
    ("share", "steadiness", "holds"),
    [(0.1, 1, True), (0.0999, 1, False), (0.5, 0.6, True), (0.5, 0.59, False), (0, 1, False)],
)
def test_a_claim_holds_when_it_is_large_and_steady(share: float, steadiness: float, holds: bool) -> None:
    assert claim(share, steadiness=steadiness).holds == holds


@pytest.mark.parametrize(
    ("share", "severity"), [(0.1, "warning"), (0.2999, "warning"), (0.3, "critical"), (1.0, "critical")]
)
def test_severity(share: float, severity: str) -> None:
    assert claim(share).severity == severity


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (claim(0.1), 0.6),
        (claim(0.15), 0.8),
        (claim(0.2), 1.0),
        (claim(0.9), 1.0),
        (claim(0.9, iterations=5), 1.0),
        (claim(0.9, iterations=4), 0.92),
        (claim(0.9, iterations=2), 0.76),
        (claim(0.9, steadiness=0.6), 0.6),
        (claim(0.9, steadiness=0.5, affected=1), 0.5),
        (claim(0.9, steadiness=0.5, affected=2), 0.75),
        (claim(0.9, steadiness=0.5, affected=3), 0.9),
        (claim(0.9, loop=0.5, certainty=0.5), 0.25),
    ],
)
def test_confidence(made: CostClaim, expected: float) -> None:
    assert made.confidence == pytest.approx(expected)


@given(st.floats(0.1, 1), st.floats(0.6, 1), st.integers(2, 99), st.floats(0, 1), st.sampled_from([0.75, 1.0]))
def test_confidence_is_one(share: float, steady: float, iterations: int, loop: float, certainty: float) -> None:
    made = claim(share, steadiness=steady, iterations=iterations, loop=loop, certainty=certainty)
    assert 0 <= made.confidence <= 1


def test_a_finding_carries_its_numbers() -> None:
    found = claim(0.25).conclude(TEXTS, {"calls": 3}, {"range": "r"})
    assert found.evidence == {
        "cost_ns_per_iteration": 250_000,
        "share_ratio": 0.25,
        "iteration_ns": 1_000_000,
        "iterations": 9,
        "affected_iterations": 9,
        "most_ns": 500_000,
        "calls": 3,
    }
    assert (found.headroom_ns_per_iteration, found.iterations, found.location) == (250_000, (1, 9), {"range": "r"})
    assert found.caused_by is None


def test_headroom_may_be_less_than_the_cost() -> None:
    cost = Cost(3e5, 1e6, 1.0, 9, (0, 9))
    made = CostClaim(rule="x", loop=build_loop(), cost=cost, parts=(), limits=LIMITS, headroom_ns=1e5)
    assert made.conclude(TEXTS, {}).headroom_ns_per_iteration == 100_000


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.000 ms"), (1_580, "1.6 µs"), (999_999, "1.000 ms"), (1e6, "1.0 ms"), (12_340_000, "12.3 ms")],
)
def test_milliseconds(ns: float, text: str) -> None:
    assert format_ms(ns) == text
