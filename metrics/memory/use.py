"""Memory in use, and held by the allocator, over time: of a device in few points, and of every iteration."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.floors import MOST, add_up_processes, begins

Int64s = npt.NDArray[np.int64]

NEARLY = 0.9  # of what an iteration adds: the time above is its peak, before is ramp-up, after ramp-down
I64 = pl.Int64()

PEAKS = TableSchema.of(
    "The memory in use during one iteration, as the host goes through it.",
    {
        "index": (I64, "the iteration's number"),
        "begin_ns": (I64, "when the host launched its first kernel, or when that began"),
        "least_nbytes": (I64, "in use at least"),
        "peak_nbytes": (I64, "in use at most"),
        "peak_ns": (I64, "when that was first reached"),
        "reserved_nbytes": (I64, "held by the allocator at most; null: not recorded"),
        "ramp_up_ns": (I64, "from its begin until nine tenths of what it adds are first in use"),
        "high_ns": (I64, "from then until they are last in use"),
        "ramp_down_ns": (I64, "from then to the begin of the next iteration"),
    },
)


class MemoryUse(Struct, frozen=True, eq=False):
    """Memory in use on one device from each of `time_ns` on, in the order of `rows` of `memory_events`.

    `absolute`: the recorder wrote totals; otherwise `allocated_nbytes` counts from the least in use in the recording.
    `reserved_nbytes` is None where the recorder does not state what the allocator holds.
    """

    rows: Int64s
    time_ns: Int64s
    allocated_nbytes: Int64s
    reserved_nbytes: Int64s | None
    absolute: bool

    @property
    def peak(self) -> int:
        """The place of the first peak in the arrays."""
        return int(np.argmax(self.allocated_nbytes))


def read_use(events: pl.DataFrame, device: int) -> MemoryUse | None:
    """Return the memory in use on a device, of a table `MEMORY_EVENTS`; None where it has none."""
    rows = events.with_row_index("row").filter(device=device)
    stated = rows["allocated_nbytes"].is_not_null()
    absolute = bool(stated.any())
    known = rows.filter(stated) if absolute else rows
    if known.is_empty():
        return None
    changes = known["nbytes"].fill_null(0).cum_sum()
    least = min(0, int(changes.min() or 0))  # type: ignore[arg-type]
    in_use = add_up_processes(known, "allocated_nbytes") if absolute else changes - least
    held = add_up_processes(known.with_columns(pl.col("reserved_nbytes").fill_null(0)), "reserved_nbytes")
    return MemoryUse(
        known["row"].cast(pl.Int64).to_numpy(),
        known["time_ns"].to_numpy(),
        in_use.to_numpy(),
        held.to_numpy() if held.max() else None,
        absolute,
    )


def sum_up(time: Int64s, in_use: Int64s, most: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return when at most `most` sections begin, since the first time, and the least and the most in use in each.

    Every value holds until the next one, so that what is in use at a section's begin counts, too. All that changes
    at the first time is one change to the least in use: recorders put there what is older than the recording."""
    span = int(time[-1] - time[0]) + 1
    length = -(-span // most)
    many = -(-span // length)
    stretch = (time - time[0]) // length
    low, high = np.full(many, MOST), np.full(many, -1)
    begun = int(np.searchsorted(time, time[0], side="right")) - 1
    np.minimum.at(low, stretch[begun:], in_use[begun:])
    np.maximum.at(high, stretch, in_use)
    last = np.searchsorted(stretch, np.arange(many)) - 1  # the value that holds at the begin of a section
    held = in_use[np.maximum(last, 0)]
    carried = last >= 0
    low[carried], high[carried] = np.minimum(low, held)[carried], np.maximum(high, held)[carried]
    return np.arange(many) * length, low, high


def measure_peaks(use: MemoryUse, loop: Loop, trace: Trace) -> pl.DataFrame:
    """Return the peak of every complete iteration after warm-up that another one follows, as a table `PEAKS`."""
    index, begin = begins(loop, trace)
    rows = [
        {"index": int(number), **_measure_peak(use, int(start), int(end))}
        for number, start, end in zip(index[:-1], begin[:-1], begin[1:], strict=True)
        if use.time_ns[0] <= start < end
    ]
    return pl.DataFrame(rows, schema=PEAKS)


def _measure_peak(use: MemoryUse, begin: int, end: int) -> dict[str, int | None]:
    """Return what one iteration uses from `begin` to `end`, what is in use at its begin included."""
    first = int(np.searchsorted(use.time_ns, begin, side="right")) - 1
    last = max(first + 1, int(np.searchsorted(use.time_ns, end)))
    in_use, time = use.allocated_nbytes[first:last], np.maximum(use.time_ns[first:last], begin)
    least, peak = int(in_use.min()), int(in_use.max())
    high = np.flatnonzero(in_use >= least + NEARLY * (peak - least))
    leaves = int(np.append(time, end)[high[-1] + 1])
    return {
        "begin_ns": begin,
        "least_nbytes": least,
        "peak_nbytes": peak,
        "peak_ns": int(time[int(np.argmax(in_use))]),
        "reserved_nbytes": None if use.reserved_nbytes is None else int(use.reserved_nbytes[first:last].max()),
        "ramp_up_ns": int(time[high[0]]) - begin,
        "high_ns": leaves - int(time[high[0]]),
        "ramp_down_ns": end - leaves,
    }
