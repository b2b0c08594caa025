"""Turn the passes of a stream into iterations, each emitted as soon as no later symbol can change it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining.heads import align_head, begin_late_in
from deepprof.mining.iterations import WHOLE, Iterations, absorb_tails, join_halves
from deepprof.mining.matching import Matcher, Matches
from deepprof.mining.online.joining import JoinedVariants
from deepprof.mining.online.ring import Ring
from deepprof.mining.symbols import SymbolArray

Int64s: TypeAlias = npt.NDArray[np.int64]

SIZEABLE = 0.02  # of the period: the smallest part reported of an iteration that an end of the stream cuts
CONTEXT = 2  # passes before the open one that decide whether it may be joined with the next
Begin: TypeAlias = Literal["open", "cut", "first"]
NO_PASSES = np.empty((0, 4), np.int64)
NO_ITERATIONS = Iterations(*(np.empty(0, np.int64),) * 4, np.empty(0, np.bool_))


def _copy_last(rows: Iterations) -> Iterations:
    """Return the last iteration, in memory of its own."""
    return Iterations(
        rows.first[-1:].copy(),
        rows.end[-1:].copy(),
        rows.matched[-1:].copy(),
        rows.edits[-1:].copy(),
        rows.complete[-1:].copy(),
    )


def join_rows(one: Iterations, other: Iterations) -> Iterations:
    """Return the iterations of both, one after the other."""
    if not len(one.first):
        return other
    return Iterations(
        np.concatenate([one.first, other.first]),
        np.concatenate([one.end, other.end]),
        np.concatenate([one.matched, other.matched]),
        np.concatenate([one.edits, other.edits]),
        np.concatenate([one.complete, other.complete]),
    )


@dataclass(slots=True, eq=False)
class IterationSegmenter:
    """Turns passes into iterations as `to_iterations` does, but incrementally.

    Whether two passes are halves of one iteration is known with the pass after them, and where an iteration ends is
    known when the next one that counts has begun. So one iteration whose end is open is kept (`held`). After a broken
    pass at most three `passes` are kept: that one while it may still be joined, and before it `known` ones that are
    already settled.

    `opens` is set while a first fragment counts, as at the start of a stream. `cut` is set while the next iteration is
    the first after lost records; it is complete only when all of it was seen.
    """

    period: int
    opens: bool = True
    cut: bool = False
    passes: Int64s = field(default_factory=lambda: NO_PASSES)
    known: int = 0
    held: Iterations = NO_ITERATIONS

    def take(self, found: Matches) -> Iterations:
        """Return the iterations that became certain with these passes, of which there is at least one."""
        passes = self._with(found)
        joined = join_halves(Matches.from_rows(passes, 0), self.period)
        still_open = joined.first[-1] == passes[-1, 0] and self._is_broken(passes[-1])
        settled = _select_passes(joined, slice(-1)) if still_open else joined
        rows = join_rows(self.held, self._kept(settled, int(passes[self.known, 0])))
        following = passes[-1, 0] if still_open and 2 * passes[-1, 2] >= self.period else None
        self._remember(passes, still_open)
        return self._hold(rows, following)

    def goes_on_exactly(self, found: Matches) -> bool:
        """Return whether all passes match without edits, and follow each other and the held iteration without a gap."""
        if len(self.passes) or not len(self.held.end):
            return False
        length = len(found) * self.period
        if found.end[-1] - self.held.end[0] != length or found.first[0] != self.held.end[0]:
            return False
        return not found.edits.any() and int(found.matched.sum()) == length

    def take_exact(self, found: Matches) -> Iterations:
        """Do what `take` does, for passes that go on exactly: each iteration ends where the next one begins."""
        held, edits, complete = self.held, found.edits, np.ones(len(found), np.bool_)
        self.held = _copy_last(Iterations(found.first, found.end, found.matched, edits, complete))
        first = np.concatenate((held.first, found.first[:-1]))
        if held.edits[0] == 0 and held.matched[0] == self.period:
            return Iterations(first, found.first, found.matched, edits, complete)
        matched = np.concatenate((held.matched, found.matched[:-1]))
        complete = np.concatenate((held.complete, complete[:-1]))
        return Iterations(first, found.first, matched, np.concatenate((held.edits, edits[:-1])), complete)

    def close(self, found: Matches, *, whole_only: bool) -> Iterations:
        """Return the remaining iterations; the stream ends after these passes, or (`whole_only`) is interrupted.

        With `whole_only` the last pass is complete only when every symbol of the template was seen.
        """
        passes = self._with(found)
        rows = NO_ITERATIONS
        if self.known < len(passes):
            joined = join_halves(Matches.from_rows(passes, 0), self.period)
            rows = self._kept(joined, int(passes[self.known, 0]), closes=True)
        if whole_only and len(found) and len(rows.end) and rows.end[-1] == found.end[-1]:
            rows.complete[-1] &= rows.matched[-1] >= self.period
        rows = join_rows(self.held, rows)
        self.passes, self.known, self.held = NO_PASSES, 0, NO_ITERATIONS
        return absorb_tails(rows, self.period) if len(rows.first) else rows

    def release(self) -> Iterations:
        """Return the held iteration as it is, because another loop follows."""
        rows, self.held = self.held, NO_ITERATIONS
        return rows

    def _kept(self, passes: Matches, since: int, *, closes: bool = False) -> Iterations:
        """Return the passes from `since` on that count; a fragment counts at the start and the end of a stream."""
        new = passes.first >= since
        counts = 2 * passes.matched >= self.period
        complete = counts & (passes.matched + passes.edits >= WHOLE * self.period)
        sizeable = passes.matched >= max(1, SIZEABLE * self.period)
        if self.cut:
            complete[:1] &= passes.matched[:1] >= self.period
        if self.opens:
            counts[:1] |= sizeable[:1]
        if closes:
            counts[-1:] |= sizeable[-1:]
        if len(passes):
            self.opens = self.cut = False
        rows = Iterations(passes.first, passes.end, passes.matched, passes.edits, complete)
        return rows.select(new & counts)

    def _hold(self, rows: Iterations, following: int | None) -> Iterations:
        """Return the iterations whose end is certain; the last one's is certain once `following` is known."""
        if not len(rows.first):
            return rows
        if following is None:
            self.held = _copy_last(rows)
            return absorb_tails(rows, self.period).select(slice(-1))
        self.held = NO_ITERATIONS
        at = np.array([following])
        after = Iterations(at, at, np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.bool_))
        return absorb_tails(join_rows(rows, after), self.period).select(slice(-1))

    def _with(self, found: Matches) -> Int64s:
        new = np.stack([found.first, found.end, found.matched, found.edits], axis=1)
        return np.concatenate([self.passes, new]) if len(self.passes) else new

    def _remember(self, passes: Int64s, still_open: bool) -> None:
        """Keep the passes that decide whether the next is joined: broken ones, as a whole one joins no later one."""
        last = passes[-CONTEXT - still_open :]
        whole = np.flatnonzero(last[:, 2] >= WHOLE * self.period)
        self.passes = last[int(whole[-1]) + 1 if len(whole) else 0 :].copy()
        self.known = max(0, len(self.passes) - still_open)

    def _is_broken(self, row: Int64s) -> bool:
        return bool(row[2] < WHOLE * self.period)


def _select_passes(passes: Matches, which: slice) -> Matches:
    return Matches(passes.first[which], passes.end[which], passes.matched[which], passes.edits[which], passes.foreign)


class TemplateTracker:
    """Follows a stream along one template from the position `at` on.

    `good_end` is the end of the last pass that matched half of the template, `matched` the number of symbols that all
    such passes matched.

    Args:
        template: symbols of one iteration, from its first one on.
        joined: which symbols of the stream are variants of others.
        at: the stream position of the first symbol to come.
        ring: the stream's recent symbols, including a pass and what comes before it.
        begins: what is at that position: any symbol (`open`), any after lost records (`cut`), or an iteration's first.
    """

    def __init__(
        self, template: SymbolArray, joined: JoinedVariants, at: int, ring: Ring[Any], begins: Begin = "open"
    ) -> None:
        self.template = template
        self.joined = joined
        self.good_end = at
        self.matched = 0
        self.segmenter = IterationSegmenter(len(template), opens=begins != "first", cut=begins == "cut")
        self.matcher = Matcher(template, at=at, locked=begins == "first")
        self._begin = at
        self._ring = ring

    def feed(self, symbols: SymbolArray) -> Iterations:
        """Read the next symbols; return the iterations that became certain."""
        return self._settle(self.matcher.feed(self.joined.of(symbols)))

    def replay(self, symbols: SymbolArray) -> Iterations:
        """Do the same as `feed` for the first symbols, in which the template was found; align their head backwards."""
        symbols = self.joined.of(symbols)
        found = _shift(self.matcher.feed(symbols), -self._begin)
        return self._settle(_shift(align_head(symbols, self.template, found), self._begin))

    def close(self, *, whole_only: bool = False) -> Iterations:
        """Return the remaining iterations when the stream ends or (`whole_only`) is interrupted. The last call."""
        return self.segmenter.close(self.matcher.feed(self.template[:0], final=True), whole_only=whole_only)

    def release(self) -> Iterations:
        """Return the held iteration when another loop takes over."""
        return self.segmenter.release()

    def _read(self, first: int, end: int) -> SymbolArray | None:
        return self.joined.of(self._ring.read(first, end)) if first >= self._ring.begin else None

    def _settle(self, found: Matches) -> Iterations:
        if not len(found):
            return NO_ITERATIONS
        period = len(self.template)
        if self.segmenter.goes_on_exactly(found):
            self.good_end = int(found.end[-1])
            self.matched += len(found) * period
            return self.segmenter.take_exact(found)
        found = begin_late_in(self._read, self.template, found)
        good = np.flatnonzero(2 * found.matched >= period)
        if len(good):
            self.good_end = int(found.end[good[-1]])
            self.matched += int(found.matched[good].sum())
        return self.segmenter.take(found)


def _shift(passes: Matches, by: int) -> Matches:
    return Matches(passes.first + by, passes.end + by, passes.matched, passes.edits, passes.foreign)
