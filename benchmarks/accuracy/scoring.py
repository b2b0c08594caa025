"""How right found loops are: period, count, and the F1 of boundaries with and without the best constant rotation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.accuracy.kernels import Ints
from benchmarks.accuracy.truth import Truth

NEAR = 2  # symbols: how far off a boundary may be
PERIOD = 0.01  # relative: how far off a period may be, and a boundary's phase
COUNT = 0.02  # relative: how far off the number of whole iterations may be, if it is more than one
RIGHT = 0.9  # F1 from which boundaries count as right
ROTATIONS = 5  # tried, the most frequent ones


class Found(Protocol):
    """What a found loop must show: its period, how sure it is, and the starts of its whole iterations."""

    @property
    def period(self) -> int: ...
    @property
    def confidence(self) -> float: ...
    @property
    def starts(self) -> Ints: ...


@dataclass(frozen=True)
class Score:
    """Everything from 0 to 1, so that a mean of scores is a score; `period` and `count` are 1 when within tolerance.

    `rotated` is the F1 of boundaries at the best constant rotation, `phase` without one. `right`: the period and the
    rotated boundaries are; `fully`: the phase is as well.
    """

    period: float = 0.0
    count: float = 0.0
    rotated: float = 0.0
    phase: float = 0.0
    right: float = 0.0
    fully: float = 0.0


def mean(scores: Sequence[Score]) -> Score:
    """Return the mean of every figure."""
    return Score(*np.mean([astuple(s) for s in scores], axis=0).tolist()) if scores else Score()


def best(scores: Sequence[Score]) -> Score:
    """Return the best score, right ones first."""
    return max(scores, key=lambda s: (s.fully, s.right, s.rotated + s.phase), default=Score())


def score_all(found: Sequence[Found], truths: Sequence[Truth]) -> Score:
    """Return the mean over the true loops, each with the found one that fits it best."""
    return mean([best([score(loop, truth) for loop in found]) for truth in truths])


def score(found: Found, truth: Truth) -> Score:
    """Return how right one found loop is about one true loop."""
    period = period_is_right(found.period, truth)
    whole = int(truth.whole.sum())
    count = abs(len(found.starts) - whole) <= max(1, COUNT * whole)
    rotated = rotated_f1(found.starts, truth)
    phase = boundary_f1(found.starts, truth, 0, max(NEAR, PERIOD * truth.period))
    right = period and rotated >= RIGHT
    return Score(period, count, rotated, phase, right, right and phase >= RIGHT)


def period_is_right(period: int, truth: Truth) -> bool:
    """Return whether it is within 1 % of the true one, or between the lengths of an iteration that grows."""
    return truth.shortest * (1 - PERIOD) <= period <= truth.longest * (1 + PERIOD)


def rotated_f1(starts: Ints, truth: Truth) -> float:
    """Return the F1 of boundaries within ±2 symbols at the best of the most frequent rotations."""
    return max((boundary_f1(starts, truth, r, NEAR) for r in rotations(starts, truth)), default=0.0)


def rotations(starts: Ints, truth: Truth) -> list[int]:
    """Return how far most found starts are from the true ones before and after them, less than a period."""
    if not len(starts):
        return []
    after = np.searchsorted(truth.starts, starts, side="right")
    ahead = starts - truth.starts[np.maximum(after - 1, 0)]
    behind = starts - truth.starts[np.minimum(after, len(truth.starts) - 1)]
    apart = np.concatenate([ahead, behind])
    values, votes = np.unique(apart[np.abs(apart) < truth.period - NEAR], return_counts=True)
    return [int(value) for value in values[np.argsort(-votes, kind="stable")][:ROTATIONS]]


def boundary_f1(starts: Ints, truth: Truth, rotation: int, near: float) -> float:
    """Return the F1 of found starts, moved back by `rotation`, with the starts of whole iterations.

    Iterations that the capture cuts count neither way. A rotated loop has one iteration less than the true one where
    the loop ends (or begins): that one is not held against it.
    """
    moved = starts - rotation
    cut = truth.starts[~truth.whole]
    moved = moved[~close(moved, cut, near)]
    wanted = truth.starts[truth.whole]
    met = close(wanted, moved, near)
    hits = min(int(met.sum()), int(close(moved, wanted, near).sum()))
    edge = slice(-1, None) if rotation > 0 else slice(0, 1)
    forgiven = int(abs(rotation) > NEAR and len(met) and not met[edge].any())
    total = len(moved) + len(wanted) - forgiven
    return 2 * hits / total if total else 0.0


def close(ones: Ints, others: Ints, near: float) -> npt.NDArray[np.bool_]:
    """Return which of `ones` have one of the sorted `others` within `near`."""
    if not len(others):
        return np.zeros(len(ones), bool)
    right = np.minimum(np.searchsorted(others, ones), len(others) - 1)
    left = np.maximum(right - 1, 0)
    distance: Ints = np.minimum(np.abs(others[right] - ones), np.abs(others[left] - ones))
    return distance <= near
