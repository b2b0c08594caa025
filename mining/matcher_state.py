"""The state of a matcher as bytes: all it needs to resume, checked field by field before it is used.

Layout, little-endian: magic, version, CRC-32 of what follows; sixteen int64: symbol width, period, four options, the
position; then the template and the symbols kept, `width` (2 or 4) bytes each; then hits and re-locks, an int64 per
phase. The size is at most 24 bytes per symbol of the template and 17,000 more, whatever the stream's length.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining.symbols import MAX_SYMBOL, SymbolArray

if TYPE_CHECKING:
    from deepprof.mining.anchors import MatchPlan

Int64Array: TypeAlias = npt.NDArray[np.int64]

MAGIC, VERSION = b"DPMATCH\0", 1
FARTHEST = 2**62
"""The largest stream position, so that no sum of two positions overflows an int64."""

_HEAD, _NUMBERS = struct.Struct("<8sII"), struct.Struct("<16q")


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
        numbers = _NUMBERS.pack(self.template.itemsize, self.template.size, *self.options, *self.place)
        arrays = (self.template, self.tail, self.hits, self.relocks)
        body = b"".join([numbers, *(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays)])
        return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> MatcherSnapshot:
        """Return the snapshot in these bytes, not yet checked: `check` must be called on it.

        Raises:
            ValueError: for bytes that are not in the layout, or of another version.
        """
        body = _body(data)
        width, period, *rest = _NUMBERS.unpack_from(body)
        if width not in (2, 4) or period < 1:
            raise _damaged(f"it cannot hold {period} symbols of {width} bytes")
        tail, odd = divmod(len(body) - _NUMBERS.size - (width + 16) * period, width)
        if tail < 0 or odd:
            raise _damaged(f"{len(data)} bytes are not what a template of {period} symbols takes")
        at = _NUMBERS.size
        symbols = _stored(body, f"<u{width}", period + tail, at)
        counts = _stored(body, "<i8", 2 * period, at + symbols.nbytes)
        halves = symbols[:period], symbols[period:].copy(), counts[:period], counts[period:]
        return cls(halves[0], tuple(rest[:4]), MatcherPosition(*rest[4:]), *halves[1:])


def _body(data: bytes) -> bytes:
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        raise ValueError("these bytes are not the saved state of a matcher")
    _, version, checksum = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"the saved state of the matcher is of version {version}; this program reads {VERSION}")
    body = data[_HEAD.size :]
    if len(body) < _NUMBERS.size or zlib.crc32(body) != checksum:
        raise _damaged("length or checksum is wrong")
    return body


def _stored(body: bytes, dtype: str, count: int, at: int) -> npt.NDArray[Any]:
    """Return `count` numbers from byte `at` on, copied in the machine's own byte order."""
    stored = np.frombuffer(body, dtype, count, at)
    return stored.astype(stored.dtype.newbyteorder("="))


def check(snapshot: MatcherSnapshot, plan: MatchPlan) -> None:
    """Raise an error for a snapshot that no matcher with this plan can have written; otherwise every number is safe.

    Raises:
        ValueError: stating what is inconsistent.
    """
    for what, holds in _claims(snapshot, plan).items():
        if not holds:
            raise _damaged(f"{what} cannot be")


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


def _damaged(why: str) -> ValueError:
    return ValueError(f"the saved state of the matcher is truncated or damaged: {why}")
