"""The line of code that a finding is about, where the recording has the host's functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from msgspec.structs import replace

from deepprof.diagnosis.engine import declared_rules
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.costs import spans_of_parts, threads_of
from deepprof.metrics.breakdown.parts import BUSY_PARTS, IDLE_PARTS
from deepprof.metrics.contexts.blame import blame_events, blame_spans
from deepprof.metrics.contexts.code_lines import Place, find_most
from deepprof.metrics.contexts.growing import find_growing
from deepprof.metrics.contexts.per_loop import LoopContexts

OVER_TIME = frozenset({"graph-growth", "drift"})  # about what becomes more
GROWING = ("host_ns", "device_ns")
LEAST_GROWTH = 0.02  # of an iteration
LINE = ("function", "file", "line", "line_is", "module")  # what a place of a rule does not have


def name_lines(findings: Iterable[Finding], seen: Sequence[LoopContexts]) -> list[Finding]:
    """Return the findings, those on a loop whose contexts are known with the line of code in their location."""
    return [_name_line(finding, seen) for finding in findings]


def _name_line(finding: Finding, seen: Sequence[LoopContexts]) -> Finding:
    """Return one finding with its line; what its rule has of its place stays."""
    contexts = next((each for each in seen if finding.is_on(each.loop)), None)
    if contexts is None or (finding.location is not None and "file" in finding.location):
        return finding
    found = _find_context(finding, contexts)
    if found is None:
        return finding
    place = contexts.describe_place(found)
    line: Place = {key: place[key] for key in place if key in LINE or finding.rule in OVER_TIME}
    known = {**(finding.location or {}), **line}
    return replace(finding, location=known) if line else finding


def _find_context(finding: Finding, seen: LoopContexts) -> int | None:
    """Return the context with most of what a finding is about: what grows, what the host did, or what it launched."""
    if finding.rule in OVER_TIME:
        least = LEAST_GROWTH * float(seen.loop.usual["iteration_ns"].mean() or 0)  # type: ignore[arg-type]
        grown = [each for column in GROWING if (each := find_growing(seen, column, least)) is not None]
        return max(grown, key=lambda each: each.growth).context if grown else None
    parts = finding.parts or _parts_of_rule(finding.rule)
    idle = [part for part in parts if part in IDLE_PARTS]
    if idle:
        return find_most(seen.table, blame_spans(seen, spans_of_parts(seen.loop, idle), threads_of(seen.loop)))
    busy = [part for part in parts if part in BUSY_PARTS]
    return find_most(seen.table, blame_events(seen, busy)) if busy else None


@cache
def _parts_of_rule(name: str) -> tuple[str, ...]:
    """Return the parts that a rule is about: a finding without iterations claims none."""
    return next((each.parts for each in declared_rules() if each.name == name), ())
