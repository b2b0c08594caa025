"""An allocation on the device failed: what was free, who held the rest, and which line asked for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_nbytes
from deepprof.diagnosis.memory_claims import MemoryClaim, place_of, trace_of
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.rules.fragmentation import SAME_SIZES, SAME_SIZES_IN
from deepprof.diagnosis.rules.near_limit import LESS, LESS_IN
from deepprof.metrics.contexts.frames import write_line
from deepprof.metrics.memory.composition import add_up_by
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.memory.failures import FailedAllocation, list_failures
from deepprof.plurals import counted

BARRED = "it may be of another stream or pool, or the process has a limit"


@rule("out-of-memory", subject="memory")
def out_of_memory(memory: DeviceMemory) -> Iterator[Finding]:
    """Yield `out-of-memory` when an allocation failed: critical where none was made on the device after the last one.

    A program may catch the error and go on with less, which is a warning.
    """
    failures = list_failures(memory)
    if not failures:
        return
    last, many = failures[-1], trace_of(memory).failed_allocations.filter(device=memory.device).height
    went_on = _went_on(memory, last)
    title = f"{'An allocation' if many == 1 else 'Allocations'} of device memory failed"
    texts = FindingTexts(title=title, summary=_describe(last, many, went_on=went_on), advice=_advise(memory, last))
    holding = last.holding
    evidence = {
        "failures": many,
        "asked_nbytes": last.asked_nbytes,
        "free_nbytes": last.free_nbytes,
        "free_in_all_nbytes": last.free_in_all_nbytes,
        "allocated_nbytes": None if holding is None else holding.allocated_nbytes,
        "reserved_nbytes": None if holding is None else holding.reserved_nbytes,
        "fragmented": None if last.is_fragmented is None else "yes" if last.is_fragmented else "no",
        "went_on": "yes" if went_on else "no",
    }
    claim = MemoryClaim(rule="out-of-memory", memory=memory, severity="warning" if went_on else "critical")
    yield claim.conclude(texts, evidence, place_of(last.line))


def _went_on(memory: DeviceMemory, last: FailedAllocation) -> bool:
    later = pl.col("device").eq(memory.device) & (pl.col("nbytes") > 0) & (pl.col("time_ns") > last.time_ns)
    return bool(trace_of(memory).memory_events.select(later.any()).item())


def _describe(last: FailedAllocation, many: int, *, went_on: bool) -> str:
    """Return what failed, what was free then, and what most of the rest was used for."""
    asked = f"An allocation of {format_nbytes(last.asked_nbytes)} failed"
    if many > 1:
        asked = f"{counted(many, 'allocation')} failed, the last one of {format_nbytes(last.asked_nbytes)}"
    after = "The program went on." if went_on else "Nothing was allocated after it."
    return f"{asked}{_say_free(last)}. {_say_in_use(last)}{after}"


def _say_in_use(last: FailedAllocation) -> str:
    """Return a sentence on what was in use, and the line that had most of it, as far as they are available."""
    whole = int(last.in_use["nbytes"].sum())
    if not whole:
        return ""
    lines = add_up_by(last.in_use, "function", "file", "line").drop_nulls("file").head(1).to_dicts()
    most = "".join(f", {format_nbytes(row['nbytes'])} of it from {_write(row)}" for row in lines)
    return f"{format_nbytes(whole)} were in use{most}. "


def _say_free(last: FailedAllocation) -> str:
    free_nbytes = last.free_in_all_nbytes
    if free_nbytes is None:
        return "; what was free is not recorded"
    free = format_nbytes(free_nbytes)
    if last.is_fragmented:
        return f" although {free} were free in all: the pieces were too short"
    if free_nbytes >= last.asked_nbytes:
        return f" although {free} were free, enough of it in one piece: {BARRED}"
    return f" while {free} were free in all"


def _advise(memory: DeviceMemory, last: FailedAllocation) -> str:
    """Return what to do, from the line on that requested the memory where that is known."""
    remedy, of_framework = (SAME_SIZES, SAME_SIZES_IN) if last.is_fragmented else (LESS, LESS_IN)
    said = advise(trace_of(memory), remedy, **of_framework)
    if not last.line:
        return said
    return f"{_write(last.line)} requested it: request less there. {said}"


def _write(row: Mapping[str, object]) -> str:
    """Return a line of code as people read it."""
    return write_line(str(row["function"]), str(row["file"]), int(str(row["line"])))
