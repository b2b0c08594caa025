"""The matcher in Python and numpy: the fallback of matcher.h, and its oracle in tests.

It makes the same decisions and returns the same rows. Whole passes are compared many at a time; only differences and
short runs cost Python steps.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from deepprof.mining.anchors import MatchPlan
from deepprof.mining.matcher_state import MatcherPosition
from deepprof.mining.symbols import SymbolArray

Int64Array: TypeAlias = npt.NDArray[np.int64]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]

_BLOCK = 1 << 16
"""Symbols compared, or hashed, at a time."""
_HASH_BASE = 0x9E3779B97F4A7C15


class NumpyEngine:
    """The state of one match. Positions count from the start of the stream; the window contains [base, stop) of it."""

    def __init__(self, plan: MatchPlan) -> None:
        self.plan = plan
        self.hits = np.zeros(plan.period + 1, np.int64)
        self.relocks = np.zeros(plan.period, np.int64)
        self._anchors = _AnchorTable(plan)
        self._skips = _skips_by_preference(plan.insertions, plan.deletions)
        self._at = self._phase = self._lost_at = self._scan = 0
        self._locked = False
        self._first, self._matched, self._edits = -1, 0, 0
        self._covered = self._foreign = 0
        self._base = self._stop = 0
        self._window = plan.cyclic[:0]
        self._rows: list[tuple[int, int, int, int]] = []
        self._finished = False

    @property
    def lost(self) -> int:
        """Symbols since the lock was lost, 0 while locked."""
        return 0 if self._locked else self._stop - self._lost_at

    @property
    def place(self) -> MatcherPosition:
        """The position between two calls."""
        scan = self._at if self._locked else self._scan
        flags = int(self._locked), int(self._finished)
        running = self._first, self._matched, self._edits
        return MatcherPosition(self._at, scan, self._stop, self._phase, *flags, *running, self._covered)

    def resume(self, place: MatcherPosition) -> None:
        """Continue from this position, with the hits and re-locks as they are."""
        self._at = self._lost_at = place.at
        self._scan, self._stop, self._phase = place.scan, place.stop, place.phase
        self._locked, self._finished = bool(place.locked), bool(place.finished)
        self._first, self._matched, self._edits, self._covered = place[6:]
        self._base = self._needed_from()

    def advance(self, window: SymbolArray, *, final: bool) -> tuple[int, Int64Array, int]:
        """Read the window; return the number of symbols done, columns of shape (4, passes), and foreign symbols."""
        self._window, self._stop = window, self._base + window.size
        self._rows, self._foreign = [], 0
        self._read(final)
        if final:
            self._finish()
        base, self._base = self._base, self._needed_from()
        columns = np.array(self._rows, np.int64).reshape(-1, 4).T.copy()
        return self._base - base, columns, self._foreign

    def _read(self, final: bool) -> None:
        while self._at < self._stop:
            if not self._locked:
                if not self._find_anchor():
                    return
                continue
            self._follow_whole_passes()
            if self._follow():
                continue
            if self._at == self._stop or (not final and self._stop - self._at < self.plan.lookahead):
                return
            self._resynchronise()

    def _finish(self) -> None:
        self._emit(self._at if self._locked else self._lost_at)
        self._foreign += self._stop - self._covered
        self._covered = self._stop
        self._finished = True

    def _needed_from(self) -> int:
        if self._finished:
            return self._stop
        return self._at if self._locked else max(self._lost_at, self._scan - self.plan.history)

    def _stream(self, position: int, count: int) -> SymbolArray:
        start = position - self._base
        return self._window[start : start + count]

    # -- passes --

    def _emit(self, end: int) -> None:
        if self._first < 0 or end <= self._first:
            return
        self._rows.append((self._first, end, self._matched, self._edits))
        self._foreign += self._first - self._covered
        self._covered = end

    def _begin(self, first: int, edits: int) -> None:
        self._first, self._matched, self._edits = first, 0, edits

    # -- locked --

    def _follow_whole_passes(self) -> None:
        """Take as many equal passes as follow, a block of them per comparison; only at the very start of a pass."""
        period = self.plan.period
        while self._phase == 0 and self._matched == 0 and self._stop - self._at >= period:
            passes = min((self._stop - self._at) // period, max(1, _BLOCK // period))
            block = self._stream(self._at, passes * period).reshape(passes, period)
            differs = (block != self.plan.cyclic[:period]).any(axis=1)
            whole = int(differs.argmax()) if differs.any() else passes
            self._take_whole(whole)
            if whole < passes:
                return

    def _take_whole(self, passes: int) -> None:
        period = self.plan.period
        for _ in range(passes):
            self._matched = period
            self._at += period
            self._emit(self._at)
            self._begin(self._at, 0)
        self.hits[0] += passes
        self.hits[period] -= passes

    def _follow(self) -> bool:
        """Advance while stream and template agree, to the pass's end at most; return whether the pass is complete."""
        limit = min(self.plan.period - self._phase, self._stop - self._at)
        run = _equal_run(self._stream(self._at, limit), self.plan.cyclic[self._phase : self._phase + limit])
        self.hits[self._phase] += 1
        self.hits[self._phase + run] -= 1
        self._at, self._matched, self._phase = self._at + run, self._matched + run, self._phase + run
        if self._phase < self.plan.period:
            return False
        self._emit(self._at)
        self._begin(self._at, 0)
        self._phase = 0
        return True

    def _resynchronise(self) -> None:
        """Resume at the nearest place where both agree again, with the fewest symbols skipped; else lose the lock."""
        skip = self._find_skip()
        if skip is not None:
            self._skip(*skip)
            return
        self._locked = False
        self._lost_at = self._scan = self._at

    def _find_skip(self) -> tuple[int, int] | None:
        plan, confirm = self.plan, self.plan.confirm
        stream = self._stream(self._at, plan.lookahead)
        if stream.size < confirm:
            return None
        streams = sliding_window_view(stream, confirm)
        templates = sliding_window_view(plan.cyclic[self._phase : self._phase + plan.deletions + confirm + 1], confirm)
        inserted, deleted = self._skips[:, self._skips[0] < len(streams)]
        near = np.flatnonzero(streams[inserted, 0] == templates[deleted, 0])
        agree = near[(streams[inserted[near]] == templates[deleted[near]]).all(axis=1)]
        return (int(inserted[agree[0]]), int(deleted[agree[0]])) if agree.size else None

    def _skip(self, inserted: int, deleted: int) -> None:
        """Skip symbols of both; over a pass's end each pass gets as many stream symbols as template symbols it lost."""
        rest = self.plan.period - self._phase
        self._at += inserted
        self._phase += deleted
        if deleted >= rest:
            own = min(inserted, rest)
            self._edits += rest
            self._emit(self._at - inserted + own)
            self._phase -= self.plan.period
            self._begin(self._at - min(inserted - own, deleted - rest), deleted - rest)
        elif self._matched == 0:
            self._begin(self._at - min(inserted, deleted), deleted)
        else:
            self._edits += max(inserted, deleted)

    # -- lost --

    def _find_anchor(self) -> bool:
        """Lock at the first k-gram of the stream that is an anchor of the template; return whether one was found."""
        k = self.plan.anchor
        while self._stop - self._scan >= k:
            hit = self._anchors.find(self._stream(self._scan, _BLOCK + k - 1))
            if hit is not None:
                self._relock(self._scan + hit[0], hit[1])
                return True
            self._scan = min(self._scan + _BLOCK, self._stop - k + 1)
        return False

    def _relock(self, start: int, phase: int) -> None:
        """Lock again, as far before the k-gram as the symbols before it agree too."""
        most = min(phase, start - max(self._lost_at, start - self.plan.history))
        back = _equal_run(self._stream(start - most, most)[::-1], self.plan.cyclic[phase - most : phase][::-1])
        self._take_up(start - back, phase - back)

    def _take_up(self, start: int, phase: int) -> None:
        """Continue the same pass if the new place is ahead in it and near, else begin a new pass."""
        gap = start - self._lost_at
        same = self._first >= 0 and phase >= self._phase and gap <= self.plan.period
        if same and self._matched > 0:
            self._edits += max(gap, phase - self._phase)
        else:
            if self._first >= 0 and not same:
                self.relocks[phase] += 1
            self._emit(self._lost_at)
            self._begin(start - min(gap, phase), min(gap, phase))
        self._at, self._phase, self._locked = start, phase, True


class _AnchorTable:
    """Finds anchors of the template in a section of the stream: hashes first, then a comparison of the symbols."""

    def __init__(self, plan: MatchPlan) -> None:
        self._k = plan.anchor
        self._grams = sliding_window_view(plan.cyclic, self._k)[plan.phases]
        hashes = _gram_hashes(plan.cyclic, self._k)[plan.phases]
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._grams, self._phases = hashes[order], self._grams[order], plan.phases[order]

    def find(self, stream: SymbolArray) -> tuple[int, int] | None:
        """Return (offset, phase) of the first anchor in the stream, None without one."""
        hashes = _gram_hashes(stream, self._k)
        left = np.searchsorted(self._hashes, hashes, "left")
        known = self._hashes[np.minimum(left, self._hashes.size - 1)] == hashes
        for offset in np.flatnonzero(known).tolist():
            right = np.searchsorted(self._hashes, hashes[offset], "right")
            candidates = self._grams[left[offset] : right]
            equal = np.flatnonzero((candidates == stream[offset : offset + self._k]).all(axis=1))
            if equal.size:
                return offset, int(self._phases[left[offset] + equal[0]])
        return None


def _gram_hashes(symbols: SymbolArray, k: int) -> UInt64Array:
    """Return a 64-bit hash of the k symbols from every position on; combining halves, log2(k) passes suffice."""
    size = symbols.size - k + 1
    power, reach, length = symbols.astype(np.uint64) + np.uint64(1), 1, 0
    hashes = np.zeros(size, np.uint64)
    while True:
        if k & reach:
            hashes = _mix(hashes) + power[length : length + size]
            length += reach
        if length == k:
            return hashes
        power = _mix(power[:-reach]) + power[reach:]
        reach *= 2


def _mix(hashes: UInt64Array) -> UInt64Array:
    mixed = (hashes ^ (hashes >> np.uint64(32))) * np.uint64(_HASH_BASE)
    return mixed ^ (mixed >> np.uint64(29))


def _skips_by_preference(insertions: int, deletions: int) -> npt.NDArray[np.int64]:
    """Return all (inserted, deleted) pairs, shape (2, pairs): the substitution, then by sum, then by deletions."""
    inserted, deleted = (grid.ravel() for grid in np.meshgrid(range(insertions + 1), range(deletions + 1)))
    order = np.lexsort((deleted, inserted + deleted))[1:]
    pairs = np.stack([inserted[order], deleted[order]]).astype(np.int64)
    return np.concatenate([np.ones((2, 1), np.int64), pairs], axis=1)


def _equal_run(left: SymbolArray, right: SymbolArray) -> int:
    differs = left != right
    first = int(differs.argmax()) if differs.size else 0
    return first if differs.size and differs[first] else int(differs.size)
