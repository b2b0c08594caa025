"""Why there was no room for an allocation: what was requested, what was free, and who held the rest."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.metrics.memory.block_lifetimes import holds_at
from deepprof.metrics.memory.composition import compose
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.memory.owners import name_stacks
from deepprof.metrics.memory.segments import Fragmentation, measure_fragmentation

Line = dict[str, str | int]

MOST_FAILURES = 100  # of a device that are examined


class FailedAllocation(Struct, frozen=True, kw_only=True, eq=False):
    """One allocation for which there was no room.

    `free_nbytes` is what the driver had left, `holding` what the allocator held, both None where not recorded; `in_use`
    is whose it was, as a table `COMPOSITION`. `line` is where it was requested.
    """

    time_ns: int
    asked_nbytes: int
    free_nbytes: int | None
    holding: Fragmentation | None
    in_use: pl.DataFrame
    line: Line

    @property
    def free_in_all_nbytes(self) -> int | None:
        """What the driver had left, and what the allocator held and did not use; None where neither is known."""
        unused = None if self.holding is None else self.holding.free_nbytes
        if self.free_nbytes is None and unused is None:
            return None
        return (self.free_nbytes or 0) + (unused or 0)

    @property
    def is_fragmented(self) -> bool | None:
        """Whether there was enough in all, but no section of it is known to be long enough; None: unknown.

        What the driver has left it can give at once: where that is enough, something else was in the way.
        """
        free = self.free_in_all_nbytes
        return None if free is None else self._longest_nbytes < self.asked_nbytes <= free

    @property
    def _longest_nbytes(self) -> int:
        held = 0 if self.holding is None else self.holding.largest_nbytes or 0
        return max(self.free_nbytes or 0, held)


def list_failures(memory: DeviceMemory) -> list[FailedAllocation]:
    """Return the failed allocations of a device in the order of time, of more than `MOST_FAILURES` the last ones.

    Each is kept against all blocks: a program that tries again may fail many times.
    """
    trace = memory.known.trace
    lines = {row.pop("stack_id"): row for row in name_stacks(trace.stacks).to_dicts()} if trace.stacks.height else {}
    return [
        _examine(memory, row, lines.get(row["stack_id"], {}))
        for row in trace.failed_allocations.filter(device=memory.device).tail(MOST_FAILURES).to_dicts()
    ]


def _examine(memory: DeviceMemory, row: dict[str, int], line: Line) -> FailedAllocation:
    time_ns = row["time_ns"]
    holding = measure_fragmentation(memory, time_ns)
    alive = memory.blocks.filter(holds_at(time_ns))
    return FailedAllocation(
        time_ns=time_ns,
        asked_nbytes=row["nbytes"],
        free_nbytes=row["free_nbytes"],
        holding=holding,
        in_use=compose(alive, None if holding is None else holding.allocated_nbytes, memory.rest_of),
        line=line,
    )
