"""Runs the rules and ranks what they say: the heaviest root cause first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol, cast

from deepprof.collectors.plugins import load
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import SEVERITIES, Finding
from deepprof.metrics.loop import Loop

__all__ = ["BUILTIN_RULES", "GROUP", "Rule", "diagnose_loop", "rank"]

GROUP = "deepprof.rules"
BUILTIN_RULES = (
    "deepprof.diagnosis.rules.graph_growth:graph_growth",
    "deepprof.diagnosis.rules.copy_bound:copy_bound",
)


class Rule(Protocol):
    """A rule looks at one loop of one trace; it says nothing when the evidence is thin."""

    def __call__(self, loop: Loop, trace: Trace) -> Iterable[Finding]:
        """Return the findings, usually none or one."""


def diagnose_loop(loop: Loop, trace: Trace, rules: Sequence[Rule] | None = None) -> list[Finding]:
    """Return what all rules (built-in and plugged in) find in one loop."""
    return [finding for rule in (installed_rules() if rules is None else rules) for finding in rule(loop, trace)]


@cache
def installed_rules() -> Sequence[Rule]:
    """Return the built-in rules and those of installed packages, loaded once."""
    return cast("Sequence[Rule]", load(GROUP, BUILTIN_RULES))


def rank(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, the most severe first, then by the time they cost."""

    def weight(finding: Finding) -> tuple[int, float]:
        headroom = finding.headroom_ns_per_iteration or 0
        return SEVERITIES.index(finding.severity), math.log1p(headroom) * finding.confidence

    return tuple(sorted(findings, key=weight, reverse=True))
