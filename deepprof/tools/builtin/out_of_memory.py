"""Why an allocation failed: what was requested, what was free, and who held the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import polars as pl
from msgspec import Meta

from deepprof.diagnosis.rules.out_of_memory import BARRED
from deepprof.metrics.contexts.frames import write_line
from deepprof.metrics.memory.composition import COMPOSITION
from deepprof.metrics.memory.failures import FailedAllocation, list_failures
from deepprof.plurals import counted
from deepprof.render.units import format_bytes
from deepprof.tools.builtin.memory import PLACE, memories_of, put_in_place
from deepprof.tools.tool import Report, Tool

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

I64 = pl.Int64()
FAILURES = pl.Schema(
    {
        **PLACE,
        "asked_nbytes": I64,
        "free_nbytes": I64,
        "allocated_nbytes": I64,
        "reserved_nbytes": I64,
        "largest_free_nbytes": I64,
        "fragmented": pl.Boolean(),
        "asked_in": pl.String(),
    }
)


class OutOfMemory(Tool):
    """Say of every allocation that failed why it did, and who held the memory at that moment.

    `fragmented`: as much as was requested was free in all, at the driver and in what the allocator held, but no section
    of it was long enough. `in_use` has the largest owners at the last failure of every device. Of many failures on one
    device the last hundred are examined; the others are only counted (`left_out_failures`).
    """

    details: ClassVar[bool | None] = True

    rows: Annotated[int, Meta(ge=0, description="owners on each device, 0 for all")] = 20

    def begin(self) -> None:
        """Begin with no failure."""
        self.failures = pl.DataFrame(schema=FAILURES)
        self.in_use = pl.DataFrame(schema={**PLACE, **COMPOSITION})
        self.last: FailedAllocation | None = None
        self.many = 0

    def on_analysis(self, analysis: Analysis) -> None:
        """Examine the failures on every device."""
        for rank, memory in memories_of(analysis):
            found = list_failures(memory)
            self.many += memory.known.trace.failed_allocations.filter(device=memory.device).height
            if found:
                rows = pl.DataFrame([_describe(each) for each in found], schema=FAILURES)
                self.failures.extend(rows.with_columns(rank=pl.lit(rank, I64), device=pl.lit(memory.device, I64)))
                owners = put_in_place(found[-1].in_use, rank, memory.device)
                self.in_use.extend(owners.head(self.rows) if self.rows else owners)
                self.last = max(self.last or found[-1], found[-1], key=lambda each: each.time_ns)

    def report(self) -> Report:
        """Return the failures, and the last one in a sentence."""
        many = counted(self.many, "allocation")
        said = "no allocation failed" if self.last is None else f"{many} failed; of the last one: {_say(self.last)}"
        left_out = self.many - self.failures.height
        return {"summary": said, "left_out_failures": left_out, "failures": self.failures, "in_use": self.in_use}


def _describe(failed: FailedAllocation) -> dict[str, object]:
    """Return a row of `FAILURES`."""
    holding = failed.holding
    return {
        "asked_nbytes": failed.asked_nbytes,
        "free_nbytes": failed.free_nbytes,
        "allocated_nbytes": None if holding is None else holding.allocated_nbytes,
        "reserved_nbytes": None if holding is None else holding.reserved_nbytes,
        "largest_free_nbytes": None if holding is None else holding.largest_nbytes,
        "fragmented": failed.is_fragmented,
        "asked_in": _write_place(failed),
    }


def _write_place(failed: FailedAllocation) -> str | None:
    """Return where the allocation was requested, None where that is unknown."""
    line = failed.line
    return write_line(str(line["function"]), str(line["file"]), int(line["line"])) if line else None


def _say(failed: FailedAllocation) -> str:
    asked = format_bytes(failed.asked_nbytes)
    if failed.free_in_all_nbytes is None:
        return f"{asked} were asked for, and what was free is not recorded"
    free = format_bytes(failed.free_in_all_nbytes)
    if failed.is_fragmented:
        return f"{asked} were asked for and {free} free in all, but in shorter pieces: memory is fragmented"
    if failed.free_in_all_nbytes >= failed.asked_nbytes:
        return f"{asked} were asked for and {free} free in all, enough of it in one piece: {BARRED}"
    return f"{asked} were asked for, and {free} free in all"
