"""Iterations as ranges mark them, for loops that grow by this many kernels that no two iterations are alike.

A loss that is kept with its history makes every backward pass longer by the whole model. No iteration then repeats at
regular distances; only layers do. The ranges still show what an iteration is: the user's step markers, or the steps of
the only optimizer.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from deepprof.metrics.sequence import Sequence
from deepprof.mining.evidence import Evidence, Family, short
from deepprof.mining.iterations import Iterations
from deepprof.plurals import counted

Int64s = npt.NDArray[np.int64]

MIN_MARKED_ITERATIONS = 3  # iterations: fewer show no loop, as in the miner
MIN_MARKED_KERNELS = {"step": 1, "range": 1, "loop": 6}  # of an iteration, by the ranges' trust: others are left out
FED = 0.8  # of the user's other ranges that must copy from the host, or wait, as iterations do and layers do not
PREFIX = 8  # kernels that show where an iteration begins
RISING, MUCH = 0.9, 1.1  # share of iterations no shorter than the one before; length of the last over the first
CONFIDENCE = {"annotation": 0.9, "framework": 0.75}  # the user's marker; a range that usually comes once in each


class MarkedIterations(Struct, frozen=True):
    """Iterations between the ranges of one family, which is the user's or the framework's."""

    family: Family
    iterations: Iterations

    @property
    def source(self) -> Literal["annotation", "framework"]:
        """The origin of the ranges: `annotation` (the user) or `framework`."""
        return "framework" if self.family.trust == "loop" else "annotation"

    @property
    def grows(self) -> bool:
        """Whether nearly every iteration is at least as long as the one before, and the last ones much longer."""
        lengths = self.iterations.end - self.iterations.first
        rises = np.diff(lengths) >= 0
        return bool(rises.mean() >= RISING and np.median(lengths[-3:]) >= MUCH * np.median(lengths[:3]))

    @property
    def confidence(self) -> float:
        """Confidence that the iterations are right, 0..1."""
        return CONFIDENCE[self.source]

    @property
    def evidence(self) -> str:
        """The evidence for the iterations, in a sentence."""
        lengths = self.iterations.end - self.iterations.first
        least, most = int(lengths.min()), int(lengths.max())
        alike = f"{counted(least, 'kernel')} in each"
        counts = alike if least == most else f"they do not repeat, {least:,} to {counted(most, 'kernel')} in each"
        return f"{counted(len(lengths), 'iteration')} between {short(self.family.name)} ranges: {counts}"


def find_marked(sequence: Sequence, evidence: Evidence) -> MarkedIterations | None:
    """Return the iterations that step markers or one optimizer's steps mark, if there are three or more.

    Without them the user's ranges of one name count if all kernels are in them, and copies or waits in each.
    """
    family = _choose_family(evidence) or _choose_ranges(evidence, len(sequence.symbols))
    if family is None:
        return None
    first, end = _bounds_of_ends(family, sequence) if family.trust == "loop" else _bounds_of_steps(family)
    whole = end - first >= MIN_MARKED_KERNELS[family.trust]
    if whole.sum() < MIN_MARKED_ITERATIONS:
        return None
    return MarkedIterations(family, _measure_edits(sequence, first[whole], end[whole]))


def _choose_family(evidence: Evidence) -> Family | None:
    """Return the most frequent step markers, or else the optimizer's steps if there is only one optimizer."""
    enough = [family for family in evidence.families if len(family.positions) >= MIN_MARKED_ITERATIONS]
    steps = [family for family in enough if family.trust == "step"]
    optimizers = [family for family in enough if family.name.startswith("Optimizer.step#")]
    if steps:
        return max(steps, key=lambda family: len(family.positions))
    return optimizers[0] if len(optimizers) == 1 else None


def _choose_ranges(evidence: Evidence, count: int) -> Family | None:
    """Return the rarest of the user's ranges, three or more of one name, that hold all kernels and feed or read each.

    Layers have ranges, too, but only the first of them waits for its input.
    """
    known = [f for f in evidence.families if f.trust == "range" and len(f.positions) >= MIN_MARKED_ITERATIONS]
    return min((f for f in known if _holds_all(f, count) and _is_fed(f, evidence)), key=_count_ranges, default=None)


def _count_ranges(family: Family) -> int:
    return len(family.positions)


def _holds_all(family: Family, count: int) -> bool:
    if family.ends is None:
        return False
    bounds = np.append(family.positions, count)
    return bool(bounds[0] == 0 and np.array_equal(family.ends, bounds[1:]))


def _is_fed(family: Family, evidence: Evidence) -> bool:
    """Return whether most ranges have a copy from the host, or a wait for the device."""
    marks = [np.flatnonzero(each) for each in (evidence.copies, evidence.syncs) if each is not None]
    return any(
        len(np.unique(np.searchsorted(family.positions, at, "right"))) >= FED * len(family.positions) for at in marks
    )


def _bounds_of_steps(family: Family) -> tuple[Int64s, Int64s]:
    """Return where the ranges begin; the last iteration ends with its range."""
    last = family.positions[-1] if family.ends is None else family.ends[-1]
    return family.positions, np.append(family.positions[1:], last)


def _bounds_of_ends(family: Family, sequence: Sequence) -> tuple[Int64s, Int64s]:
    """Return the bounds of iterations that end with every range.

    The first one begins at the first occurrence of the kernels that begin the others; kernels before belong to none.
    """
    ends = family.positions
    prefix = _common_prefix(sequence.symbols, ends[ends < len(sequence.symbols)])
    before = sequence.symbols[: ends[0]]
    if not len(prefix) or len(before) < len(prefix):
        return ends[:-1], ends[1:]
    windows = np.lib.stride_tricks.sliding_window_view(before, len(prefix))
    at = np.flatnonzero((windows == prefix).all(axis=1))[:1]
    bounds = np.concatenate([at, ends])
    return bounds[:-1], bounds[1:]


def _common_prefix(symbols: npt.NDArray[np.uint32], begins: Int64s) -> npt.NDArray[np.uint32]:
    """Return the symbols that are the same from each of `begins` on, at most eight."""
    begins = begins[begins + PREFIX <= len(symbols)]
    if not len(begins):
        return symbols[:0]
    windows = symbols[begins[:, None] + np.arange(PREFIX)]
    same = np.append((windows == windows[0]).all(axis=0), False)
    return symbols[begins[0] : begins[0] + int(np.argmin(same))]


def _measure_edits(sequence: Sequence, first: Int64s, end: Int64s) -> Iterations:
    """Return complete iterations, with their edits against the one of median length.

    An upper bound: all symbols between the common ends.
    """
    lengths = end - first
    middle = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    template = sequence.symbols[first[middle] : end[middle]]
    segments = [sequence.symbols[begin:until] for begin, until in zip(first.tolist(), end.tolist(), strict=True)]
    alike = np.array([common_ends(segment, template) for segment in segments])
    whole: npt.NDArray[np.bool_] = np.ones(len(first), bool)
    return Iterations(first, end, alike, np.maximum(lengths, len(template)) - alike, whole)


def common_ends(one: npt.NDArray[np.uint32], other: npt.NDArray[np.uint32]) -> int:
    """Return how many symbols both have in common at the head, and in the rest at the tail."""
    shorter = min(len(one), len(other))
    head = int(np.argmin(np.append(one[:shorter] == other[:shorter], False)))
    rest = shorter - head
    tail = one[len(one) - rest :][::-1] == other[len(other) - rest :][::-1]
    return head + int(np.argmin(np.append(tail, False)))
