"""What to prefetch and pin in managed memory, and at which level (PASTA's study of prefetching)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import polars as pl
from msgspec import Meta

from deepprof.analysis import Analysis
from deepprof.metrics.memory.address_bands import ADDRESS_BANDS, measure_bands
from deepprof.metrics.memory.device_memory import list_memory
from deepprof.metrics.memory.operand_footprints import measure_footprints
from deepprof.metrics.memory.prefetch_plan import PREFETCHES, plan_prefetch
from deepprof.tools.tool import Report, Tool

PLANS = pl.Schema(
    {"rank": pl.Int64(), "device": pl.Int64(), "level": pl.String(), "factor": pl.Float64(), "reason": pl.String()}
)


class Prefetch(Tool):
    """Say what to prefetch, pin and evict in managed memory: by object where all fits, else by tensor.

    Only programs that show that they use managed memory get a plan. It rests on operand footprints and lifetimes of
    allocations, not on accesses.
    """

    details: ClassVar[bool | None] = True

    rows: Annotated[int, Meta(ge=0, description="rows of advice of each device, 0 for all")] = 20

    def begin(self) -> None:
        """Begin with no device."""
        self.plans = pl.DataFrame(schema=PLANS)
        self.advice = pl.DataFrame(schema={"rank": pl.Int64(), "device": pl.Int64(), **PREFETCHES})

    def on_analysis(self, analysis: Analysis) -> None:
        """Plan for every device that ran something."""
        for trace in analysis.traces:
            rank = trace.rank or 0
            footprints = measure_footprints(trace, analysis.recorded.get(rank))
            bands = _measure_bands(analysis, rank)
            for device in trace.device_events["device"].unique().sort().to_list():
                plan = plan_prefetch(trace, device, footprints, bands)
                row = (rank, device, plan.level, plan.factor, plan.reason)
                self.plans = pl.concat([self.plans, pl.DataFrame([row], schema=PLANS, orient="row")])
                place = {"rank": pl.lit(rank, pl.Int64()), "device": pl.lit(device, pl.Int64())}
                rows = plan.rows.head(self.rows) if self.rows else plan.rows
                self.advice = pl.concat([self.advice, rows.with_columns(**place).select(self.advice.columns)])

    def report(self) -> Report:
        """Return the level of every device, and what to do."""
        reasons = self.plans["reason"].unique(maintain_order=True).to_list()
        return {
            "summary": "; ".join(reasons) or "no work of a device was recorded",
            "plans": self.plans,
            "advice": self.advice.with_columns(pl.selectors.enum().cast(pl.String)),
        }


def _measure_bands(analysis: Analysis, rank: int) -> pl.DataFrame:
    """Return the sections of 2 MiB of the memory of a rank's devices."""
    known = analysis.annotated.get(rank)
    memories = [] if known is None else list(list_memory(known, [loop for loop in analysis.loops if loop.rank == rank]))
    tables = [pl.DataFrame(schema=ADDRESS_BANDS)]
    for memory in memories:
        times = memory.known.trace.memory_events["time_ns"]
        if times.is_empty():
            continue
        tables.append(measure_bands(memory.blocks, (int(times[0]), int(times[-1])), 1).bands)
    return pl.concat(tables)
