"""Accounts of what could be saved: no nanosecond of an iteration is in the headroom of two findings.

Findings claim parts of the mean iteration (`Finding.parts`). Causes come before what they explain, so that a symptom
keeps only what its cause leaves; where the cause claims all of it, its headroom is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.costs import mean_parts
from deepprof.metrics.loop import Loop

Book = dict[str, int]  # what is left of every part of the mean iteration


def settle(findings: Iterable[Finding], loops: Iterable[Loop]) -> tuple[Finding, ...]:
    """Return the findings, in their order, each with the headroom that those before it leave."""
    books = [(loop, _open_book(loop)) for loop in loops]
    told = tuple(findings)
    whole = {each.rule: each.parts for each in told if each.stream is None and each.caused_by is None}
    return tuple(_enter(_leave_to_cause(finding, whole), books) for finding in told)


def _leave_to_cause(finding: Finding, whole: Mapping[str, Mapping[str, int]]) -> Finding:
    """Return a finding on the whole job without what its cause claims, if that is on the whole job, too."""
    claimed = whole.get(finding.caused_by or "", {})
    if finding.stream is not None or finding.caused_by == finding.rule or not claimed.keys() & finding.parts.keys():
        return finding
    left = {part: max(0, ns - claimed.get(part, 0)) for part, ns in finding.parts.items()}
    return replace(finding, parts=left, headroom_ns_per_iteration=sum(left.values()))


def _open_book(loop: Loop) -> Book:
    """Return what an iteration spends on every part, a mean over the usual ones."""
    return {name: round(mean) for name, mean in mean_parts(loop).items()}


def _enter(finding: Finding, books: Sequence[tuple[Loop, Book]]) -> Finding:
    """Return the finding with what is left of its claims, and take these out of the books.

    A finding on the whole job takes its claims from every loop and keeps its own numbers: it is about the time of all.
    """
    if not finding.parts:
        return finding
    if finding.stream is None:
        for _, each in books:
            take(finding.parts, each)
        return finding
    book = next((each for loop, each in books if finding.is_on(loop)), None)
    if book is None:
        return finding
    taken = take(finding.parts, book)
    return replace(finding, parts=taken, headroom_ns_per_iteration=sum(taken.values()))


def take(claims: Mapping[str, int], book: Book) -> dict[str, int]:
    """Return what is left of the claims, and take it out of the book."""
    taken = {part: min(ns, book[part]) for part, ns in claims.items() if book.get(part)}
    for part, ns in taken.items():
        book[part] -= ns
    return taken
