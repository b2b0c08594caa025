"""The state of a matcher as bytes: all it needs to resume, checked field by field before it is used.

Layout, after the head of `SavedFormat`: sixteen int64: symbol width, period, four options, the position; then the
template and the symbols kept, `width` (2 or 4) bytes each; then hits and re-locks, an int64 per phase. The size is at
most 24 bytes per symbol of the template and 17,000 more, whatever the stream's length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining.anchors import MatchPlan
from deepprof.mining.saved_bytes import SavedFormat, read_array
from deepprof.mining.symbols import MAX_SYMBOL, SymbolArray

Int64Array: TypeAlias = npt.NDArray[np.int64]

NUMBERS = 16
FORMAT = SavedFormat(b"DPMATCH\0", "a", "matcher", 8 * NUMBERS)
FARTHEST = 2**62
"""The largest stream position, so that no sum of two positions overflows an int64."""


class MatcherPosition(NamedTuple):
    """Position of a matcher between two calls; dp_matcher_place and dp_matcher_resume in native.c use this order.

    Attributes:
        at: the next symbol to match; while lost, where the lock was lost.
        scan: while lost, the next k-gram to check; while locked, `at`.
        stop: one past the last symbol read.
        phase: place in the template with which `at` is compared.
        locked: 1 while locked, else 0.
        finished: 1 after the final call, else 0.
        first: where the current pass begins; -1 before any pass.
        matched: symbols matched in the current pass.
        edits: edits in the current pass.
        covered: one past the end of the last row; before any row, where the stream begins.
    """

    at: int
    scan: int
    stop: int
    phase: int
    locked: int
    finished: int
    first: int
    matched: int
    edits: int
    covered: int

    @classmethod
    def start(cls, at: int, *, locked: bool) -> MatcherPosition:
        """Return the position before the stream's first symbol, number `at`."""
        if not 0 <= at <= FARTHEST:
            raise ValueError(f"a stream begins at a position from 0 to 2^62, not {at}")
        return cls(at, at, at, 0, int(locked), 0, at if locked else -1, 0, 0, at)

    def kept(self, history: int) -> int:
        """Return how many of the symbols read a later call may still need."""
        if self.finished:
            return 0
        return self.stop - (self.at if self.locked else max(self.at, self.scan - history))


@dataclass(frozen=True, slots=True)
class MatcherSnapshot:
    """The whole state of a matcher, with the options as given and the counts per phase."""

    template: SymbolArray
    options: tuple[int, ...]
    place: MatcherPosition
    tail: SymbolArray
    hits: Int64Array
    relocks: Int64Array

    def to_bytes(self) -> bytes:
        """Return the snapshot in the layout of this module."""
        numbers = (self.template.itemsize, self.template.size, *self.options, *self.place)
        return FORMAT.seal(np.array(numbers, np.int64), self.template, self.tail, self.hits, self.relocks)

    @classmethod
    def from_bytes(cls, data: bytes) -> MatcherSnapshot:
        """Return the snapshot in these bytes, not yet checked: `check` must be called on it.

        Raises:
            ValueError: for bytes that are not in the layout, or of another version.
        """
        body = FORMAT.open(data)
        width, period, *rest = read_array(body, np.int64, NUMBERS, 0).tolist()
        if width not in (2, 4) or period < 1:
            raise FORMAT.damaged(f"it cannot hold {period} symbols of {width} bytes")
        tail, odd = divmod(len(body) - FORMAT.least_nbytes - (width + 16) * period, width)
        if tail < 0 or odd:
            raise FORMAT.damaged(f"{len(data)} bytes are not what a template of {period} symbols takes")
        symbols = read_array(body, f"u{width}", period + tail, FORMAT.least_nbytes)
        hits, relocks = read_array(body, np.int64, 2 * period, len(body) - 16 * period).reshape(2, period)
        return cls(symbols[:period], tuple(rest[:4]), MatcherPosition(*rest[4:]), symbols[period:], hits, relocks)


def check(snapshot: MatcherSnapshot, plan: MatchPlan) -> None:
    """Raise an error for a snapshot that no matcher with this plan can have written; otherwise every number is safe.

    Raises:
        ValueError: stating what is inconsistent.
    """
    FORMAT.check(_claims(snapshot, plan))


def _claims(snapshot: MatcherSnapshot, plan: MatchPlan) -> dict[str, bool]:
    place, counts = snapshot.place, (snapshot.hits, snapshot.relocks)
    behind = place.stop - place.at if place.locked else place.stop - place.scan
    return {
        "its symbols": snapshot.template.dtype == plan.cyclic.dtype and _largest(snapshot.tail) <= MAX_SYMBOL,
        "its flags": {place.locked, place.finished} <= {0, 1},
        "its positions": 0 <= place.at <= place.scan <= place.stop <= FARTHEST,
        "its lock": not place.locked or place.scan == place.at,
        "its phase": 0 <= place.phase < plan.period,
        "its pass": _is_pass(place, plan.period),
        "what it keeps": snapshot.tail.size == place.kept(plan.history),
        "what it has left to read": place.finished == 1 or behind < (plan.lookahead if place.locked else plan.anchor),
        "its counts": all(int(count.min()) >= 0 and int(count.max()) <= place.stop for count in counts),
    }


def _largest(symbols: SymbolArray) -> int:
    return int(symbols.max()) if symbols.size else 0


def _is_pass(place: MatcherPosition, period: int) -> bool:
    """Return whether the current pass, or its absence before the first lock, is consistent with the rest."""
    before = place.at if place.first < 0 else place.first
    if not 0 <= place.covered <= (place.stop if place.finished else before):
        return False
    if place.first < 0:
        return place.first == -1 and not place.locked and place.phase == place.matched == place.edits == 0
    seen = place.at - place.first
    return 0 <= place.matched <= min(seen, period) and 0 <= place.edits <= seen + period
