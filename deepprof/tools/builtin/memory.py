"""Memory in use over time, and what it was at the peak (PASTA's memory tool)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import polars as pl
from msgspec import Meta

from deepprof.metrics.memory.composition import add_up_by
from deepprof.metrics.memory.device_memory import DeviceMemory, list_memory
from deepprof.metrics.memory.use import PEAKS, measure_peaks, sum_up
from deepprof.plurals import counted
from deepprof.render.units import format_bytes
from deepprof.tools.tool import Report, Tool

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

I64 = pl.Int64()
PLACE = {"rank": I64, "device": I64}
TIMELINE = pl.Schema(dict.fromkeys(("after_ns", "low_nbytes", "high_nbytes", "reserved_nbytes"), I64))
OF_ITERATIONS = ("index", "least_nbytes", "peak_nbytes", "ramp_up_ns", "high_ns", "ramp_down_ns", "reserved_nbytes")


def memories_of(analysis: Analysis) -> Iterator[tuple[int, DeviceMemory]]:
    """Yield the memory of every device of every rank that was examined here, with the rank's number."""
    for rank, known in sorted(analysis.annotated.items()):
        for memory in list_memory(known, [loop for loop in analysis.loops if loop.rank == rank]):
            yield rank, memory


def put_in_place(rows: pl.DataFrame, rank: int, device: int) -> pl.DataFrame:
    """Return the rows with the columns `rank` and `device` (-1: the host) before their own."""
    return rows.select(pl.lit(rank, I64).alias("rank"), pl.lit(device, I64).alias("device"), pl.all())


class Memory(Tool):
    """Show the memory in use on every device over time, and who holds it at the peak.

    `peak` adds up the blocks that are alive at the first peak by `by`; memory that was allocated before the recording
    is its own category. `iterations` has the peak of each one, and how long it rises to nine tenths of that, stays
    above, and falls. `timeline` is cut into sections of equal length, each with when it begins after the first, the
    least and the most in use, and the most that the allocator holds; device -1 is the host.
    """

    details: ClassVar[bool | None] = True

    points: Annotated[int, Meta(ge=1, le=100_000, description="stretches of the timeline")] = 20
    by: Literal["category", "stage", "layer", "operator", "line"] = "category"
    rows: Annotated[int, Meta(ge=0, description="rows of the peak and of iterations, 0 for all")] = 20

    def begin(self) -> None:
        """Begin with no memory."""
        self.tables: dict[str, list[pl.DataFrame]] = {"peak": [], "iterations": [], "timeline": []}
        self.said: list[str] = []

    def on_analysis(self, analysis: Analysis) -> None:
        """Measure the memory of every device."""
        for rank, memory in memories_of(analysis):
            use = memory.use
            if use is None:
                continue
            peaks = pl.DataFrame(schema=PEAKS).select(OF_ITERATIONS) if memory.loop is None else self._peaks(memory)
            for name, rows in (("timeline", self._cut(memory)), ("peak", self._add_up(memory)), ("iterations", peaks)):
                self.tables[name].append(put_in_place(rows, rank, memory.device))
            where = "the host" if memory.device < 0 else f"device {memory.device}"
            most = format_bytes(int(use.allocated_nbytes[use.peak]))
            than = "" if use.absolute else " above the least in the recording, which has no totals"
            self.said.append(f"rank {rank}, {where}: {most} at the peak{than}")
            if alone := memory.paired.left_out.get("without-place"):
                self.said.append(f"{counted(alone, 'event')} of it without an address, of which no block is known")

    def _peaks(self, memory: DeviceMemory) -> pl.DataFrame:
        assert memory.use is not None  # noqa: S101  `on_analysis` leaves others out
        assert memory.loop is not None  # noqa: S101
        peaks = measure_peaks(memory.use, memory.loop, memory.known.trace).select(OF_ITERATIONS)
        return peaks.head(self.rows) if self.rows else peaks

    def _cut(self, memory: DeviceMemory) -> pl.DataFrame:
        use = memory.use
        assert use is not None  # noqa: S101
        begins, low, high = sum_up(use.time_ns, use.allocated_nbytes, self.points)
        held = None if use.reserved_nbytes is None else sum_up(use.time_ns, use.reserved_nbytes, self.points)[2]
        rows = {"after_ns": begins, "low_nbytes": low, "high_nbytes": high, "reserved_nbytes": held}
        return pl.DataFrame(rows, schema=TIMELINE)

    def _add_up(self, memory: DeviceMemory) -> pl.DataFrame:
        keys = ("function", "file", "line") if self.by == "line" else (self.by,)
        sums = add_up_by(memory.peak.cast({"category": pl.String, "stage": pl.String}), *keys)
        shared = sums.with_columns(share_ratio=pl.col("nbytes") / max(1, int(sums["nbytes"].sum())))
        return shared.head(self.rows) if self.rows else shared

    def report(self) -> Report:
        """Return the tables, and the peaks in a sentence."""
        shown = {name: pl.concat(found) for name, found in self.tables.items() if found}
        return {"summary": "; ".join(self.said) or "no memory event was recorded", **shown}
