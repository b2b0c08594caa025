"""Rules of plug-ins, fenced in: what they raise, or return in place of findings, stops no diagnosis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec
import numpy as np
from msgspec.structs import replace

from deepprof.collectors.plugins import PlugIn
from deepprof.diagnosis import Severity
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rule import Examine, Rule


class _FindingShape(msgspec.Struct):
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


def fence_rule(rule: object, plugin: PlugIn) -> Examine:
    """Return a plug-in's rule that finds nothing where it raises, or returns what cannot be reported."""
    if not callable(rule):
        raise TypeError(f"{type(rule).__name__} is no rule, which is called with a loop and its trace")
    examine = cast("Examine", rule)

    def fenced(*examined: Any) -> Iterable[Finding]:
        return plugin.attempt(lambda: [_check_finding(found) for found in examine(*examined)], [])

    return replace(cast("Rule[...]", rule), examine=fenced) if isinstance(rule, Rule) else fenced


def _check_finding(found: Finding) -> Finding:
    """Return what a plug-in's rule found, numpy's numbers as Python's; raise an error if it cannot be reported."""
    if not isinstance(found, Finding):
        raise TypeError(f"{type(found).__name__} where a Finding belongs")
    shape = msgspec.convert(msgspec.to_builtins(found, enc_hook=_as_python), _FindingShape)
    return Finding(**msgspec.structs.asdict(shape))


def _as_python(value: object) -> object:
    """Return a number of numpy as one of Python; raise `TypeError` for what no report can hold."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} in a finding, which holds numbers and texts")
