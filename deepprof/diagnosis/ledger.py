"""Accounts of what could be saved: no nanosecond of an iteration is in the headroom of two findings.

Findings claim parts of the mean iteration (`Finding.parts`). Causes come before what they explain, so that a symptom
keeps only what its cause leaves; where the cause claims all of it, its headroom is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.costs import mean_parts
from deepprof.metrics.loop import Loop

Place = tuple[int | None, int | None, int | None]
Book = dict[str, int]  # what is left of each part of the mean iteration


def settle(findings: Iterable[Finding], loops: Iterable[Loop]) -> tuple[Finding, ...]:
    """Return the findings, in their order, each with the headroom that those before it leave."""
    books: dict[Place, Book] = {(loop.rank, loop.device, loop.stream): _open_book(loop) for loop in loops}
    return tuple(_enter(finding, books) for finding in findings)


def _open_book(loop: Loop) -> Book:
    """Return what an iteration spends on each part, a mean over the usual ones."""
    return {name: round(mean) for name, mean in mean_parts(loop).items()}


def _enter(finding: Finding, books: Mapping[Place, Book]) -> Finding:
    """Return the finding with what is left of its claims, and take these out of the books.

    A finding on the whole job takes its claims from every loop and keeps its own numbers: it is about the time of all.
    """
    if not finding.parts:
        return finding
    if finding.stream is None:
        for each in books.values():
            take(finding.parts, each)
        return finding
    book = books.get((finding.rank, finding.device, finding.stream))
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
