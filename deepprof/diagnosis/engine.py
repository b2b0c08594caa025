"""Run the rules, built-in ones and those of plug-ins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol, cast

import msgspec
import numpy as np

from deepprof.collectors.plugins import PlugIn, load
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding, Severity
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
    return cast("Sequence[Rule]", load(GROUP, BUILTIN_RULES, fence_rule))


class FindingShape(msgspec.Struct):
    """What a plug-in's finding must hold so that it can be ranked and reported."""

    rule: str
    severity: Severity
    title: str
    summary: str
    evidence: dict[str, Any]
    advice: str
    confidence: float
    headroom_ns_per_iteration: float | None
    rank: int | None
    device: int | None
    stream: int | None
    iterations: tuple[int, int] | None
    location: dict[str, Any] | None
    caused_by: str | None
    parts: dict[str, float]


def fence_rule(rule: object, plugin: PlugIn) -> Rule:
    """Return a plug-in's rule that finds nothing where it raises, or returns what cannot be reported."""

    def fenced(loop: Loop, trace: Trace) -> Iterable[Finding]:
        return plugin.attempt(lambda: [check_finding(found) for found in cast("Rule", rule)(loop, trace)], [])

    if not callable(rule):
        raise TypeError(f"{type(rule).__name__} is no rule, which is called with a loop and its trace")
    return fenced


def check_finding(found: Finding) -> Finding:
    """Return what a plug-in's rule found, numpy's numbers as Python's; raise an error if it cannot be reported."""
    if not isinstance(found, Finding):
        raise TypeError(f"{type(found).__name__} where a Finding belongs")
    shape = msgspec.convert(msgspec.to_builtins(found, enc_hook=as_python), FindingShape)
    return Finding(**msgspec.structs.asdict(shape))


def as_python(value: object) -> object:
    """Return a number of numpy as one of Python; raise `TypeError` for what no report can hold."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} in a finding, which holds numbers and texts")
