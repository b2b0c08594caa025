"""Match a stream against the template of one iteration, and find where every pass over it begins and ends.

DeepProf's Algorithm 1 (Gu et al., 2017, section IV-C) tolerates inserted operations only. This matcher tolerates
insertions, deletions and substitutions, resumes after foreign stretches, and reads the stream in chunks of any size.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from deepprof.mining import native
from deepprof.mining.anchors import plan_match
from deepprof.mining.matcher_state import MatcherPosition, MatcherSnapshot, check
from deepprof.mining.matching_native import NativeEngine
from deepprof.mining.matching_numpy import NumpyEngine
from deepprof.mining.symbols import MAX_SYMBOL, SymbolArray, Symbols, as_symbols

if TYPE_CHECKING:
    from collections.abc import Iterable

Int64Array: TypeAlias = npt.NDArray[np.int64]


@dataclass(slots=True)
class Matches:
    """Passes over the template, int64 arrays with one row per pass, in stream order, never overlapping.

    Treat it as read-only; it is not frozen because making a frozen instance for every chunk takes longer than matching
    the chunk.

    Attributes:
        first: position in the stream where the pass begins (template phase 0, where the stream has it).
        end: one past its last symbol.
        matched: symbols equal to the template's. Fewer than the template's length in a pass that is cut by the start
            or end of the stream, broken off, or edited.
        edits: an upper bound of the edit distance within what was seen of the pass: at each difference the larger of
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
        self._engine: _Engine = NumpyEngine(self._plan) if found is None else NativeEngine(self._plan, found)
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
        """How often a new pass started at each phase after the lock was lost; int64, one per template phase."""
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
