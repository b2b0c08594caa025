"""What the allocator holds beyond what is in use: memory that is cached, and memory in pieces."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.metrics.memory.block_lifetimes import holds_at, pair_blocks
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.memory.use import MemoryUse

ALL_KNOWN = 0.99  # of the memory in use and held: with fewer blocks and segments known, gaps between them state nothing

FAR = 1 << 62  # no device has such an address: sums with it could overflow


class Fragmentation(Struct, frozen=True, kw_only=True):
    """The memory that the allocator of a device holds at one moment, in bytes.

    Of what is kept and not in use, `split_nbytes` is next to blocks in use and cannot be given back to the driver, and
    `largest_nbytes` is the longest section; both are None where segments or blocks are unknown.
    """

    time_ns: int
    allocated_nbytes: int
    reserved_nbytes: int
    split_nbytes: int | None = None
    largest_nbytes: int | None = None

    @property
    def pieces_nbytes(self) -> int:
        """What is next to blocks in use, without the longest section, into which a request may fit; 0 if unknown."""
        return max(0, (self.split_nbytes or 0) - (self.largest_nbytes or 0))

    @property
    def free_nbytes(self) -> int:
        """What is kept and not in use."""
        return max(0, self.reserved_nbytes - self.allocated_nbytes)


def measure_fragmentation(memory: DeviceMemory, time_ns: int | None = None) -> Fragmentation | None:
    """Return what the allocator holds at `time_ns`, by default at the peak; None where that is not recorded."""
    use = memory.use
    if use is None or use.reserved_nbytes is None:
        return None
    at = use.peak if time_ns is None else max(0, int(np.searchsorted(use.time_ns, time_ns, side="right")) - 1)
    found = Fragmentation(
        time_ns=int(use.time_ns[at]) if time_ns is None else time_ns,
        allocated_nbytes=int(use.allocated_nbytes[at]),
        reserved_nbytes=int(use.reserved_nbytes[at]),
    )
    return _measure_gaps(memory, found)


def _measure_gaps(memory: DeviceMemory, found: Fragmentation) -> Fragmentation:
    """Return the same with what is between blocks, where nearly all of what is kept and in use is known."""
    held = _find_segments(memory, found.time_ns)
    used = memory.paired.table.filter(holds_at(found.time_ns), pl.col("address") < FAR)
    known = held["nbytes"].sum() >= ALL_KNOWN * found.reserved_nbytes
    if held.is_empty() or not known or used["nbytes"].sum() < ALL_KNOWN * found.allocated_nbytes:
        return found
    gaps = _find_gaps(held, used)
    return Fragmentation(
        time_ns=found.time_ns,
        allocated_nbytes=found.allocated_nbytes,
        reserved_nbytes=found.reserved_nbytes,
        split_nbytes=int(gaps.filter("beside_used")["gap"].sum()),
        largest_nbytes=int(gaps["gap"].max() or 0),  # type: ignore[arg-type]
    )


def _find_segments(memory: DeviceMemory, time_ns: int) -> pl.DataFrame:
    """Return the segments that the allocator holds at a time: `address` and `nbytes`, in the order of addresses."""
    rows = memory.known.trace.segments.with_columns(process=pl.lit(None, pl.Int64))
    segments = pair_blocks(rows, memory.device).table.filter(holds_at(time_ns), pl.col("address") < FAR)
    return segments.select("address", "nbytes").sort("address")


def _find_gaps(held: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """Return the free sections of segments, `gap`, and whether a block in use is in the same segment."""
    segments = held.select(segment="address", until=pl.col("address").cast(pl.Int64) + pl.col("nbytes"))
    blocks = used.select("address", "nbytes").sort("address")
    placed = blocks.join_asof(segments, left_on="address", right_on="segment", strategy="backward")
    inside = placed.with_columns(begin=pl.col("address").cast(pl.Int64)).filter(pl.col("begin") < pl.col("until"))
    begins_at, ends_at = pl.col("segment").cast(pl.Int64), pl.col("begin") + pl.col("nbytes")
    before = ends_at.cum_max().shift(1).over("segment").fill_null(begins_at)
    between = inside.select("segment", gap=pl.col("begin") - before)
    last = inside.group_by("segment").agg(end=ends_at.max())
    tails = segments.join(last, on="segment", how="left").select(
        "segment",
        gap=pl.col("until") - pl.coalesce("end", begins_at),
    )
    found = pl.concat([between, tails]).filter(pl.col("gap") > 0)
    return found.with_columns(beside_used=pl.col("segment").is_in(inside["segment"].implode()))


def measure_refused(use: MemoryUse, since_ns: int) -> int:
    """Return how much more the allocator took from the driver from `since_ns` on, although as much was free in all.

    It used more for blocks that are no larger than what it held and did not use: no section of that was long enough.
    """
    if use.reserved_nbytes is None or len(use.time_ns) < 2:
        return 0
    held, used = use.reserved_nbytes, use.allocated_nbytes
    taken, asked = np.diff(held), np.diff(used)
    refused = (taken > 0) & (asked > 0) & (held[:-1] - used[:-1] >= asked) & (use.time_ns[1:] >= since_ns)
    return int(taken[refused].sum())
