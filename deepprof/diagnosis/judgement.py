"""Severity and confidence: what rules on a part of the time have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from deepprof.diagnosis import Severity
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.costs import Cost, mean_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.outliers import cost_beside_slow

Numbers = Mapping[str, int | float | str | None]
Place = Mapping[str, int | str] | None

STEADY = 0.6  # share of iterations that show a cost: it is a property of the iteration
BORDERLINE = 0.6  # confidence at the limit; it is full where the share is twice as large
FEW_FOR_A_MEAN = 5  # iterations below which a mean counts less
SEEN = {1: 0.5, 2: 0.75}  # certainty of a cost that only this many iterations show; with more: 0.9
OFTEN = 0.9
MOST_OF_IT = 0.8
LEAST_MS = 0.01  # less is written in microseconds
HIDDEN = 0.5  # of the limit of a warning: a smaller saving is a remark
MIN_AFFECTED = 2  # iterations that show it: in one it may be chance


class SeverityLimits(Struct, frozen=True):
    """Shares of the iteration time from which on a finding is a warning, and critical."""

    warning: float
    critical: float

    def rate(self, share: float) -> Severity:
        """Return how bad a share is; one below the limits is a remark."""
        if share < self.warning:
            return "info"
        return "critical" if share >= self.critical else "warning"


class FindingTexts(Struct, frozen=True):
    """The texts of a finding."""

    title: str
    summary: str
    advice: str


class CostClaim(Struct, frozen=True, kw_only=True):
    """A claim of `rule`: that the time of `parts` is lost, `cost` in all.

    `certainty` is how clearly the trace shows the cause, not only the time. `headroom_ns` is what could be saved where
    that is not the whole cost, `shorter_ns` how much shorter an iteration was found to be without it.
    """

    rule: str
    loop: Loop
    cost: Cost
    parts: Sequence[str]
    limits: SeverityLimits
    certainty: float = 1.0
    headroom_ns: float | None = None
    shorter_ns: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the cost is large, in most iterations or in some that no other finding names."""
        if self.is_steady and self.cost.usual_share >= self.limits.warning:
            return True
        rest = cost_beside_slow(self.loop, self.parts)
        return rest is not None and rest.share >= self.limits.warning and rest.affected >= MIN_AFFECTED

    @property
    def is_steady(self) -> bool:
        """Whether most iterations have the cost."""
        return self.cost.steadiness >= STEADY

    @property
    def is_hidden(self) -> bool:
        """Whether an iteration would use hardly less time without the cost."""
        return self.shorter_ns is not None and self.shorter_ns < HIDDEN * self.limits.warning * self.cost.whole_ns

    @property
    def bound(self) -> Numbers:
        """By how much an iteration would be shorter, where that is much less than the cost."""
        known = self.shorter_ns is not None and self.shorter_ns < MOST_OF_IT * self.cost.mean_ns
        return {"shorter_ns_per_iteration": round(self.shorter_ns or 0)} if known else {}

    @property
    def saved_ns(self) -> float:
        """How much time an iteration would save."""
        known = (each for each in (self.headroom_ns, self.shorter_ns) if each is not None)
        return min(known, default=self.cost.mean_ns)

    def limit(self, headroom_ns: float) -> CostClaim | None:
        """Return the claim of which only `headroom_ns` could be saved; None where that is hardly worth it."""
        least = HIDDEN * self.limits.warning * self.cost.whole_ns
        return replace(self, headroom_ns=headroom_ns) if headroom_ns >= least else None

    @property
    def saving(self) -> Numbers:
        """The share of the time that could be saved, where that is less than the cost by the nature of the cost."""
        part = {"saved_ratio": round(self.saved_ns / max(1.0, self.cost.whole_ns), 4)}
        return {} if self.headroom_ns is None else part

    @property
    def per(self) -> str:
        """What counts refer to, in words."""
        return self.loop.per_unit

    @property
    def severity(self) -> Severity:
        """How bad the cost is; that of a recording without iterations, or one that cannot be saved, is a remark."""
        if self.loop.single == "recording" or self.is_hidden:
            return "info"
        return "critical" if self.cost.share >= self.limits.critical else "warning"

    @property
    def confidence(self) -> float:
        """How sure it is that the cost matters: higher far above the limit, and in many of many iterations."""
        share = max(self.cost.share, self.cost.usual_share)
        above = min(1.0, BORDERLINE + (1 - BORDERLINE) * (share / self.limits.warning - 1))
        seen = self.cost.steadiness if self.is_steady else SEEN.get(self.cost.affected, OFTEN)
        return round(self.loop.confidence * self.certainty * above * seen * many(self.cost.iterations), 3)

    @property
    def amount(self) -> str:
        """The cost as a sentence's beginning, with its share as in the table of parts, and its spread if unsteady."""
        cost = self.cost
        spread = "" if self.is_steady else f", in {cost.affected} of {cost.iterations}, up to {format_ms(cost.most_ns)}"
        return f"For {format_ms(cost.mean_ns)} of {self.loop.unit} ({format_percent(cost.share)}{spread})"

    def conclude(self, texts: FindingTexts, evidence: Numbers, location: Place = None) -> Finding:
        """Return the finding."""
        loop, cost = self.loop, self.cost
        saved = self.saved_ns
        return Finding(
            rule=self.rule,
            severity=self.severity,
            title=texts.title,
            summary=texts.summary,
            evidence={**_describe_cost(cost), **evidence, **self.saving, **self.bound},
            advice=texts.advice,
            headroom_ns_per_iteration=None if loop.single == "recording" else round(saved),
            confidence=self.confidence,
            **loop.place,
            iterations=None if loop.single else cost.bounds,
            location=location,
            parts={} if loop.single else share_out(saved, loop, self.parts),
        )


def say_saved(claim: CostClaim) -> str:
    """Return a sentence where much of the cost would not be saved because the host is hardly ahead of the device."""
    if not claim.bound:
        return ""
    return (
        f" Without them {claim.loop.unit} would take {format_ms(claim.shorter_ns or 0)} less: the host launches what "
        "follows just in time, and the device would wait for it."
    )


def say_left(claim: CostClaim) -> str:
    """Return a sentence on what of a cost the device itself would still take, where that is more than a little."""
    left = claim.cost.mean_ns - claim.saved_ns
    if claim.headroom_ns is None or left < (1 - MOST_OF_IT) * claim.cost.mean_ns:
        return ""
    return f" {format_ms(left)} of that would stay: the device itself needs time between two kernels."


def share_out(saved_ns: float, loop: Loop, parts: Sequence[str]) -> dict[str, int]:
    """Return the saving by part, in proportion to what an iteration spends on each; empty without a table."""
    if not parts or loop.parts.is_empty():
        return {}
    spent = {part: mean_of(loop, part) for part in parts}
    whole = sum(spent.values())
    return {part: round(saved_ns * ns / whole) for part, ns in spent.items() if ns > 0} if whole else {}


def many(iterations: int) -> float:
    """Return the weight of a mean over this many iterations, 1 from five on."""
    return min(1.0, 1 - (FEW_FOR_A_MEAN - iterations) * 0.08)


def _describe_cost(cost: Cost) -> dict[str, int | float]:
    return {
        "cost_ns_per_iteration": round(cost.mean_ns),
        "share_ratio": round(cost.share, 4),
        "iteration_ns": round(cost.whole_ns),
        "iterations": cost.iterations,
        "affected_iterations": cost.affected,
        "most_ns": round(cost.most_ns),
    }


def format_percent(share: float) -> str:
    """Return a share as the table of parts shows it."""
    return f"{100 * share:.1f} %"


def format_ms(ns: float) -> str:
    """Return nanoseconds as milliseconds, with as many digits as they need; very short and long times as µs and s."""
    ms = ns / 1e6
    if 0 < ms < LEAST_MS:
        return f"{ns / 1e3:.1f} µs"
    if ms >= 10_000:
        return f"{ms / 1e3:.1f} s"
    return f"{ms:.1f} ms" if ms >= 1 else f"{ms:.3f} ms"


def format_nbytes(nbytes: float) -> str:
    """Return a size in the decimal unit that gives it one to three digits."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes:.0f} bytes"
