"""The template of one iteration: a vote over segments cut at an anchor, reduced to its primitive period."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.mining.symbols import SymbolArray

Int64s = npt.NDArray[np.int64]

SEGMENTS = 96  # segments that vote at most: more do not change the vote


@dataclass(frozen=True, slots=True)
class Template:
    """One iteration's symbols from some anchor on (not yet in phase).

    `variants` counts how often a symbol occurred where the template has another (autotuned or shape-dependent variants
    of one kernel).
    """

    symbols: SymbolArray
    variants: dict[tuple[int, int], int]


def fit_template(symbols: SymbolArray, anchors: Int64s, period: int) -> Template | None:
    """Cut `symbols` at `anchors`, keep the segments of the commonest length near `period`, and let them vote."""
    length = np.diff(anchors)
    near = np.flatnonzero(np.abs(length - period) <= 0.1 * period + 1)
    if not len(near):
        return None
    lengths, votes = np.unique(length[near], return_counts=True)
    size = int(lengths[np.argmax(votes)])
    first = anchors[near[length[near] == size]]
    if len(first) > SEGMENTS:
        first = first[np.linspace(0, len(first) - 1, SEGMENTS).astype(int)]
    return _vote(symbols[first[:, None] + np.arange(size)])


def _vote(segments: SymbolArray) -> Template:
    """Return the commonest segment, with single positions overruled by the majority of comparable segments."""
    keys = [row.tobytes() for row in segments]
    commonest = Counter(keys).most_common(1)[0][0]
    model = segments[keys.index(commonest)].copy()
    comparable = segments[_is_scattered(segments != model)]
    variants: dict[tuple[int, int], int] = {}
    if len(comparable) >= 3:
        for column in np.flatnonzero((comparable != model).any(axis=0)):
            model[column] = _majority(comparable[:, column], int(model[column]), variants)
    return Template(model[: _primitive(model)], variants)


def _is_scattered(different: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which rows differ in isolated places only: variants do, a segment shifted by an insertion does not."""
    size = different.shape[1]
    changed = different.sum(axis=1)
    runs = (different[:, 1:] & ~different[:, :-1]).sum(axis=1) + different[:, 0]
    isolated = (runs >= 0.35 * changed) | (changed <= 0.01 * size)
    scattered: npt.NDArray[np.bool_] = (changed <= 0.6 * size) & isolated
    return scattered


def _majority(column: SymbolArray, current: int, variants: dict[tuple[int, int], int]) -> int:
    """Return the symbol most segments have in this place; count the others as its variants."""
    values, votes = np.unique(column, return_counts=True)
    winner = int(values[np.argmax(votes)]) if votes.max() > 0.5 * len(column) else current
    for value, times in zip(values.tolist(), votes.tolist(), strict=True):
        if value != winner and times >= max(2, 0.02 * len(column)):
            variants[winner, value] = variants.get((winner, value), 0) + times
    return winner


def _primitive(symbols: SymbolArray) -> int:
    """Return the smallest q that divides the length such that the sequence is its first q symbols repeated."""
    n = len(symbols)
    for q in range(1, n // 2 + 1):
        if n % q == 0 and np.array_equal(symbols[q:], symbols[:-q]):
            return q
    return n


def merge_variants(variants: dict[tuple[int, int], int], alphabet: int) -> npt.NDArray[np.int64] | None:
    """Return a map symbol → representative with variants joined (union-find), or None when it joins too much.

    A vote over wrongly cut segments "finds" variants everywhere; joining them would make everything look periodic.
    """
    parent = np.arange(alphabet)

    def root(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = int(parent[x])
        return x

    for (one, other), _ in sorted(variants.items(), key=lambda item: -item[1]):
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    merged = np.array([root(x) for x in range(alphabet)])
    return merged if len(np.unique(merged)) >= 0.7 * alphabet else None
