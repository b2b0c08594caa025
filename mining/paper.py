"""DeepProf's own miner (Gu et al., 2017, sections IV-B and IV-C): the number of iterations is given by the user.

It is kept for users who know the number, and for comparison with the automatic miner. As in the paper, the pattern is
the longest substring that repeats often enough. The pattern need not start where an iteration starts, and may lack a
few symbols of the iteration: any rotation of the iteration repeats as often, and criterion 3 keeps the pattern below
one iteration's length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining.matching import Matches
from deepprof.mining.suffix_tree import SuffixTree
from deepprof.mining.symbols import SymbolArray, Symbols, as_symbols

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Int64Array: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A repeated substring found by `find_pattern`.

    Attributes:
        symbols: the substring, uint16 or uint32.
        occurrences: where it occurs in the mined sequence, ascending int64, without overlapping occurrences.
        epsilon: the tolerance ε at which it was found; 1 means exactly `count` occurrences in the tree.
    """

    symbols: SymbolArray
    occurrences: Int64Array
    epsilon: int


@dataclass(frozen=True, slots=True)
class PaperLoop:
    """One loop of `mine_with_counts`: the count asked for, its pattern, and the iterations that Algorithm 1 found."""

    count: int
    pattern: Pattern
    iterations: Matches


def find_pattern(tree: SuffixTree, count: int) -> Pattern | None:
    """Return the longest pattern p with count − ε < c_p ≤ count (criterion 2) and l_p < n / count (criterion 3).

    Section IV-B: ε starts at 1 and doubles until a pattern is found, up to ε ≥ count; None when there is none at all.
    Where the paper leaves it open, this code decides: c_p is the number of leaves below a node, overlapping occurrences
    included; a node too long for criterion 3 is considered with its longest prefix that satisfies it and still is on
    the node's edge; among equally long ones the earliest wins; and the winner must satisfy criterion 2 without
    overlapping occurrences too, else the next one is tried, so that "aaaa" does not count its own shifted copies.

    O(n) for each of the log2(count) + 1 values of ε, and O(count log count) for every pattern tried.

    Raises:
        ValueError: for a count below 2: what occurs once is no loop.
    """
    if count < 2:
        raise ValueError(f"a loop has at least 2 iterations, not {count}")
    candidates = _Candidates.of(tree, count)
    epsilon = 1
    while True:
        found = candidates.longest(tree, count, epsilon)
        if found is not None or epsilon >= count:
            return found
        epsilon *= 2


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """Patterns that satisfy criterion 3 and occur `count` times at most, the longest first."""

    lengths: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    left: npt.NDArray[np.int32]

    @classmethod
    def of(cls, tree: SuffixTree, count: int) -> _Candidates:
        nodes = tree.nodes()
        below = -(-len(tree) // count) - 1  # the largest integer below n / count
        lengths = np.minimum(nodes.depth, np.int32(max(below, 0)))
        # The larger LCP value at the two ends of a node's leaves is the depth of its parent.
        bounds = np.append(tree.lcp, np.int32(0))
        parents = np.maximum(bounds[nodes.left], bounds[nodes.left + nodes.count])
        kept = np.flatnonzero((lengths > parents) & (nodes.count <= count))
        order = kept[np.argsort(-lengths[kept], kind="stable")]
        return cls(lengths[order], nodes.count[order], nodes.left[order])

    def longest(self, tree: SuffixTree, count: int, epsilon: int) -> Pattern | None:
        for length, starts in self._starts(tree, np.flatnonzero(self.counts > count - epsilon)):
            occurrences = _without_overlap(starts, length)
            if occurrences.size > count - epsilon:
                return Pattern(tree.symbols[starts[0] : starts[0] + length].copy(), occurrences, epsilon)
        return None

    def _starts(self, tree: SuffixTree, chosen: npt.NDArray[np.intp]) -> Iterator[tuple[int, Int64Array]]:
        """Yield lengths and ascending starts, the longest first, among equal lengths the earliest first."""
        edges = np.flatnonzero(np.diff(self.lengths[chosen])) + 1
        for group in np.split(chosen, edges) if chosen.size else ():
            starts = (self._leaves(tree, index) for index in group.tolist())
            for positions in sorted(starts, key=lambda found: int(found[0])):
                yield int(self.lengths[group[0]]), positions

    def _leaves(self, tree: SuffixTree, index: int) -> Int64Array:
        left = self.left[index]
        return np.sort(tree.suffixes[left : left + self.counts[index]]).astype(np.int64)


def _without_overlap(starts: Int64Array, length: int) -> Int64Array:
    """Return the most occurrences that do not overlap, greedily from the left. One Python step per occurrence."""
    kept: list[int] = []
    for start in starts.tolist():
        if not kept or start >= kept[-1] + length:
            kept.append(start)
    return np.array(kept, np.int64)


def match_approximately(symbols: Symbols, pattern: Symbols, tolerance: int | None = None) -> Matches:
    """Return the approximate occurrences of the pattern, Algorithm 1 of the paper (section IV-C).

    From every position with the pattern's first symbol, the pattern's symbols must follow in their order, with at most
    `tolerance` inserted operations between them (default: a tenth of the pattern); nothing may be missing or replaced.
    The search continues after an occurrence, and one position further after a failure. `edits` are the insertions,
    `matched` is always the pattern's length.

    O(n · (l + tolerance)) for a pattern of l symbols that fails late at every position; O(n) on clean input.

    Raises:
        ValueError: for an empty pattern, a negative tolerance, and symbols that `as_symbols` refuses.
    """
    text, wanted = as_symbols(symbols), as_symbols(pattern)
    if wanted.size == 0:
        raise ValueError("the pattern is empty: there is nothing to match")
    allowed = wanted.size // 10 if tolerance is None else tolerance
    if allowed < 0:
        raise ValueError(f"tolerance must not be negative, not {allowed}")
    rows, at = [], 0
    for start in np.flatnonzero(text == wanted[0]).tolist():
        if start >= at and (end := _match_at(text, wanted, start, allowed)) is not None:
            rows.append((start, end, wanted.size, end - start - wanted.size))
            at = end
    found = np.array(rows, np.int64).reshape(-1, 4)
    return Matches.from_rows(found, int(text.size - (found[:, 1] - found[:, 0]).sum()))


def _match_at(text: SymbolArray, pattern: SymbolArray, start: int, allowed: int) -> int | None:
    """Return one past the end of the occurrence that starts here; None when it uses more than `allowed` insertions."""
    position, phase = start, 0
    while phase < pattern.size:
        run = _common_run(text, position, pattern, phase)
        position, phase = position + run, phase + run
        if phase == pattern.size:
            break
        skipped = np.flatnonzero(text[position : position + allowed + 1] == pattern[phase])
        if not skipped.size:
            return None
        allowed -= int(skipped[0])
        position += int(skipped[0])
    return position


def _common_run(text: SymbolArray, position: int, pattern: SymbolArray, phase: int) -> int:
    """Return the number of equal symbols from here on; the section compared grows, as most attempts fail early."""
    run, size = 0, 16
    while True:
        left = text[position + run : position + run + size]
        right = pattern[phase + run : phase + run + size][: left.size]
        differs = left[: right.size] != right
        if differs.any():
            return run + int(differs.argmax())
        run += right.size
        if right.size < size:
            return run
        size *= 4


def mine_with_counts(symbols: Symbols, counts: Sequence[int]) -> list[PaperLoop]:
    """Return one loop per count that has a pattern, in the order of the counts (multi-loop programs, section IV-B).

    Each count is mined in the symbols that the iterations of the earlier counts leave uncovered; no pattern and no
    iteration spans a covered section. Positions in the iterations, and in a pattern's `occurrences`, are positions in
    `symbols`. O(counts) suffix trees and runs of Algorithm 1.

    Raises:
        ValueError: for a count below 2, and for symbols that `as_symbols` refuses.
    """
    text = as_symbols(symbols)
    covered = np.zeros(text.size, np.bool_)
    loops: list[PaperLoop] = []
    for count in counts:
        loop = _mine_uncovered(text, covered, count)
        if loop is not None:
            loops.append(loop)
            for first, end in zip(loop.iterations.first.tolist(), loop.iterations.end.tolist(), strict=True):
                covered[first:end] = True
    return loops


def _mine_uncovered(text: SymbolArray, covered: npt.NDArray[np.bool_], count: int) -> PaperLoop | None:
    pieces = _uncovered_pieces(covered)
    joined, positions = _join_pieces(text, pieces)
    pattern = find_pattern(SuffixTree.build(joined), count)
    if pattern is None:
        return None
    pattern = Pattern(as_symbols(pattern.symbols), positions[pattern.occurrences], pattern.epsilon)
    parts = [_shifted(match_approximately(text[first:end], pattern.symbols), first) for first, end in pieces]
    return PaperLoop(count, pattern, Matches.join(parts))


def _uncovered_pieces(covered: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the half-open ranges that are not covered, ascending."""
    steps = np.diff(np.concatenate([[True], covered, [True]]).astype(np.int8))
    return list(zip(np.flatnonzero(steps == -1).tolist(), np.flatnonzero(steps == 1).tolist(), strict=True))


def _join_pieces(text: SymbolArray, pieces: list[tuple[int, int]]) -> tuple[Int64Array, Int64Array]:
    """Return the pieces, each followed by a unique symbol that no repeat can contain, and each symbol's position."""
    above = int(text.max(initial=0)) + 1
    symbols = [np.append(text[first:end].astype(np.int64), above + i) for i, (first, end) in enumerate(pieces)]
    positions = [np.arange(first, end + 1) for first, end in pieces]
    empty = np.empty(0, np.int64)
    return np.concatenate([empty, *symbols]), np.concatenate([empty, *positions])


def _shifted(matches: Matches, offset: int) -> Matches:
    return Matches(
        matches.first + offset, matches.end + offset, matches.matched, matches.edits, foreign=matches.foreign
    )
