"""The memory of one device of one trace: blocks with owners and categories, its use, and its peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.annotation.host_stages import StageSegments, cut_host
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.block_lifetimes import MemoryBlocks, find_alive, pair_blocks
from deepprof.metrics.memory.composition import categorize, compose
from deepprof.metrics.memory.floors import HOST_MEMORY, begins_of, device_of
from deepprof.metrics.memory.owners import find_owners
from deepprof.metrics.memory.use import MemoryUse, read_use

Int64s = npt.NDArray[np.int64]


class DeviceMemory(Struct, frozen=True, eq=False, dict=True):
    """The memory of one device (-1: of the host), measured when it is requested.

    `loop` is the longest one on the device, None where there is none.
    """

    known: TraceAnnotation
    device: int
    loop: Loop | None

    @property
    def is_beside(self) -> bool:
        """Whether it is the host's memory next to that of devices, on which the loop computes."""
        return self.device == HOST_MEMORY and (self.loop is None or device_of(self.loop, self.known.trace) >= 0)

    @cached_property
    def paired(self) -> MemoryBlocks:
        """The blocks of the device, and what could not be paired; their rows are those of the whole trace."""
        return pair_blocks(self.known.trace.memory_events, self.device)

    @cached_property
    def begins(self) -> Int64s:
        """The begins of all iterations on the host, in order; empty without a loop."""
        if self.loop is None:
            return np.empty(0, np.int64)
        return np.sort(begins_of(self.loop, self.known.trace, self.loop.iterations)[1])

    @cached_property
    def blocks(self) -> pl.DataFrame:
        """The columns of `BLOCKS` and `OWNERS`, and the `category` of every block."""
        table = self.paired.table
        owned = table.hstack(find_owners(self.known, table, self._stages))
        category = categorize(owned, self.begins)
        if self._is_of_driver:
            category = category.set((category != "before the recording"), "unknown")
        return owned.with_columns(category)

    @property
    def _is_of_driver(self) -> bool:
        """Whether the events are what the process takes from the driver: an allocator puts anything into such blocks.

        Recorders of allocators write totals, or the thread; nsys writes neither.
        """
        events = self.known.trace.memory_events
        return not events.select("thread", "allocated_nbytes").count().sum_horizontal().sum()

    @property
    def _stages(self) -> StageSegments | None:
        """The stages of the host over time, None where there is no loop to show its threads."""
        return None if self.loop is None else cut_host(self.known, self.loop)

    @cached_property
    def use(self) -> MemoryUse | None:
        """The memory in use over time, None where none was recorded."""
        return read_use(self.known.trace.memory_events, self.device)

    @cached_property
    def capacity_nbytes(self) -> int | None:
        """The size of the device's memory, None where it was not recorded."""
        devices = self.known.trace.devices
        sizes = devices.filter(pl.col("device").cast(pl.Int64) == self.device)["memory_nbytes"].drop_nulls()
        return int(sizes[0]) if len(sizes) and sizes[0] else None

    @cached_property
    def peak(self) -> pl.DataFrame:
        """What was in use at the peak, as a table `COMPOSITION`."""
        use = self.use
        if use is None:
            return compose(self.blocks.clear())
        at, total = use.peak, int(use.allocated_nbytes[use.peak])
        alive = self.blocks.filter(find_alive(int(use.rows[at]), int(use.time_ns[at])))
        return compose(alive, total, self.rest_of)

    @property
    def has_only_totals(self) -> bool:
        """Whether nothing is recorded but what was in use now and then: what came and went in between is unknown."""
        sizes = self.known.trace.memory_events.filter(device=self.device)["nbytes"]
        return not (sizes.fill_null(0) != 0).any()

    @property
    def rest_of(self) -> str:
        """The category of memory in use of which no block is known: older than the recording, or unknown either."""
        is_unknown = self.has_only_totals or "without-place" in self.paired.left_out
        return "unknown" if is_unknown else "before the recording"


def list_memory(known: TraceAnnotation, loops: Sequence[Loop]) -> Iterator[DeviceMemory]:
    """Yield the memory of every device of a trace that has a loop or memory events, by its number; the host's first."""
    trace = known.trace
    longest: dict[int, Loop] = {}
    for loop in sorted(loops, key=lambda each: -_span_of(each)):
        longest.setdefault(device_of(loop, trace), loop)
    recorded = (trace.memory_events["device"], trace.failed_allocations["device"])
    devices = {device for column in recorded for device in column.drop_nulls().unique().to_list()}
    for device in sorted(devices | longest.keys()):
        yield DeviceMemory(known, device, longest.get(device, _of_host(device, longest)))


def _span_of(loop: Loop) -> int:
    """Return how long a loop's iterations take in all."""
    rows = loop.iterations
    return int(rows["end_ns"].max() or 0) - int(rows["start_ns"].min() or 0)  # type: ignore[arg-type]


def _of_host(device: int, longest: dict[int, Loop]) -> Loop | None:
    """Return the loop by whose iterations the host's memory is measured where devices compute."""
    return next(iter(longest.values()), None) if device == HOST_MEMORY else None
