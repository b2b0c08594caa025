"""Jobs of several ranks by hand: what each computes is given, when it arrives at collectives follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import COLLECTIVES, LAUNCH_SHAPES, Trace
from deepprof.metrics.breakdown.parts_table import with_parts
from deepprof.metrics.breakdown.timeline import lay_out
from deepprof.metrics.host import read_host
from deepprof.metrics.iteration_table import measure_iterations, summarize
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.facts import RankFacts, gather_facts
from deepprof.metrics.sequence import main_sequence
from deepprof.mining import Iterations
from tests.tables import Row, event, launch, make_trace, span, table

MAIN, COMMUNICATION = 7, 24
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LAUNCH_NAME = 0
AHEAD_NS = 50  # the host launches this much before the device begins


@dataclass(kw_only=True)
class RankJob:
    """`compute_ns[r, i, k]` is what rank r computes in iteration i before its k-th collective, which then takes
    `transfer_ns[k]`. The main stream waits for every collective, or with `overlapping` only for an iteration's last.
    Ranks that are not in `present` run but leave no trace.
    """

    compute_ns: npt.NDArray[np.int64]
    transfer_ns: tuple[int, ...] = (200,)
    overlapping: bool = False
    offsets_ns: tuple[int, ...] = ()  # of the ranks' clocks
    turns: tuple[int, ...] = ()  # kernels by which the iterations of a rank begin later
    skipped: tuple[int, ...] = ()  # iterations at the start of the job that a rank's capture leaves out
    names: tuple[str, ...] = ()
    linked: bool = True
    marked: bool = False  # each iteration is a step of PyTorch's profiler
    ranged: str = ""  # the range around the launches of collectives
    sizes: bool = False  # with a collective's arguments
    sequences: bool = False
    present: tuple[int, ...] | None = None
    world_size: int | None = None
    begins: npt.NDArray[np.int64] = field(init=False)
    ends: npt.NDArray[np.int64] = field(init=False)
    starts: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """Play the job: `starts` and `begins` of computing and of collectives, and the common `ends`."""
        ranks, iterations, places = self.compute_ns.shape
        self.begins, self.starts = np.zeros_like(self.compute_ns), np.zeros_like(self.compute_ns)
        self.ends = np.zeros((iterations, places), np.int64)
        now, free = np.full(ranks, 1_000), np.zeros(ranks, np.int64)
        for i in range(iterations):
            for k in range(places):
                self.starts[:, i, k] = now
                now = now + self.compute_ns[:, i, k]
                self.begins[:, i, k] = np.maximum(now, free)
                self.ends[i, k] = self.begins[:, i, k].max() + self.transfer_ns[k]
                free[:] = self.ends[i, k]
                now = now if self.overlapping and k < places - 1 else np.maximum(now, free)

    def waiting(self) -> npt.NDArray[np.int64]:
        """Return what each rank waits in every collective for the last of those present."""
        begins = self.begins[list(self.ranks)]
        return begins.max(axis=0) - begins

    def lost(self) -> npt.NDArray[np.int64]:
        """Return per rank and iteration what it loses by waiting, found a nanosecond at a time."""
        waiting, ends = self.waiting(), self.ends
        exposed = np.zeros((len(self.ranks), len(ends)), np.int64)
        idle = np.zeros_like(exposed)
        for row, r in enumerate(self.ranks):
            begins = self.begins[r]
            busy = moments(self.starts[r].ravel(), (self.starts[r] + self.compute_ns[r]).ravel())
            for i in range(len(ends)):
                exposed[row, i] = len(moments(begins[i], begins[i] + waiting[row, i]) - busy)
                idle[row, i] = len(moments(begins[i], ends[i]) - busy)
        return np.maximum(exposed, np.minimum(waiting.sum(axis=2), idle - idle.min(axis=0)))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have a trace."""
        return tuple(range(len(self.compute_ns))) if self.present is None else self.present

    def build(self) -> tuple[list[Loop], list[Trace]]:
        """Return the loops and traces of the ranks that are present."""
        traces = [self.trace(rank) for rank in self.ranks]
        return [measure(trace, self.compute_ns.shape[2], self.at(self.turns, trace.rank)) for trace in traces], traces

    def at(self, values: tuple[int, ...], rank: int | None) -> int:
        """Return a rank's value, 0 where none is given."""
        return values[rank or 0] if values else 0

    def trace(self, rank: int) -> Trace:
        """Return what was recorded of one rank."""
        _, iterations, places = self.compute_ns.shape
        names = ["cudaLaunchKernel", *(f"kernel{k}" for k in range(places)), *(self.names or (ALL_REDUCE,) * places)]
        device: list[Row] = []
        host: list[Row] = []
        clock = self.at(self.offsets_ns, rank)
        for i in range(self.at(self.skipped, rank), iterations):
            for k in range(places):
                start, begin, at = self.starts[rank, i, k], self.begins[rank, i, k], 2 * (i * places + k)
                end = start + self.compute_ns[rank, i, k]
                for name, first, last, stream, number in (
                    (1 + k, start, end, MAIN, at),
                    (1 + places + k, begin, self.ends[i, k], COMMUNICATION, at + 1),
                ):
                    row = event(name, int(first) + clock, int(last) + clock, stream=stream, correlation=number)
                    device.append(row)
                    asked = int(start) - AHEAD_NS + clock + (stream == COMMUNICATION)
                    host += [launch(number, asked, asked + 1, LAUNCH_NAME)] if self.linked else []
        ranges = [*self.steps(rank, len(names)), *self.ranges(host, len(names) + iterations)]
        names += [*(f"ProfilerStep#{10 + i}" for i in range(iterations)), self.ranged or "no range"]
        trace = make_trace(device, host, ranges, names=names, rank=rank)
        return replace(trace, world_size=self.world_size, collectives=self.arguments(trace))

    def steps(self, rank: int, name: int) -> list[Row]:
        """Return the profiler's steps of a rank, from every iteration's first launch to the next one's."""
        first = self.starts[rank, :, 0] - AHEAD_NS - 1 + self.at(self.offsets_ns, rank)
        bounds = [*first.tolist(), int(self.ends[-1, -1]) + self.at(self.offsets_ns, rank)] if self.marked else []
        return [span(name + i, *pair) for i, pair in enumerate(pairwise(bounds)) if i >= self.at(self.skipped, rank)]

    def ranges(self, host: Sequence[Row], name: int) -> list[Row]:
        """Return a range around every collective's launch, if there are any."""
        calls = [row for row in host if int(str(row["correlation"])) % 2] if self.ranged else []
        return [span(name, int(str(row["start_ns"])) - 1, int(str(row["end_ns"])) + 1) for row in calls]

    def arguments(self, trace: Trace) -> pl.DataFrame:
        """Return the collectives' table of a trace."""
        rows: list[Row] = []
        if self.sizes or self.sequences:
            found = trace.device_events.with_row_index("event").filter(stream=COMMUNICATION).rows(named=True)
            rows = [
                {
                    "event": row["event"],
                    "collective": "allreduce",
                    "in_elements": row["name_id"],
                    "group": "0",
                    "sequence": row["correlation"] // 2 if self.sequences else None,
                }
                for row in found
            ]
        return table(rows, COLLECTIVES)


def with_shapes(trace: Trace) -> Trace:
    """Return the trace with one launch shape for all kernels."""
    rows: list[Row] = [{"event": row, "grid": 8, "block": 256} for row in range(trace.device_events.height)]
    return replace(trace, launch_shapes=table(rows, LAUNCH_SHAPES))


def facts_of(loops: Sequence[Loop], traces: Sequence[Trace]) -> list[RankFacts]:
    """Return what each rank states to the others."""
    return [gather_facts(loops, trace) for trace in traces]


def moments(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> set[int]:
    """Return all nanoseconds in [start, end) of any of the spans."""
    return {t for start, end in zip(starts.tolist(), ends.tolist(), strict=True) for t in range(start, end)}


def measure(trace: Trace, period: int, turn: int = 0) -> Loop:
    """Return the loop of a trace whose main stream repeats after `period` kernels, cut `turn` kernels later."""
    sequence = main_sequence(trace, 0, MAIN)
    first = np.arange(turn, max(turn, len(sequence.symbols) - period + 1), period)
    ones = np.ones(len(first), np.int64)
    found = measure_iterations(trace, sequence, Iterations(first, first + period, ones, ones * 0, ones == 1))
    loop = Loop(
        rank=trace.rank or 0,
        device=0,
        stream=MAIN,
        period=period,
        confidence=1.0,
        evidence="made by hand",
        boundary_source="mined",
        boundary_confidence=0.9,
        agreement=None,
        iterations=found,
        metrics=summarize(found),
    )
    return with_parts(loop, trace, lay_out(trace, 0, read_host(trace).launches))
