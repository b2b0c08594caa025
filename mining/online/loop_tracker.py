"""Decide which loop of a stream is followed: mined, reviewed, lost, found again; each decision at a fixed position."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deepprof.mining.iterations import Iterations
from deepprof.mining.loops import MinedLoop, MiningResult, find_loop
from deepprof.mining.matching import match
from deepprof.mining.online.drift import DriftWatch
from deepprof.mining.online.joining import JoinedVariants
from deepprof.mining.online.progress import NO_LOOP, IterationBatch, Kind, LockedLoop, MinerCounts, MinerEvent, State
from deepprof.mining.online.recent import RecentEvidence
from deepprof.mining.online.ring import Ring
from deepprof.mining.online.schedule import NEVER, DecisionSchedule
from deepprof.mining.online.template_tracker import TemplateTracker
from deepprof.mining.symbols import SymbolArray
from deepprof.plurals import counted

Int64s = npt.NDArray[np.int64]

SAME_PERIOD = 0.1  # relative: a larger difference is another level

AS_MUCH = 0.95  # of what a new template matches: an old one that matches this much is the same loop

NEAR = 0.02  # of the period: boundaries so close to each other are one

MIN_SAME_BOUNDARIES = 0.8  # of the boundaries that must be near others

MIN_WINDOW, MAX_WINDOW = 1 << 10, 1 << 20

PIECE = 4  # parts of the window: the ring reads at most one part at a time
MAX_EVENTS, MAX_KNOWN = 256, 4
LOST_PERIODS, LOST_PART = 4, 16  # periods, or part of the window if longer, without a good iteration: the loop is lost
ALIVE = 0.75  # of that wait may have passed since the last iteration of a loop that was mined
CLEAR_ITERATIONS, CLEAR_SHARE = 8, 0.7  # required of an early attempt: exact iterations, and what all of them match
BACK = 0.8  # of the symbols: a loop followed before is back when it matches this much
STRONGER = 1.5  # times what the current loop matches: another loop must match this much to replace it

THIN = 0.5  # of the symbols: when a loop matches less, another one may be there
PATIENT, MOST_PATIENT = 4, 32  # waits that it may match so little before that is examined, at first and at most


class LoopTracker:
    """Follows one loop at a time through the symbols it is given, and collects iterations and events.

    A section of the stream begins at its start, at a gap, or where a loop was last seen. Its symbols are mined until
    there is a loop. The loop is followed from the start of the section, and reviewed in larger windows of the section.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.ended = False
        self.ring: Ring[Any] = Ring(2 * window, np.uint16)
        self.evidence = RecentEvidence.empty(2 * window)
        self.schedule = DecisionSchedule(window)
        self.schedule.plan_attempt(0)
        self.state: State = "learning"
        self.lock: LockedLoop | None = None
        self.tracker: TemplateTracker | None = None
        self.watch = MatchWatch()
        self.drift = DriftWatch()
        self.known: list[LockedLoop] = []
        self.last_gap = -1
        self.loops = 0
        self.counts = MinerCounts()
        self.events: deque[MinerEvent] = deque(maxlen=MAX_EVENTS)
        self.given: list[IterationBatch] = []

    # -- reading --

    @property
    def position(self) -> int:
        """Symbols read."""
        return self.ring.end

    def read(self, symbols: SymbolArray) -> None:
        """Read symbols, at most up to the next decision, and at most a quarter of the window."""
        if symbols.dtype.itemsize > self.ring.dtype.itemsize:
            self.ring.widen(symbols.dtype)
        self.ring.append(symbols)
        if self.tracker is not None:
            self._settle(self.tracker.feed(symbols))
        if self.position == self.schedule.due:
            self._decide()

    def interrupt(self, why: str) -> None:
        """Cut the stream here: records are missing, and no iteration may span the gap.

        A loop that is clear in the section so far is followed from the start of the section: sections may be shorter
        than the time to the next attempt.
        """
        if self.state != "locked" and not self._is_back and self.position > self._stretch:
            self._learn_before_gap()
        at = self.last_gap = self.position
        self._say("gap", why)
        if self.tracker is not None:
            lock = self._followed
            self._give(self.tracker.close(whole_only=True))
            self.tracker = TemplateTracker(lock.template, lock.joined, at, self.ring, "cut")
            self._keep_watch()
        self._count_foreign(at)
        self.drift.reset()
        self.schedule.restart(at)
        if self.state != "locked":
            self.schedule.plan_attempt(at)

    def _learn_before_gap(self) -> None:
        first = self._stretch
        loop = self._mine(first).loop
        if loop is not None and self._is_clear(loop, first):
            self._release()
            self._switch_to(loop, first)

    def close(self) -> None:
        """End the stream; without a loop, the current section is mined once more."""
        self.ended = True
        if self.state != "locked" and not self._is_back:
            first = self._stretch
            mined = self._mine(first, closes=True)
            if mined.loop is not None:
                self._release()
                self._switch_to(mined.loop, first)
        if self.tracker is not None:
            self._give(self.tracker.close())
        self._count_foreign(self.position)
        self.evidence = RecentEvidence.empty(self.evidence.size)  # frees most of the memory; nothing is mined any more

    def _settle(self, rows: Iterations) -> None:
        """Emit iterations; where they have changed, follow the symbols after them with the new template."""
        while self.state == "locked" and (change := self.drift.look(rows, self._look_back, self._reach)) is not None:
            self._give(rows.select(slice(change.row + 1)))
            at = int(rows.end[change.row])
            self.lock = replace(self._followed, template=change.template)
            self._say("drift", change.why, at)
            self.tracker = TemplateTracker(change.template, self.lock.joined, at, self.ring, "first")
            self.watch.start(at, 0)
            rows = self.tracker.feed(self.ring.read(at, self.position))
        self._give(rows)

    def _look_back(self, first: int, end: int) -> SymbolArray:
        return self._followed.joined.of(self.ring.read(first, end))

    @property
    def _reach(self) -> int:
        """Symbols back that drift detection may read, whatever the chunks.

        The ring may have moved on by a piece, and by the interval between two checks of the loop, which was planned
        when its iterations may have been longer.
        """
        return 2 * self.window - self.window // PIECE - self._interval - 2 * self._wait

    def _give(self, rows: Iterations) -> None:
        """Emit iterations, but none that overlaps with those emitted before."""
        if len(rows.first) and rows.first[0] < self.counts.given:
            rows = rows.select(rows.first >= self.counts.given)
        if not len(rows.first):
            return
        self.counts.iterations += len(rows.first)
        self._count_foreign(int(rows.end[-1]), int((rows.end - rows.first).sum()))
        self.given.append(IterationBatch.of(rows, self._followed.number))

    def _release(self) -> None:
        """Emit the last iteration of a loop that has ended."""
        if self.tracker is not None:
            self._give(self.tracker.release())

    def _count_foreign(self, until: int, covered: int = 0) -> None:
        self.counts.foreign += until - self.counts.given - covered
        self.counts.given = until

    # -- deciding --

    @property
    def _followed(self) -> LockedLoop:
        if self.lock is None:
            raise RuntimeError("no loop is followed")
        return self.lock

    @property
    def _wait(self) -> int:
        """Symbols without a good iteration after which a loop is lost."""
        return _wait_for(self._followed.period, self.window)

    @property
    def _interval(self) -> int:
        """Symbols between two checks while good iterations are seen."""
        return max(self._wait, self.window // PIECE)

    @property
    def _is_back(self) -> bool:
        """Whether a good iteration was seen since the loop was lost."""
        return self.tracker is not None and self.tracker.good_end > self.schedule.start

    @property
    def _stretch(self) -> int:
        return max(self.schedule.start, self.ring.begin)

    def _decide(self) -> None:
        at = self.position
        if at == self.schedule.watch and self.tracker is not None:
            self._check(self.tracker)
        if at == self.schedule.review:
            self._review()
        if at == self.schedule.attempt:
            self._attempt()

    def _check(self, tracker: TemplateTracker) -> None:
        at, before = self.position, self.watch.at
        if self.state == "lost" and self._is_back:
            self._resume()
        elif self.state == "lost":
            self.schedule.watch = at + self._wait
        elif at >= tracker.good_end + self._wait:
            self._lose(tracker.good_end)
        else:
            self.schedule.watch = self._next_watch(tracker)
            if self.watch.look(at, tracker.matched, self._followed.period):
                self._doubt(before)

    def _lose(self, good: int) -> None:
        """Mark the loop as lost: mine what has come instead, but keep watching for it."""
        self._say("lost", f"no good iteration since {good}")
        self.state = "lost"
        self.drift.reset()
        schedule = self.schedule
        schedule.start, schedule.attempt, schedule.review = good, self.position, NEVER
        schedule.watch = self.position + self._wait

    def _resume(self) -> None:
        self.state, self.schedule.attempt = "locked", NEVER
        self._keep_watch()
        self.schedule.go_on(self.position)
        self._say("lock", "the loop is back")

    def _keep_watch(self) -> None:
        if self.tracker is not None:
            self.watch.start(self.position, self.tracker.matched)
            self.schedule.watch = self._next_watch(self.tracker)

    def _next_watch(self, tracker: TemplateTracker) -> int:
        """Return when the loop would be lost; while good iterations are seen, a later position, as each check costs."""
        at, period = self.position, self._followed.period
        is_well = at - tracker.good_end < period
        return at + self._interval if is_well else max(tracker.good_end + self._wait, at + 1)

    def _doubt(self, since: int) -> None:
        """Follow a former loop that is back, or after some time another one; little was matched recently."""
        first = max(since, self.ring.begin)
        symbols = self.ring.read(first, self.position)
        back = next((known for known in self.known if known.explains(symbols) >= BACK * len(symbols)), None)
        if back is not None:
            self._replace(back, first)
        elif self.watch.is_due(self._wait):
            first = max(self.watch.since, self.ring.begin)
            loop = self._mine(first).loop
            if loop is not None and self._is_alive(loop, first) and self._is_stronger(loop, first):
                self._switch_to(loop, first)

    def _is_stronger(self, loop: MinedLoop, first: int) -> bool:
        ours = self._followed.explains(self.ring.read(first, self.position))
        return int(loop.iterations.matched.sum()) >= STRONGER * ours

    def _attempt(self) -> None:
        if self._is_back:
            self._resume()
            return
        first = self._stretch
        loop = self._mine(first).loop
        if loop is not None and self._convinces(loop, first):
            self._release()
            self._switch_to(loop, first)
        else:
            self.schedule.plan_attempt(self.position)

    def _convinces(self, loop: MinedLoop, first: int) -> bool:
        """Return whether the loop still runs, and is clear if only few symbols were seen."""
        if not self._is_alive(loop, first) or not self.schedule.is_early(self.position):
            return self._is_alive(loop, first)
        return self._is_clear(loop, first)

    def _is_clear(self, loop: MinedLoop, first: int) -> bool:
        """Return whether many iterations have no edits, and all iterations match most of what came since `first`."""
        rows = loop.iterations
        exact = int((rows.complete & (rows.edits == 0)).sum())
        return exact >= CLEAR_ITERATIONS and int(rows.matched.sum()) >= CLEAR_SHARE * (self.position - first)

    def _is_alive(self, loop: MinedLoop, first: int) -> bool:
        unseen = self.position - first - int(loop.iterations.end[-1])
        return unseen <= ALIVE * _wait_for(loop.period, self.window)

    def _review(self) -> None:
        """Mine a larger window, and correct the loop if another level is the iteration, or if it begins elsewhere."""
        first = self._stretch
        mined = self._mine(first)
        self.schedule.next_review()
        self.lock = lock = replace(self._followed, reviewed=self.schedule.review == NEVER)
        loop = mined.loop
        if loop is None:
            self._say("review", mined.reason or "")
            return
        new = self._new_lock(loop, first, lock.number)
        if new.is_mined_like(lock):
            self.lock = replace(lock, confidence=loop.confidence, evidence=loop.evidence)
            self._say("review", "the same iteration in a larger window")
        elif self._is_alive(loop, first) and self._corrects(new, first):
            self._say("review", f"another iteration in a larger window, {counted(loop.period, 'kernel')}")
            self._correct(loop, first)
        else:
            self._say("review", f"{counted(loop.period, 'kernel')} in a larger window explain less of what runs now")

    def _corrects(self, new: LockedLoop, first: int) -> bool:
        """Return whether a newly mined template should replace one that may have changed since it was mined."""
        lock = self._followed
        recent = self.ring.read((first + self.position) // 2, self.position)
        return not lock.has_drifted or _is_better(new, lock, recent)

    # -- mining, and following what was found --

    def _mine(self, first: int, *, closes: bool = False) -> MiningResult:
        symbols = self.ring.read(first, self.position)
        known = self.evidence.window(first, self.position, int(symbols.max(initial=0)))
        known = replace(known, opens=first == 0 and not self.counts.gaps, closes=closes)
        return find_loop(symbols, known, windows=(self.window, 2 * self.window))

    def _switch_to(self, loop: MinedLoop, first: int) -> None:
        """Follow a loop after another one, or none; a loop that was followed before keeps its number and template."""
        former = [*self.known, *([] if self.lock is None else [self.lock])]
        lock = _recognise(loop, reversed(former), self.ring.read(first, self.position))
        self._replace(lock or self._new_lock(loop, first, self.loops), first)

    def _correct(self, loop: MinedLoop, first: int) -> None:
        """Follow a loop that corrects the current one; it keeps the number if its iterations are about as long."""
        old = self._followed
        if _is_same_level(loop.period, old.period):
            self._follow(replace(self._new_lock(loop, first, old.number), reviewed=old.reviewed), first)
        else:
            self._switch_to(loop, first)

    def _new_lock(self, loop: MinedLoop, first: int, number: int) -> LockedLoop:
        joined = JoinedVariants.seen_in(loop, self.ring.read(first, self.position))
        return LockedLoop(number, loop.template, loop.template, loop.confidence, loop.evidence, loop.source, joined)

    def _replace(self, lock: LockedLoop, first: int) -> None:
        """Follow another loop from `first` on, and remember the one that was followed."""
        former = [*self.known, *([] if self.lock is None else [self.lock])]
        self.known = [known for known in former if known.number != lock.number][-MAX_KNOWN:]
        self.loops = max(self.loops, lock.number + 1)
        self._follow(lock, first)
        self.schedule.start = first
        self.schedule.begin_reviews(self.position, done=lock.reviewed)

    def _follow(self, lock: LockedLoop, first: int) -> None:
        """Follow a loop from `first` on."""
        self.lock, self.state = lock, "locked"
        self.drift.reset()
        self._say("lock", lock.evidence)
        self.tracker = TemplateTracker(
            lock.template, lock.joined, first, self.ring, "cut" if first == self.last_gap else "open"
        )
        self._settle(self.tracker.replay(self.ring.read(first, self.position)))
        self.schedule.attempt = NEVER
        self._keep_watch()

    def _say(self, kind: Kind, why: str, at: int | None = None) -> None:
        number, period, confidence = NO_LOOP, 0, 0.0
        if self.lock is not None:
            number, period, confidence = self.lock.number, self.lock.period, self.lock.confidence
        self.events.append(MinerEvent(self.position if at is None else at, kind, number, period, confidence, why))


def _wait_for(period: int, window: int) -> int:
    """Return after how many symbols without a good iteration a loop is lost."""
    return max(LOST_PERIODS * period, window // LOST_PART)


def _is_same_level(one: int, other: int) -> bool:
    """Return whether two periods can be those of one loop."""
    return abs(one - other) <= SAME_PERIOD * max(one, other)


def _recognise(loop: MinedLoop, known: Iterable[LockedLoop], symbols: SymbolArray) -> LockedLoop | None:
    """Return the known loop that explains the symbols about as well as the one mined from them, else None."""
    wanted = AS_MUCH * int(loop.iterations.matched.sum())
    alike = (lock for lock in known if _is_same_level(lock.period, loop.period))
    return next((lock for lock in alike if lock.explains(symbols) >= wanted), None)


def _is_better(new: LockedLoop, old: LockedLoop, symbols: SymbolArray) -> bool:
    """Return whether a new template matches as much as the old one, with iterations that begin elsewhere."""
    if new.explains(symbols) < old.explains(symbols):
        return False
    one, other = (_boundaries(lock, symbols) for lock in (new, old))
    distance = max(2, int(NEAR * old.period))
    return not (_are_near(one, other, distance) and _are_near(other, one, distance))


def _boundaries(lock: LockedLoop, symbols: SymbolArray) -> Int64s:
    """Return where passes begin that match half of the template."""
    passes = match(lock.joined.of(symbols), lock.template)
    return passes.first[2 * passes.matched >= lock.period]


def _are_near(positions: Int64s, others: Int64s, distance: int) -> bool:
    """Return whether most of the positions have one of the others nearby."""
    if not len(positions) or not len(others):
        return False
    after = np.searchsorted(others, positions)
    right = np.abs(others[np.minimum(after, len(others) - 1)] - positions)
    left = np.abs(others[np.maximum(after - 1, 0)] - positions)
    return bool((np.minimum(left, right) <= distance).mean() >= MIN_SAME_BOUNDARIES)


@dataclass(slots=True)
class MatchWatch:
    """What a loop matched from one check to the next.

    Attributes:
        at: the position of the last check.
        matched: symbols matched up to there.
        since: where the section begins in which little is matched; equal to `at` when enough is matched.
        patience: length of that section, in waits, at which it is examined.
    """

    at: int = 0
    matched: int = 0
    since: int = 0
    patience: int = PATIENT

    def start(self, at: int, matched: int) -> None:
        """Start again."""
        self.at, self.matched, self.since, self.patience = at, matched, at, PATIENT

    def look(self, at: int, matched: int, period: int) -> bool:
        """Return whether little was matched since the last check; the last period, unknown yet, counts as matched."""
        is_thin = matched - self.matched + period < THIN * (at - self.at)
        self.since = self.since if is_thin else at
        self.at, self.matched = at, matched
        return is_thin

    def is_due(self, wait: int) -> bool:
        """Return whether the section is long enough to be examined; if so, the next one must be longer."""
        due = self.at - self.since >= self.patience * wait
        if due:
            self.patience = min(2 * self.patience, MOST_PATIENT)
        return due
