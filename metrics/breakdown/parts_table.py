"""The parts of every iteration's time, and what the host was asked to do in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.host_states import HostStates
from deepprof.metrics.breakdown.outside import measure_time_outside
from deepprof.metrics.breakdown.parts import COUNTS, PARTS
from deepprof.metrics.breakdown.timeline import Timeline, extend
from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import covered

Int64s = npt.NDArray[np.int64]


def with_parts(loop: Loop, trace: Trace, timeline: Timeline) -> Loop:
    """Return the loop with the parts of its iterations, and of the time outside, on the device of `timeline`."""
    start = loop.iterations["start_ns"].to_numpy()
    until = start + (loop.iterations["busy_ns"] + loop.iterations["idle_ns"]).to_numpy()
    if len(start):
        timeline = extend(timeline, int(start.min()), int(until.max()))
    columns = {
        "index": loop.iterations["index"],
        **timeline.split(start, until),
        **_count_calls(timeline.host, start, until),
        "waiting_ns": _time_waiting(timeline.host, start, until),
        "memory_nbytes": _memory_at(trace, timeline.device, until),
    }
    outside = measure_time_outside(timeline, loop.iterations)
    return replace(loop, parts=pl.DataFrame(columns).cast(PARTS), timeline=timeline, outside=outside)


def _count_calls(host: HostStates | None, start: Int64s, until: Int64s) -> dict[str, Int64s]:
    if host is None:
        return dict.fromkeys(COUNTS, np.zeros(len(start), np.int64))
    times = (host.launches_ns, host.waits_ns, host.allocations_ns, host.builds_ns)
    counts = (np.searchsorted(each, until) - np.searchsorted(each, start) for each in times)
    return dict(zip(COUNTS, counts, strict=True))


def _time_waiting(host: HostStates | None, start: Int64s, until: Int64s) -> Int64s:
    """Return how long the host waited for the device in every [start, until), whether the device was busy or not."""
    return np.zeros(len(start), np.int64) if host is None else covered(host.waiting, start, until)


def _memory_at(trace: Trace, device: int, times: Int64s) -> pl.Series:
    """Return the memory in use on the device at every time, null where nothing was recorded before it."""
    known = trace.memory_events.filter((pl.col("device") == device) & pl.col("allocated_nbytes").is_not_null())
    at = np.searchsorted(known["time_ns"].to_numpy(), times, side="right") - 1
    if not known.height:
        return pl.Series([None] * len(times), dtype=pl.Int64)
    total = known["allocated_nbytes"].cast(pl.Int64, strict=False).gather(np.maximum(at, 0))
    return total.set(pl.Series(at < 0), None)
