"""Match a stream against the template of one iteration, and find where every pass over it begins and ends.

DeepProf's Algorithm 1 (Gu et al., 2017, section IV-C) tolerates inserted operations only. This matcher tolerates
insertions, deletions and substitutions, resumes after foreign sections, and reads the stream in chunks of any size.
"""

from __future__ import annotations

import ctypes
import operator
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from deepprof.mining import native
from deepprof.mining.anchors import plan_match
from deepprof.mining.matcher_state import MatcherPosition, MatcherSnapshot, check
from deepprof.mining.matching_numpy import NumpyEngine
from deepprof.mining.symbols import MAX_SYMBOL, SymbolArray, Symbols, as_symbols

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deepprof.mining.anchors import MatchPlan

Int64Array: TypeAlias = npt.NDArray[np.int64]

_SHORT = 1 << 14
"""Bytes of a window up to which a copy is faster than asking numpy for its address."""
_NO_ROWS = np.empty((4, 0), np.int64)
_FEWEST_ROWS, _MOST_ROWS = 1 << 10, 1 << 16
"""Rows that fit one call in C: at first, and at most; a call that fills them doubles their number."""


@dataclass(slots=True)
class Matches:
    """Passes over the template, int64 arrays with one row per pass, in stream order, never overlapping.

    Treat it as read-only; it is not frozen because making a frozen instance for every chunk lasts longer than matching
    the chunk.

    Attributes:
        first: position in the stream where the pass begins (template phase 0, where the stream has it).
        end: one past its last symbol.
        matched: symbols equal to the template's. Fewer than the template's length in a pass that is cut by the start
            or end of the stream, broken off, or edited.
        edits: an upper bound of the edit distance within what was seen of the pass: at every difference the larger of
            the stream symbols and the template symbols skipped.
        foreign: symbols outside every pass, counted once that is certain.
    """

    first: Int64Array
    end: Int64Array
    matched: Int64Array
    edits: Int64Array
    foreign: int

    @classmethod
    def from_rows(cls, rows: Int64Array, foreign: int) -> Matches:
        """Return the matches from an array of shape (passes, 4): first, end, matched, edits."""
        columns = rows.T.copy()
        return cls(columns[0], columns[1], columns[2], columns[3], foreign)

    @classmethod
    def join(cls, parts: Iterable[Matches]) -> Matches:
        """Return the matches of several calls to `Matcher.feed` as those of one."""
        listed = list(parts)
        rows = [np.stack([part.first, part.end, part.matched, part.edits], axis=1) for part in listed]
        return cls.from_rows(np.concatenate([np.empty((0, 4), np.int64), *rows]), sum(part.foreign for part in listed))

    def __len__(self) -> int:
        return self.first.size


class _Engine(Protocol):
    """What `Matcher` needs of the C engine or its numpy fallback."""

    hits: Int64Array
    relocks: Int64Array

    @property
    def lost(self) -> int:
        """Symbols since the lock was lost, 0 while locked."""
        ...

    @property
    def place(self) -> MatcherPosition:
        """The position between two calls."""
        ...

    def resume(self, place: MatcherPosition) -> None:
        """Continue from this position, with the hits and re-locks as they are."""
        ...

    def advance(self, window: SymbolArray, *, final: bool) -> tuple[int, Int64Array, int]:
        """Read the window; return the number of symbols done, columns of shape (4, passes), and foreign symbols."""
        ...


class Matcher:
    """Matches a stream that arrives in chunks; any chunking gives the same rows as one call.

    While locked to the template it compares memory, some 0.1 ns a symbol. At a difference it resumes at the nearest
    place where both agree again: a substitution first, then the fewest symbols skipped. Without such a place it is
    lost, and searches for an anchor: k symbols that occur only once in the template. Memory does not depend on the
    length of the stream.

    Args:
        template: symbols of one pass, from phase 0 on; at least one.
        insertions: stream symbols that one re-synchronisation may skip; 1,024 at most.
        deletions: template symbols that one re-synchronisation may skip; 1,024 at most.
        confirm: equal symbols that confirm a re-synchronisation (at most half the template, or 2 if that is more).
        anchor: length k of the anchors (at most half the template, or 2 if that is more; longer while none is unique).
        at: the stream position of the first symbol fed.
        locked: start locked, as right after a pass, so that the first symbol fed is expected to be the template's
            first; else an anchor must be found first.

    Raises:
        ValueError: for an empty template, symbols that `as_symbols` refuses, or options out of range.
    """

    def __init__(  # noqa: PLR0913  options by name
        self,
        template: Symbols,
        *,
        insertions: int = 64,
        deletions: int = 32,
        confirm: int = 8,
        anchor: int = 12,
        at: int = 0,
        locked: bool = False,
    ) -> None:
        self._options = tuple(map(operator.index, (insertions, deletions, confirm, anchor)))
        self._plan = plan_match(template, *self._options)
        found = native.library()
        self._engine: _Engine = NumpyEngine(self._plan) if found is None else _NativeEngine(self._plan, found)
        self._dtype = self._plan.cyclic.dtype
        self._nothing: SymbolArray = self._plan.cyclic[:0]
        self._tail = self._nothing
        self._finished = False
        self._engine.resume(MatcherPosition.start(operator.index(at), locked=locked))

    @property
    def period(self) -> int:
        """Symbols in the template."""
        return self._plan.period

    @property
    def hits(self) -> Int64Array:
        """Number of passes in which each phase matched; int64, one entry per template phase."""
        return np.cumsum(self._engine.hits[:-1])

    @property
    def relocks(self) -> Int64Array:
        """How often a new pass started at every phase after the lock was lost; int64, one per template phase."""
        return self._engine.relocks.copy()

    @property
    def lost(self) -> int:
        """Symbols of the stream since the lock was lost, 0 while locked; if large, the template is outdated."""
        return self._engine.lost

    def feed(self, symbols: Symbols, final: bool = False) -> Matches:
        """Read the next symbols; return the passes that ended, positions counted from the start of the stream.

        With `final` the stream ends here, and the current pass becomes the last row. For the next call it keeps at most
        insertions + confirm symbols while locked, and the last min(period, 4,096) + k while lost. Amortised O(1) per
        symbol, O(insertions × deletions) at a difference.

        Raises:
            ValueError: for symbols that `as_symbols` refuses, and after the final call.
        """
        if self._finished:
            raise ValueError("the stream has ended: a new one needs a new Matcher")
        window = as_symbols(symbols)
        if window.dtype is not self._dtype:
            window = self._plan.fit(window)
        if self._tail.size:
            window = np.concatenate([self._tail, window])
        done, columns, foreign = self._engine.advance(window, final=final)
        self._tail = window[done:].copy() if done < window.size else self._nothing
        self._finished = bool(final)
        return Matches(columns[0], columns[1], columns[2], columns[3], foreign)

    def save(self) -> bytes:
        """Return the matcher's whole state; the matcher that `restore` makes of it continues as this one would.

        The bytes are the same with and without the C library. Their number is O(period): at most 24 per symbol of the
        template and 17,000 more, however long the stream was. They contain no code, and `restore` checks all of them.
        """
        template, engine = self._plan.cyclic[: self.period], self._engine
        options = tuple(min(option, MAX_SYMBOL) for option in self._options)
        return MatcherSnapshot(template, options, engine.place, self._tail, self.hits, engine.relocks).to_bytes()

    @classmethod
    def restore(cls, data: bytes) -> Matcher:
        """Return the matcher whose state `save` has written; arbitrary bytes do no harm.

        Raises:
            ValueError: for any other bytes: of another version, truncated, damaged or inconsistent.
        """
        kept = MatcherSnapshot.from_bytes(data)
        insertions, deletions, confirm, anchor = kept.options
        matcher = cls(kept.template, insertions=insertions, deletions=deletions, confirm=confirm, anchor=anchor)
        check(kept, matcher._plan)
        matcher._go_on(kept)
        return matcher

    def _go_on(self, kept: MatcherSnapshot) -> None:
        self._engine.hits[:] = np.diff(kept.hits, prepend=0, append=0)
        self._engine.relocks[:] = kept.relocks
        self._engine.resume(kept.place)
        self._tail, self._finished = kept.tail, bool(kept.place.finished)


class _MatchOptions(TypedDict, total=False):
    """The options of `Matcher`, which describes them."""

    insertions: int
    deletions: int
    confirm: int
    anchor: int


def match(symbols: Symbols, template: Symbols, **options: Unpack[_MatchOptions]) -> Matches:
    """Return all passes over the template in a whole sequence: one `Matcher`, fed once. O(n)."""
    return Matcher(template, **options).feed(symbols, final=True)


class _NativeEngine:
    """The matcher in C: contains its state and frees it."""

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
