"""One device of a rank: which stream is the main one, what the miner finds on it, and the totals.

Everything is decided after fixed numbers of the device's events in the order of their starts, so that the result does
not depend on how records are cut into batches or on when results are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from deepprof.live.service.session.activity import HeldActivity
from deepprof.live.service.session.choice import LOOK_EVERY, StreamChoice, next_look
from deepprof.live.service.session.columns import (
    COPY,
    FARTHEST_NS,
    GRAPH,
    KERNEL,
    Array,
    Columns,
    height,
    join,
    select,
)
from deepprof.live.service.session.events import Kind, SessionEvent
from deepprof.live.service.session.latest_iteration import LatestIteration, as_measured
from deepprof.live.service.session.launches import Launched, Launches
from deepprof.live.service.session.limits import SessionLimits
from deepprof.live.service.session.loop_log import LoopLog
from deepprof.live.service.session.main_stream import KernelReading, MainStream, RankContext
from deepprof.live.service.session.ranges import RangeQueue
from deepprof.live.service.session.tally import LATEST, IterationTally
from deepprof.live.service.views import DeviceView
from deepprof.metrics.iteration_table import IterationColumns
from deepprof.mining.online import IterationBatch, OnlineMiner

if TYPE_CHECKING:
    from deepprof.live.service.examination import FoundLoop

NO_LOOP = -1
SLOW = 2.0  # times the median of the latest iterations is an anomaly whose records are worth keeping
USUAL = 16  # iterations needed for a median


@dataclass(slots=True)
class _DeviceOutput:
    """Iterations and events since the last call of `take_given`."""

    rows: list[IterationColumns] = field(default_factory=list)
    events: list[SessionEvent] = field(default_factory=list)


@dataclass(slots=True)
class DeviceSession:
    """Follows a device. `waiting` are its kernels as long as no stream is the main one; `seen` counts events."""

    device: int
    limits: SessionLimits
    choice: StreamChoice
    ranges: RangeQueue
    activity: HeldActivity = field(default_factory=HeldActivity)
    tally: IterationTally = field(default_factory=IterationTally)
    story: LoopLog = field(default_factory=LoopLog)
    rows: LatestIteration = field(default_factory=LatestIteration)
    main: MainStream | None = None
    waiting: list[KernelReading] = field(default_factory=list)
    seen: int = 0
    htod: int = 0
    dtoh: int = 0
    until_ns: int = -FARTHEST_NS  # all events before are known
    given: _DeviceOutput = field(default_factory=_DeviceOutput)

    @classmethod
    def make(cls, device: int, limits: SessionLimits) -> DeviceSession:
        """Return a session that has read no events."""
        ranges = RangeQueue(limits.ranges, limits.families)
        return cls(device, limits, StreamChoice(limits.streams), ranges)

    # -- reading --

    def read(self, events: Columns, launches: Launches, rank: RankContext, marks: Array) -> None:
        """Take device events by start, none before those of earlier calls; `marks` is true for names of collectives."""
        first = 0
        while first < height(events):
            end = min(height(events), first + next_look(self.seen) - self.seen)
            self._read(select(events, slice(first, end)), launches, rank, marks)
            self.seen += end - first
            if next_look(self.seen - 1) == self.seen:
                self._look(rank)
            first = end

    def _read(self, events: Columns, launches: Launches, rank: RankContext, marks: Array) -> None:
        collective = marks[events["symbol"]]
        self.tally.count_events(events, collective)
        self.activity.add(events)
        works = (events["activity"] == KERNEL) | (events["activity"] == GRAPH)
        lasting = (events["end"] - events["start"])[works]
        named = collective[works] & (events["activity"][works] == KERNEL)
        self.choice.count(events["stream"][works], named, lasting)
        if self.main is not None:
            works &= events["stream"] == self.main.stream
        reading = self._reading(events, works, launches)
        if self.main is None:
            self.waiting.append(reading)
        else:
            self._feed(self.main, reading, rank)

    def _reading(self, events: Columns, works: Array, launches: Launches) -> KernelReading:
        kernels = select(events, works)
        launched = launches.find(kernels["correlation"], kernels["start"])
        before = []
        for kind, seen in (("HtoD", self.htod), ("DtoH", self.dtoh)):
            begun = events["start"][events["copy"] == COPY[kind]]
            before.append((seen + np.searchsorted(begun, kernels["start"], side="right"), seen + len(begun)))
        (htod, self.htod), (dtoh, self.dtoh) = before
        return KernelReading(kernels, launched, htod, dtoh)

    def _feed(self, main: MainStream, reading: KernelReading, rank: RankContext) -> None:
        batches = []
        for batch in main.read(reading, self.ranges, rank):
            self._follow(main)
            batches.append(batch)
        self._give(main, batches)
        self._forget(main)

    # -- deciding --

    def _look(self, rank: RankContext) -> None:
        """Compare the streams, and remove events that are kept for too long."""
        self._decide(rank)
        if self.main is not None:
            self.main.linked = self.main.linked or self.main.seen_linked
        self.activity.bound(self.limits.held_events)
        if self.seen >= LOOK_EVERY:
            self.choice.fade()

    def _decide(self, rank: RankContext, *, ends: bool = False) -> None:
        old = self.main
        number = self.choice.choose(old.stream if old else None, self.seen, ends=ends)
        if number is None or (old is not None and number == old.stream):
            if number is None and self.seen >= LOOK_EVERY:
                self.waiting = []  # only collectives so far
            return
        if old is not None:
            self._leave(old, rank, number)
        self.main = MainStream(number, OnlineMiner())
        waiting, self.waiting = self.waiting, []
        if waiting:
            self._feed_waiting(self.main, waiting, rank)

    def _feed_waiting(self, main: MainStream, waiting: list[KernelReading], rank: RankContext) -> None:
        kernels = join([reading.kernels for reading in waiting])
        launched = (np.concatenate(parts) for parts in zip(*(reading.launched for reading in waiting), strict=True))
        counts = (np.concatenate([getattr(r, name) for r in waiting]) for name in ("htod", "dtoh"))
        own = KernelReading(kernels, Launched(*launched), *counts).of(kernels["stream"] == main.stream)
        main.linked = own.launched.any_known()
        self._feed(main, own, rank)

    def _leave(self, main: MainStream, rank: RankContext, other: int) -> None:
        """Give out the stream's remaining iterations: another stream runs more."""
        self._finish(main, rank)
        self.rows.loops = max((loop.number + 1 for loop in self.story.loops), default=0)
        self.story.foreign += main.miner.counts.foreign
        self.story.restart()
        why = f"stream {other} runs more kernels than stream {main.stream}"
        self._say(main.stream, "main", main.time_at(main.position), why)
        self.activity.clear()
        self.ranges.restart()

    # -- ends --

    def interrupt(self, lost: int | None, rank: RankContext) -> None:
        """Note that records are missing here: no iteration spans the gap."""
        self._decide_now(rank)
        if self.main is not None:
            batch = self.main.interrupt(lost, self.ranges, rank)
            self._follow(self.main)
            self._give(self.main, [batch], ends=True)
            self.main.keep_from(self.main.position)
        self.activity.clear()

    def close(self, rank: RankContext) -> None:
        """Give out the remaining iterations: the rank has ended."""
        self._decide_now(rank)
        if self.main is not None:
            self._finish(self.main, rank)
        self.activity.clear()

    def _decide_now(self, rank: RankContext) -> None:
        if self.main is None:
            self._decide(rank, ends=True)
            self.waiting = []

    def _finish(self, main: MainStream, rank: RankContext) -> None:
        batch = main.close(self.ranges, rank)
        self._follow(main)
        self._give(main, [batch], ends=True)

    # -- giving --

    def _follow(self, main: MainStream) -> None:
        for event in self.story.follow(main.miner, self.rows.loops):
            said = (event.kind, main.time_at(event.position), event.loop, event.period, event.confidence, event.why)
            self.given.events.append(SessionEvent(self.device, main.stream, *said))

    def _say(self, stream: int, kind: Kind, time_ns: int, why: str, loop: int = NO_LOOP) -> None:
        self.given.events.append(SessionEvent(self.device, stream, kind, time_ns, loop, 0, 0.0, why))

    def _give(self, main: MainStream, batches: list[IterationBatch], *, ends: bool = False) -> None:
        for rows in self.rows.take(batches, main, self.activity, self.device, ends=ends):
            loop = int(rows.values["loop"][0])
            self.tally.begin_loop(loop)
            self._notice_slow(rows, main)
            self.tally.count_iterations(rows)
            self.story.count(loop, len(rows.adjacent))
            self.given.rows.append(rows)

    def _notice_slow(self, rows: IterationColumns, main: MainStream) -> None:
        """Add an event for every iteration that lasted much longer than those before it."""
        known = rows.adjacent & rows.values["complete"]
        times, starts = rows.values["iteration_ns"][known], rows.values["start_ns"][known]
        before = np.append(self.tally.latest, times)
        first = len(self.tally.latest)
        if len(before) <= USUAL or not len(times) or times.max() <= SLOW * before.min():
            return
        for place in range(max(first, USUAL), len(before)):
            usual = float(np.median(before[max(0, place - LATEST) : place]))
            if before[place] > SLOW * usual:
                why = f"an iteration of {before[place] / 1e6:.1f} ms, usually {usual / 1e6:.1f} ms"
                self._say(main.stream, "slow", int(starts[place - first]), why, int(rows.values["loop"][0]))

    def _forget(self, main: MainStream) -> None:
        """Keep only the data in which a later iteration may begin."""
        needed = self.rows.first
        main.keep_from(main.miner.counts.given if needed is None else needed)
        if len(main.start):
            self.activity.keep_from(int(main.start[0]))

    # -- settling --

    def settle(self, iterations: pl.DataFrame, loops: Sequence[FoundLoop]) -> None:
        """Replace the iterations emitted by these iterations of the device, sorted by start."""
        self.tally.forget_iterations()
        self.story.settle(loops)
        for _, run in iterations.group_by(pl.col("loop").rle_id(), maintain_order=True):
            self.story.current = int(run["loop"][0])
            self.story.count(self.story.current, run.height)
            self.tally.begin_loop(self.story.current)
            self.tally.count_iterations(as_measured(run))

    # -- showing --

    def view(self) -> DeviceView:
        """Return the view of the device."""
        main = self.main
        shown = {
            **self.tally.shown(self.until_ns),
            **self.story.shown(),
            "state": main.miner.state if main else "learning",
            "foreign_kernels": self.story.foreign + (main.miner.counts.foreign if main else 0),
        }
        return DeviceView(device=self.device, stream=main.stream if main else 0, **shown)

    def take_given(self) -> _DeviceOutput:
        """Return the iterations and events since the last call."""
        given, self.given = self.given, _DeviceOutput()
        return given

    @property
    def nbytes(self) -> int:
        """The bytes held for the device, without the miner's own memory."""
        waiting = sum(values.nbytes for reading in self.waiting for values in reading.kernels.values())
        ranges = sum(v.nbytes for queue in (self.ranges.waiting, self.ranges.ready) for v in queue.values())
        main = 16 * len(self.main.start) if self.main else 0
        return self.activity.nbytes + 2 * waiting + ranges + main
