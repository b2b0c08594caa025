"""The matcher in C (matcher.h) as an engine of `Matcher`: allocates its memory, and makes one call per chunk."""

from __future__ import annotations

import ctypes
import weakref
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining import native
from deepprof.mining.anchors import MatchPlan
from deepprof.mining.matcher_state import MatcherPosition
from deepprof.mining.symbols import SymbolArray

Int64Array: TypeAlias = npt.NDArray[np.int64]

_SHORT = 1 << 14
"""Bytes of a window up to which a copy is faster than asking numpy for its address."""
_NO_ROWS = np.empty((4, 0), np.int64)
_FEWEST_ROWS, _MOST_ROWS = 1 << 10, 1 << 16
"""Rows that fit one call in C: at first, and at most; a call that fills them doubles their number."""


class NativeEngine:
    """The matcher in C: holds its state and frees it."""

    def __init__(self, plan: MatchPlan, library: ctypes.CDLL) -> None:
        self.hits = np.zeros(plan.period + 1, np.int64)
        self.relocks = np.zeros(plan.period, np.int64)
        self.lost = 0
        self._library = library
        self._feed, self._feed_short = library.dp_matcher_feed, library.dp_matcher_feed_short
        self._state = _new_state(plan, library, self.hits, self.relocks)
        self._handle = ctypes.c_void_p(self._state)
        # The finalizer keeps the arrays alive: the state writes into them until it is freed.
        weakref.finalize(self, _free_state, library, self._state, self.hits, self.relocks)
        self._report = np.zeros(4, np.int64)
        self._make_rows(_FEWEST_ROWS)

    def _make_rows(self, capacity: int) -> None:
        self._rows, self._capacity = np.empty((4, capacity), np.int64), capacity
        addresses = native.address(self._rows), native.address(self._report)
        self._library.dp_matcher_output(self._state, addresses[0], capacity, addresses[1])

    @property
    def place(self) -> MatcherPosition:
        """The position between two calls."""
        numbers = np.zeros(len(MatcherPosition._fields), np.int64)
        self._library.dp_matcher_place(self._state, native.address(numbers))
        return MatcherPosition(*numbers.tolist())

    def resume(self, place: MatcherPosition) -> None:
        """Continue from this position, with the hits and re-locks as they are."""
        numbers = np.array(place, np.int64)
        if self._library.dp_matcher_resume(self._state, native.address(numbers)) != 0:
            raise ValueError(f"no matcher can stand at {place}")
        self.lost = 0 if place.locked else place.stop - place.at

    def advance(self, window: SymbolArray, *, final: bool) -> tuple[int, Int64Array, int]:
        """Read the window; return the number of symbols done, columns of shape (4, passes), and foreign symbols."""
        count, done, foreign = self._read(window, final)
        full: list[Int64Array] = []
        while count == self._capacity:
            full.append(self._rows)
            self._make_rows(min(2 * count, _MOST_ROWS))
            count, further, outside = self._read(window[done:], final)
            done, foreign = done + further, foreign + outside
        rows = self._rows[:, :count] if count else _NO_ROWS
        return done, np.concatenate([*full, rows], axis=1) if full else rows.copy(), foreign

    def _read(self, window: SymbolArray, final: bool) -> tuple[int, int, int]:
        if window.nbytes <= _SHORT:
            self._feed_short(self._handle, window.tobytes(), window.size, 1 if final else 0)
        else:
            self._feed(self._state, native.address(window), window.size, 1 if final else 0)
        count, done, foreign, self.lost = self._report.tolist()
        return count, done, foreign


def _new_state(plan: MatchPlan, library: ctypes.CDLL, hits: Int64Array, relocks: Int64Array) -> int:
    numbers = (plan.period, plan.insertions, plan.deletions, plan.confirm, plan.anchor, plan.history)
    parameters = np.array(numbers, np.int32)
    cyclic, phases = plan.cyclic, plan.phases
    state = library.dp_matcher_new(
        cyclic.itemsize,
        *(native.address(cyclic), cyclic.size, native.address(parameters), native.address(phases), phases.size),
        *(native.address(hits), native.address(relocks)),
    )
    if state is None:
        raise MemoryError(f"no memory to match a template of {plan.period} symbols")
    return int(state)


def _free_state(library: ctypes.CDLL, state: int, *_arrays: Int64Array) -> None:
    library.dp_matcher_free(state)
