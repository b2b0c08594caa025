"""The recent past of a stream's evidence, cut to any window of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from deepprof.mining.evidence import Evidence, Family, Trust
from deepprof.mining.matcher_state import FARTHEST
from deepprof.mining.online.ring import Ring

Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

SIGNALS: dict[str, type[np.generic]] = {
    "gaps": np.float64,
    "launch_gaps": np.float64,
    "copies": np.bool_,
    "syncs": np.bool_,
    "graphs": np.bool_,
}
MAX_FAMILIES = 64
MAX_NAMES = 1 << 20
"""Symbols that can be marked as an optimizer's."""
NOTHING = Evidence()


def check_evidence(evidence: Evidence | None, length: int) -> Evidence:
    """Return the evidence of a chunk of `length` symbols with all arrays in their types.

    Raises:
        ValueError: for arrays of another length or type, gaps that are negative, infinite or NaN, and ranges that begin
            after the chunk.
    """
    if evidence is None:
        return NOTHING
    signals: dict[str, Any] = {name: _signal(name, getattr(evidence, name), length) for name in SIGNALS}
    families = tuple(_family(family, length) for family in evidence.families)
    if not 0 <= evidence.start <= FARTHEST:
        raise ValueError(f"evidence: start must be a position in the stream, not {evidence.start}")
    return replace(evidence, **signals, optimizer=_optimizer(evidence.optimizer), families=families)


def _signal(name: str, values: npt.NDArray[Any] | None, length: int) -> npt.NDArray[Any] | None:
    if values is None:
        return None
    array = np.asarray(values)
    if array.shape != (length,):
        raise ValueError(f"evidence: {name} must have one entry for each of the {length} symbols, not {array.shape}")
    if SIGNALS[name] is np.bool_:
        return _marks(name, array)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"evidence: {name} must be numbers, not {array.dtype}")
    if length and not (array.min() >= 0 and array.max() < np.inf):
        raise ValueError(f"evidence: {name} must not be negative, infinite or NaN")
    return array.astype(np.float64)


def _marks(name: str, array: npt.NDArray[Any]) -> Bools:
    if array.dtype != np.bool_ or array.ndim != 1:
        raise ValueError(f"evidence: {name} must be booleans in one dimension, not {array.ndim} of {array.dtype}")
    return array


def _optimizer(values: Bools | None) -> Bools | None:
    if values is None:
        return None
    if len(marks := _marks("optimizer", np.asarray(values))) > MAX_NAMES:
        raise ValueError(f"evidence: optimizer marks {len(marks)} symbols, {MAX_NAMES} at most can be")
    return marks


def _family(family: Family, length: int) -> Family:
    positions = _positions(family.name, family.positions)
    ends = None if family.ends is None else _positions(family.name, family.ends)
    if family.trust not in get_args(Trust):
        raise ValueError(f"evidence: the ranges {family.name} have an unknown trust, {family.trust}")
    if not (math.isfinite(family.coverage) and math.isfinite(family.telling)):
        raise ValueError(f"evidence: coverage and telling of the ranges {family.name} must be finite numbers")
    if ends is not None and ends.shape != positions.shape:
        raise ValueError(f"evidence: {len(positions)} of the ranges {family.name} begin, but {len(ends)} end")
    if len(positions) and positions.max() >= length:
        raise ValueError(f"evidence: a range {family.name} begins behind the chunk; give it with a later one")
    return replace(family, positions=positions, ends=ends)


def _positions(name: str, values: npt.NDArray[Any]) -> Int64s:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"evidence: the positions of the ranges {name} must be integers in one dimension")
    if array.size and not -FARTHEST <= int(array.min()) <= int(array.max()) <= FARTHEST:
        raise ValueError(f"evidence: the positions of the ranges {name} must lie within the stream")
    return array.astype(np.int64)


@dataclass(slots=True, eq=False)
class RecentEvidence:
    """The evidence on the last `size` symbols: rings along the stream, and the ranges that reach into these symbols.

    An array is part of a window's evidence when it was given for each of the window's symbols. `start` is where the
    capture began. A family keeps its `size` newest ranges; names beyond the first 64 are left out.
    """

    size: int
    signals: dict[str, Ring[Any]]
    families: dict[str, Family]
    optimizer: Bools | None = None
    start: int = 0

    @classmethod
    def empty(cls, size: int) -> RecentEvidence:
        """Return the evidence before the first symbol."""
        return cls(size, {}, {})

    def append(self, evidence: Evidence, first: int, end: int, at: int) -> None:
        """Append the part [first, end) of a chunk, checked before, whose first symbol is at `at` in the stream.

        The part [0, 0), to be appended first, contains the ranges that began in earlier chunks.
        """
        if evidence is NOTHING:
            if end > first:
                self.signals.clear()
            return
        for name, dtype in SIGNALS.items():
            values = getattr(evidence, name)
            if values is not None:
                ring = self.signals.setdefault(name, Ring(self.size, dtype, at + first))
                ring.append(values[first:end])
            elif end > first:
                self.signals.pop(name, None)
        self._mark(evidence.optimizer)
        if at == first == 0:
            self.start = max(self.start, evidence.start)
        for family in evidence.families:
            self._add(family, first, end, at)

    def window(self, first: int, end: int, largest: int) -> Evidence:
        """Return the evidence on the symbols [first, end), the largest of which is `largest`; without later ranges."""
        signals: dict[str, Any] = {
            name: ring.read(first, end)
            for name, ring in self.signals.items()
            if ring.begin <= first and ring.end >= end
        }
        families = (self.families[name] for name in sorted(self.families))
        return Evidence(
            **signals,
            optimizer=self._marks_up_to(largest),
            families=tuple(_begun_before(family, end).between(first, end) for family in families),
            start=max(0, self.start - first),
        )

    def _mark(self, marks: Bools | None) -> None:
        if marks is None:
            return
        if self.optimizer is None or len(self.optimizer) < len(marks):
            self.optimizer = _padded(self.optimizer, len(marks))
        self.optimizer[: len(marks)] |= marks

    def _marks_up_to(self, largest: int) -> Bools | None:
        if self.optimizer is None or largest >= MAX_NAMES:
            return None
        return _padded(self.optimizer, max(largest + 1, len(self.optimizer)))

    def _add(self, family: Family, first: int, end: int, at: int) -> None:
        """Append the family's ranges that begin in [first, end), or, with [0, 0), in an earlier chunk."""
        begun = (family.positions < end) & ((family.positions >= first) | (end == 0))
        old = self.families.get(family.name)
        if old is None and len(self.families) >= MAX_FAMILIES:
            return
        new = _moved(family, begun, at)
        joined = new if old is None else _joined(old, new)
        reach = joined.positions + 1 if joined.ends is None else joined.ends
        kept = np.flatnonzero(reach > at + end - self.size)[-self.size :]
        self.families[family.name] = _moved(joined, kept, 0)


def _padded(marks: Bools | None, length: int) -> Bools:
    padded = np.zeros(length, np.bool_)
    if marks is not None:
        padded[: len(marks)] = marks
    return padded


def _begun_before(family: Family, end: int) -> Family:
    return _moved(family, np.argsort(family.positions, kind="stable")[: int((family.positions < end).sum())], 0)


def _moved(family: Family, which: Bools | npt.NDArray[np.intp], by: int) -> Family:
    ends = None if family.ends is None else family.ends[which] + by
    return replace(family, positions=family.positions[which] + by, ends=ends)


def _joined(old: Family, new: Family) -> Family:
    ends = None if old.ends is None or new.ends is None else np.concatenate([old.ends, new.ends])
    return replace(new, positions=np.concatenate([old.positions, new.positions]), ends=ends)
