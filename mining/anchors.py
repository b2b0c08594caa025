"""How a stream is locked to a template: the template made cyclic, and the k-grams that identify a place in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining.suffix_tree import SuffixTree
from deepprof.mining.symbols import SymbolArray, Symbols, as_symbols

LONGEST_HISTORY = 4096
"""Symbols that the matcher goes back at most from a k-gram it has found, so that the memory stays bounded."""

MOST_SKIPPED = 1024
"""The most insertions or deletions: a difference costs their product, and anchors bridge longer gaps."""

LONGEST_TEMPLATE = 2**30

FOREIGN_U16 = 2**16 - 1
"""Replaces every stream symbol that no 16-bit template contains."""

Int32Array: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """A template prepared for the matchers; lengths are in symbols, reduced for short templates.

    Attributes:
        cyclic: the template repeated to period + deletions + confirm + anchor symbols at least. uint16 when all of
            its symbols are below 65,535, so that `FOREIGN_U16` never matches; else uint32.
        period: length of the template.
        insertions: stream symbols that one re-synchronisation may skip.
        deletions: template symbols that one re-synchronisation may skip, fewer than the period.
        confirm: equal symbols that confirm a re-synchronisation.
        anchor: length k of the anchors.
        phases: template phases of the anchors, ascending int32; their k-grams differ from each other, and each occurs
            only once in the cyclic template (unless the template itself is a repetition).
    """

    cyclic: SymbolArray
    period: int
    insertions: int
    deletions: int
    confirm: int
    anchor: int
    phases: Int32Array

    @property
    def history(self) -> int:
        """Symbols that the matcher goes back from an anchor at most."""
        return min(self.period - 1, LONGEST_HISTORY)

    @property
    def lookahead(self) -> int:
        """Symbols ahead that a re-synchronisation may read."""
        return max(self.insertions, 1) + self.confirm

    def fit(self, stream: SymbolArray) -> SymbolArray:
        """Return the stream in the template's type; symbols that the type cannot hold become one that never matches."""
        if stream.dtype is self.cyclic.dtype:
            return stream
        if self.cyclic.dtype == np.uint32:
            return stream.astype(np.uint32)
        return np.minimum(stream, FOREIGN_U16).astype(np.uint16)


def plan_match(template: Symbols, insertions: int, deletions: int, confirm: int, anchor: int) -> MatchPlan:
    """Return the plan for a template of p symbols: one suffix tree of its cyclic k-grams, O(p).

    k is doubled while no k-gram is unique. For short templates `confirm` and k are reduced to max(2, p / 2).

    Raises:
        ValueError: for an empty template, `insertions` or `deletions` outside 0 to `MOST_SKIPPED`, `confirm` or
            `anchor` below 1.
    """
    symbols = as_symbols(template)
    _check(symbols, insertions, deletions, confirm, anchor)
    period = symbols.size
    most = max(2, period // 2)
    deletions, confirm = min(deletions, period - 1), min(confirm, most)
    k, phases = find_anchors(symbols, min(anchor, most))
    cyclic = _in_matching_type(np.resize(symbols, period + deletions + confirm + k + 1))
    return MatchPlan(cyclic, period, insertions, deletions, confirm, k, phases)


def _check(template: SymbolArray, insertions: int, deletions: int, confirm: int, anchor: int) -> None:
    if template.size == 0:
        raise ValueError("the template is empty: there is nothing to match")
    if template.size > LONGEST_TEMPLATE:
        raise ValueError(f"a template has at most 2^30 symbols, not {template.size}")
    if insertions < 0 or deletions < 0:
        raise ValueError(f"insertions and deletions must not be negative, not {insertions} and {deletions}")
    if max(insertions, deletions) > MOST_SKIPPED:
        raise ValueError(f"insertions and deletions are at most {MOST_SKIPPED}, not {insertions} and {deletions}")
    if confirm < 1 or anchor < 1:
        raise ValueError(f"confirm and anchor must be at least 1, not {confirm} and {anchor}")


def _in_matching_type(symbols: npt.NDArray[Any]) -> SymbolArray:
    if int(symbols.max()) < FOREIGN_U16:
        return symbols.astype(np.uint16)
    return symbols.astype(np.uint32)


def find_anchors(template: SymbolArray, k: int) -> tuple[int, Int32Array]:
    """Return k, doubled as often as needed, and the phases (ascending int32) whose cyclic k-gram occurs only once.

    A template that repeats itself has no such phase: then k is returned as given, with the first phase of every k-gram.
    """
    period, length = template.size, k
    while True:
        classes = _cyclic_classes(template, length)
        phases = np.flatnonzero(np.bincount(classes)[classes] == 1)
        if phases.size or length >= period:
            break
        length = min(2 * length, period)
    if phases.size:
        return length, phases.astype(np.int32)
    return k, np.sort(np.unique(_cyclic_classes(template, k), return_index=True)[1]).astype(np.int32)


def _cyclic_classes(template: SymbolArray, k: int) -> Int32Array:
    return SuffixTree.build(np.resize(template, template.size + k - 1)).classes(k)
