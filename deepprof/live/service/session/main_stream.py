"""The main stream of a device as input of the miner: symbols and the evidence on them.

It is the same evidence as metrics.evidence gathers from a whole trace, but in parts: values that depend on earlier
kernels are carried from one part to the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from deepprof.live.service.session.columns import FARTHEST_NS, GRAPH, Array, Columns, Int64s, Marks, height
from deepprof.live.service.session.launches import Launched
from deepprof.live.service.session.names import FamilyName
from deepprof.live.service.session.ranges import RangeQueue
from deepprof.metrics.sequence import Sequence as Symbols
from deepprof.mining.evidence import Evidence
from deepprof.mining.online import IterationBatch, OnlineMiner

KEPT = 1 << 17  # symbols: the miner does not mine earlier ones
BEFORE_NS = -1  # the launch of a kernel launched before the capture, as in metrics.sequence


class RankContext(NamedTuple):
    """The rank's data for a stream's evidence: which symbols are an optimizer's, and the families of ranges."""

    optimizer: Marks
    families: Sequence[FamilyName]
    by_end: Marks


class KernelReading(NamedTuple):
    """Kernels by start with their launches, and how many copies from and to the host had begun by every start."""

    kernels: Columns
    launched: Launched
    htod: Int64s
    dtoh: Int64s

    def of(self, which: Array) -> KernelReading:
        """Return some of the kernels."""
        kernels = {name: values[which] for name, values in self.kernels.items()}
        return KernelReading(kernels, self.launched.of(which), self.htod[which], self.dtoh[which])


@dataclass(slots=True)
class _CarriedKernel:
    """The state after the last kernel: its launch, the sums at that time, and the latest end of all kernels so far."""

    launch: int = BEFORE_NS
    elapsed: int = 0
    waits: int = 0
    graphs: int = 0
    htod: int = 0
    dtoh: int = 0
    reach: int = -FARTHEST_NS


def _no_times() -> Int64s:
    """Return an empty array of times."""
    return np.empty(0, np.int64)


@dataclass(slots=True, eq=False)
class MainStream:
    """Follows one stream.

    `first` is the position of the first symbol held; `start` and `reach` have one element per symbol held: its start,
    and the latest end up to it. `linked` is whether launches are used, `seen_linked` whether any kernel has had one so
    far. `marked` counts the names whose optimizer marks the miner has. `broken`: records were lost after the last
    kernel, or there is no kernel yet; no time is measured to the next one then.
    """

    stream: int
    miner: OnlineMiner
    linked: bool = False
    seen_linked: bool = False
    carried: _CarriedKernel = field(default_factory=_CarriedKernel)
    first: int = 0
    start: Int64s = field(default_factory=_no_times)
    reach: Int64s = field(default_factory=_no_times)
    marked: int = 0
    broken: bool = True

    @property
    def position(self) -> int:
        """The number of symbols read."""
        return self.first + len(self.start)

    def read(self, reading: KernelReading, ranges: RangeQueue, rank: RankContext) -> Iterator[IterationBatch]:
        """Give kernels to the miner; yield its iterations after each of its decisions."""
        if not height(reading.kernels):
            return
        at, symbols = self.position, reading.kernels["symbol"]
        launch, evidence = self._gather(reading)
        ranges.place(launch if self.linked else reading.kernels["start"], at, rank.by_end)
        breaks = [*ranges.breaks(at + 1, at + len(symbols)), at + len(symbols)]
        first = 0
        while first < len(symbols):
            end = min(breaks[bisect_right(breaks, at + first)], self.miner.due) - at
            known = Evidence(
                **{name: values[first:end] for name, values in evidence.items()},  # type: ignore[arg-type]
                optimizer=self._new_marks(rank.optimizer),
                families=ranges.tell(at + first, rank.families),
                start=int(np.searchsorted(launch, 0)) if self.linked and at + first == 0 else 0,
            )
            yield self.miner.feed(symbols[first:end], known)
            first = end

    def _new_marks(self, optimizer: Marks) -> Marks | None:
        """Return the marks of all names if there are new names, else None."""
        if self.marked == len(optimizer):
            return None
        self.marked = len(optimizer)
        return optimizer

    def _gather(self, reading: KernelReading) -> tuple[Int64s, dict[str, Array]]:
        """Return the launch of every kernel, never decreasing, and the evidence; keep the state of the last kernel."""
        kernels, last = reading.kernels, self.carried
        reach = _follow(last.reach, kernels["end"])
        launch, elapsed, waits, graphs = (
            _follow(before, values)
            for before, values in zip(
                (last.launch, last.elapsed, last.waits, last.graphs), reading.launched, strict=True
            )
        )
        htod, dtoh = np.append(last.htod, reading.htod), np.append(last.dtoh, reading.dtoh)
        evidence = {
            "gaps": _without_first(kernels["start"] - reach[:-1], self.broken),
            "copies": htod[1:] > htod[:-1],
            "syncs": (waits[1:] > waits[:-1]) | (dtoh[1:] > dtoh[:-1]),
            "graphs": (graphs[1:] > graphs[:-1]) | (kernels["activity"] == GRAPH),
        }
        self.seen_linked = self.seen_linked or reading.launched.any_known()
        if self.linked:
            own = np.where(launch[:-1] >= 0, np.diff(launch) - np.diff(elapsed), 0)
            evidence["launch_gaps"] = _without_first(own, self.broken)
        sums = (launch, elapsed, waits, graphs, htod, dtoh, reach)
        self.carried = _CarriedKernel(*(int(values[-1]) for values in sums))
        self.broken = False
        self.start = np.append(self.start, kernels["start"])
        self.reach = np.append(self.reach, reach[1:])
        return launch[1:], evidence

    def interrupt(self, lost: int | None, ranges: RangeQueue, rank: RankContext) -> IterationBatch:
        """Note that records are missing here: no time is measured across the gap."""
        self._tell_rest(ranges, rank)
        self.broken, self.carried.reach = True, -FARTHEST_NS
        return self.miner.gap(lost)

    def close(self, ranges: RangeQueue, rank: RankContext) -> IterationBatch:
        """Return the remaining iterations: the stream ends here."""
        self._tell_rest(ranges, rank)
        return self.miner.finish()

    def _tell_rest(self, ranges: RangeQueue, rank: RankContext) -> None:
        """Give the miner all ranges that began so far: no symbol follows that would show where they end."""
        ranges.close(self.position)
        known = Evidence(families=ranges.tell(self.position, rank.families, ends=True))
        self.miner.feed(np.empty(0, np.uint16), known)

    def held(self, device: int) -> Symbols:
        """Return the times held as a sequence without symbols, for measuring iterations."""
        nothing = np.empty(0, np.uint32)
        return Symbols(device, self.stream, nothing, self.start, self.reach, self.start, self.linked)

    def keep_from(self, position: int) -> None:
        """Remove symbols in which no later iteration can begin."""
        extra = max(position, self.position - KEPT) - self.first
        if extra > 0:
            self.first += extra
            self.start, self.reach = self.start[extra:].copy(), self.reach[extra:].copy()

    def time_at(self, position: int) -> int:
        """Return the start of the symbol before `position`, or of the nearest symbol held."""
        if not len(self.start):
            return 0
        return int(self.start[min(max(position - 1 - self.first, 0), len(self.start) - 1)])


def _follow(before: int, values: Int64s) -> Int64s:
    """Return the largest value up to every element; the first element is `before`, which precedes `values`."""
    largest: Int64s = np.maximum.accumulate(np.append(np.int64(before), values))
    return largest


def _without_first(gaps: Int64s, broken: bool) -> Array:
    """Return the gaps, with 0 for negative ones, and for the first where it would span lost records."""
    gaps = np.maximum(gaps, 0)
    if broken:
        gaps[0] = 0
    return gaps.astype(np.float64)
