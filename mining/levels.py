"""Levels of repetition: the distances at which k-grams come back regularly.

A training job repeats on several levels: layer block < micro-batch < iteration < evaluation cycle. The classes of
equal k-grams are the suffix tree's nodes cut at depth k; a class whose occurrences are at regular distances votes
for that distance, and votes close together form a level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.mining.suffix_tree import SuffixTree

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DEPTHS = (1, 2, 4, 8, 16)  # short grams find rare symbols, long ones distinguish layers with equal parts
MIN_COUNT = 3
MIN_REGULARITY = 0.6
MIN_COVERAGE = 0.3
SAME_LEVEL = 1.03


@dataclass(frozen=True, slots=True, eq=False)
class RepeatLevel:
    """A distance at which k-grams come back.

    `period` in symbols, `coverage` the share of the sequence between regular occurrences of its best class,
    `classes` how many k-gram classes vote for it, `anchors` the positions of the best class.
    """

    period: int
    coverage: float
    classes: int
    anchors: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _ClassStats:
    """Per class of equal k-grams: occurrence count, median gap, share of regular gaps, coverage of the sequence."""

    order: Int64s  # positions grouped by class, ascending within one
    offset: Int64s  # start of every class in `order`, then the end of the last
    count: Int64s
    median: Int64s
    regularity: Floats
    coverage: Floats


def find_levels(tree: SuffixTree) -> list[RepeatLevel]:
    """Return the levels of all depths, those within 2 % of each other merged, by ascending period."""
    n = len(tree.symbols)
    found = [level for k in DEPTHS if n >= 4 * k for level in _levels_at(tree, k)]
    merged: list[RepeatLevel] = []
    for level in sorted(found, key=lambda v: v.period):
        if merged and level.period - merged[-1].period <= 0.02 * merged[-1].period + 1:
            merged[-1] = join(merged[-1], level)
        else:
            merged.append(level)
    return merged


def join(one: RepeatLevel, other: RepeatLevel) -> RepeatLevel:
    """Return the better of two levels of about the same period, with the larger number of votes."""
    best = max(one, other, key=lambda v: (v.coverage, v.classes))
    return RepeatLevel(best.period, best.coverage, max(one.classes, other.classes), best.anchors)


def _levels_at(tree: SuffixTree, k: int) -> list[RepeatLevel]:
    """Return the levels that the k-gram classes of one depth show."""
    stats = _measure_classes(tree.classes(k))
    regular = (stats.count >= MIN_COUNT) & (stats.regularity >= MIN_REGULARITY) & (stats.coverage >= MIN_COVERAGE)
    voters = np.flatnonzero(regular)
    voters = voters[np.argsort(stats.median[voters], kind="stable")]
    return [_make_level(stats, group) for group in _split_by_gap(voters, stats.median)]


def _split_by_gap(voters: Int64s, median: Int64s) -> list[Int64s]:
    """Return the classes, sorted by median gap, in groups of gaps up to 3 % above the group's smallest."""
    groups: list[Int64s] = []
    first = 0
    while first < len(voters):
        limit = median[voters[first]] * SAME_LEVEL + 1
        end = first + int(np.searchsorted(median[voters[first:]], limit, side="right"))
        groups.append(voters[first:end])
        first = end
    return groups


def _make_level(stats: _ClassStats, group: Int64s) -> RepeatLevel:
    gaps, votes = np.unique(stats.median[group], return_counts=True)
    anchor = group[np.argmax(stats.coverage[group] * stats.regularity[group])]
    anchors = stats.order[stats.offset[anchor] : stats.offset[anchor + 1]]
    coverage = float(np.quantile(stats.coverage[group], 0.9))
    return RepeatLevel(int(gaps[np.argmax(votes)]), coverage, len(group), anchors)


def _measure_classes(ids: npt.NDArray[np.int32]) -> _ClassStats:
    """Return the statistics of every class; O(n log n), O(n) memory."""
    order = _stable_order(ids)
    count = np.bincount(ids) if len(ids) else np.zeros(0, np.int64)
    offset = np.append(0, np.cumsum(count))
    owner = ids[order][1:]
    same = owner == ids[order][:-1]
    gap, owner = np.diff(order)[same], owner[same]
    median = _class_medians(gap, owner, count)
    tolerance = np.where(count > 6, 0.1 * median + 8, 0.02 * median + 4)  # few occurrences must agree better
    good = np.abs(gap - median[owner]) <= tolerance[owner]
    regular = np.bincount(owner, good, len(count))
    spanned = np.bincount(owner, gap * good, len(count)) + np.where(regular > 0, median, 0)
    return _ClassStats(
        order,
        offset,
        count,
        median,
        regular / np.maximum(1, count - 1),
        np.minimum(1.0, spanned / max(1, len(ids))),
    )


def _stable_order(values: npt.NDArray[np.integer]) -> Int64s:
    """Return the indices that sort the values stably; for 16-bit numbers numpy is five times faster."""
    small = values.astype(np.uint16) if len(values) and int(values.max()) < 1 << 16 else values
    return np.asarray(np.argsort(small, kind="stable"), np.int64)


def _by_owner_and_gap(owner: npt.NDArray[np.integer], gap: Int64s) -> Int64s:
    by_gap = _stable_order(gap)
    return by_gap[_stable_order(owner[by_gap])]


def _class_medians(gap: Int64s, owner: Int64s, count: Int64s) -> Int64s:
    ranked = gap[_by_owner_and_gap(owner, gap)]
    first = np.append(0, np.cumsum(np.maximum(count - 1, 0)))[:-1]
    median = np.zeros(len(count), np.int64)
    several = count >= 2
    median[several] = ranked[(first + (count - 2) // 2)[several]]
    return median
