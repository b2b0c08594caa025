"""Run the rules, built-in ones and those of plug-ins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol, cast

from deepprof.collectors.plugins import load
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.loop import Loop

__all__ = ["BUILTIN_RULES", "GROUP", "Rule", "diagnose_loop"]

GROUP = "deepprof.rules"
BUILTIN_RULES = (
    "deepprof.diagnosis.rules.graph_growth:graph_growth",
    "deepprof.diagnosis.rules.copy_bound:copy_bound",
    "deepprof.diagnosis.rules.device_copies:device_copies",
    "deepprof.diagnosis.rules.dependency_bound:dependency_bound",
    "deepprof.diagnosis.rules.starving:sync_bound",
    "deepprof.diagnosis.rules.starving:launch_bound",
    "deepprof.diagnosis.rules.small_kernels:small_kernels",
    "deepprof.diagnosis.rules.host_bound:host_bound",
    "deepprof.diagnosis.rules.communication_bound:communication_bound",
    "deepprof.diagnosis.rules.allocator_bound:allocator_bound",
    "deepprof.diagnosis.rules.input_bound:input_bound",
    "deepprof.diagnosis.rules.first_use:first_use",
    "deepprof.diagnosis.rules.slow_iterations:slow_iterations",
    "deepprof.diagnosis.rules.drift:drift",
    "deepprof.diagnosis.rules.capture_incomplete:capture_incomplete",
)


class Rule(Protocol):
    """A rule examines one loop of one trace; it yields nothing when the evidence is thin."""

    def __call__(self, loop: Loop, trace: Trace) -> Iterable[Finding]:
        """Return the findings, usually none or one."""


def diagnose_loop(loop: Loop, trace: Trace, rules: Sequence[Rule] | None = None) -> list[Finding]:
    """Return what all rules (built-in and plugged in) find in one loop."""
    return [finding for rule in (installed_rules() if rules is None else rules) for finding in rule(loop, trace)]


@cache
def installed_rules() -> Sequence[Rule]:
    """Return the built-in rules and those of installed packages, loaded once."""
    return cast("Sequence[Rule]", load(GROUP, BUILTIN_RULES))
