"""How bad and how sure: what rules on a part of the time have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deepprof.diagnosis.finding import Finding, Severity
from deepprof.metrics.breakdown.costs import Cost
from deepprof.metrics.loop import Loop

__all__ = ["Claim", "Limits", "Texts", "format_ms", "many"]

Numbers = Mapping[str, int | float | str | None]
Place = Mapping[str, int | str] | None

STEADY = 0.6  # of the iterations must show it, or it is no property of the iteration
BORDERLINE = 0.6  # confidence at the limit; it is full where the share is twice as large
FEW = 5  # iterations below which a mean says less


@dataclass(frozen=True, slots=True)
class Limits:
    """Shares of the iteration time from which on a finding is a warning, and critical."""

    warning: float
    critical: float


@dataclass(frozen=True, slots=True)
class Texts:
    """What a finding says."""

    title: str
    summary: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """That `cost` is what `rule` is about.

    `certainty` is how far the trace shows the cause, and not only the time; `headroom_ns` what could be saved where
    that is not the whole cost.
    """

    rule: str
    loop: Loop
    cost: Cost
    limits: Limits
    certainty: float = 1.0
    headroom_ns: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the cost is large enough, and one of most iterations."""
        return self.cost.share >= self.limits.warning and self.cost.steadiness >= STEADY

    @property
    def severity(self) -> Severity:
        """How bad the cost is."""
        return "critical" if self.cost.share >= self.limits.critical else "warning"

    @property
    def confidence(self) -> float:
        """How sure it is that the cost matters: far above the limit, in all of many iterations."""
        above = min(1.0, BORDERLINE + (1 - BORDERLINE) * (self.cost.share / self.limits.warning - 1))
        enough = many(self.cost.iterations)
        return round(self.loop.confidence * self.certainty * above * self.cost.steadiness * enough, 3)

    def conclude(self, texts: Texts, evidence: Numbers, location: Place = None) -> Finding:
        """Return the finding."""
        loop, cost = self.loop, self.cost
        saved = cost.mean_ns if self.headroom_ns is None else self.headroom_ns
        return Finding(
            rule=self.rule,
            severity=self.severity,
            title=texts.title,
            summary=texts.summary,
            evidence={**describe_cost(cost), **evidence},
            advice=texts.advice,
            headroom_ns_per_iteration=round(saved),
            confidence=self.confidence,
            rank=loop.rank,
            device=loop.device,
            stream=loop.stream,
            iterations=cost.bounds,
            location=location,
        )


def many(iterations: int) -> float:
    """Return how much a mean over so many iterations says, 1 from five on."""
    return min(1.0, 1 - (FEW - iterations) * 0.08)


def describe_cost(cost: Cost) -> dict[str, int | float]:
    """Return the numbers that every finding on a cost rests on."""
    return {
        "cost_ns_per_iteration": round(cost.mean_ns),
        "share_ratio": round(cost.share, 4),
        "iteration_ns": round(cost.whole_ns),
        "iterations": cost.iterations,
    }


def format_ms(ns: float) -> str:
    """Return nanoseconds as milliseconds, with as many digits as they need."""
    ms = ns / 1e6
    return f"{ms:.1f} ms" if ms >= 1 else f"{ms:.3f} ms"
