"""What an iteration would save without some of the device's work: at most the time the host is ahead of the device.

A kernel cannot run before it is launched. Where the host launches just in time, the device waits for it instead of
doing the work that was taken away, and nothing is gained. The host itself gets further ahead only where it waits for
the device, as freeing memory does too, or for room in its queue, as a long launch does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.costs import windows_of
from deepprof.metrics.breakdown.gaps import LATENCY_NS
from deepprof.metrics.breakdown.host_states import HELD_NS, joined
from deepprof.metrics.host import read_launches
from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import Spans, elapsed, intersect, union
from deepprof.metrics.streams import is_mostly_copies

Int64s = npt.NDArray[np.int64]

LINKED = 0.9  # of the kernels: with fewer launch records it is unknown how far the host is ahead


def saved_without(loop: Loop, trace: Trace, removed: Spans) -> float | None:
    """Return by how many ns a usual iteration would be shorter if the device did not spend `removed`.

    None if the trace does not record when the kernels were launched, or the stream has hardly any next to its copies.
    """
    host = loop.timeline.host if loop.timeline is not None else None
    if host is None or loop.usual.is_empty():
        return None
    events = trace.device_events.filter(pl.col("device") == loop.device, pl.col("stream") == loop.stream)
    if is_mostly_copies(events):
        return None
    kernels = events.filter(pl.col("activity") == "kernel")
    linked = kernels.join(read_launches(trace), on="correlation", how="inner", maintain_order="left")
    launched = linked.filter(pl.col("start_ns") >= pl.col("launch_ns"))  # a kernel before its launch has a wrong link
    if launched.height < LINKED * kernels.height or not launched.height:
        return None
    inside = intersect(removed, windows_of(loop))
    starts, launches, returned = (launched[name].to_numpy() for name in ("start_ns", "launch_ns", "launched_ns"))
    held = returned - launches > HELD_NS
    waiting = union(*joined(host.waiting, host.allocator, union(launches[held], returned[held])))
    return bound_savings(inside, waiting, starts, launches) / loop.usual.height


def bound_savings(removed: Spans, waiting: Spans, starts: Int64s, launches: Int64s) -> int:
    """Return how many ns of `removed` are saved in total; `starts` (sorted) and `launches` are those of the kernels.

    A kernel may run earlier by the time it was queued plus the time by which its launch comes earlier. The host gains
    where it waits for the device: it is earlier by as much as the device is, but gains no more than it waits.
    """
    long = waiting.ends - waiting.starts > LATENCY_NS
    waits, lasted = waiting.ends[long], (waiting.ends - waiting.starts)[long]
    gone, by_wait = elapsed(removed, starts), elapsed(removed, waits)
    stretch = np.searchsorted(waits, launches, side="right")
    queued = np.maximum(starts - launches - LATENCY_NS, 0) - gone
    begins = np.searchsorted(starts, waits)
    host = np.zeros(len(waits) + 1, np.int64)  # how much earlier the host is after each wait
    device = before = at = 0
    for wait, until in enumerate(begins.tolist()):
        device = _follow(device - before, queued[at:until] + host[stretch[at:until]]) + int(by_wait[wait])
        host[wait + 1] = min(int(host[wait] + lasted[wait]), device)
        before, at = int(by_wait[wait]), until
    return _follow(device - before, queued[at:] + host[stretch[at:]]) + removed.total_ns


def _follow(earlier: int, allowed: Int64s) -> int:
    """Return the least of `earlier` and `allowed`, all relative to what was removed before."""
    return min(earlier, int(allowed.min())) if len(allowed) else earlier
