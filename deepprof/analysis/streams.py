"""On which stream of a device the loop is: the main one, or else another that computes a good part of the time."""

from __future__ import annotations

from collections.abc import Sequence as Counts
from dataclasses import dataclass, replace

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.carried import carry_over
from deepprof.metrics.evidence import gather_evidence
from deepprof.metrics.host import HostSide
from deepprof.metrics.loop import Loop
from deepprof.metrics.mined import MIN_STREAM_KERNELS, find_counted, find_loops, pick_counted
from deepprof.metrics.selection.selected_trace import SelectedTrace
from deepprof.metrics.sequence import Sequence, main_sequence
from deepprof.metrics.streams import busy_time, is_mostly_copies
from deepprof.mining.evidence import Evidence

NO_ITERATION = "the part that is looked at has no iteration of the whole"
WORTH, MOST_STREAMS = 0.2, 3  # streams with this share of the main one's busy time are searched, at most so many


@dataclass(frozen=True, slots=True)
class SearchedStream:
    """The kernels of one stream, the host's evidence on them, the loops found, and why there is none."""

    sequence: Sequence
    evidence: Evidence
    loops: list[Loop]
    reason: str | None


def search_streams(
    trace: Trace, host: HostSide, places: Counts[tuple[int, int]], counts: Counts[int]
) -> SearchedStream:
    """Return the result for the first of the streams (device, stream), or for the first with loops if it has none.

    With `counts` the loops found without them are kept if they have those counts; otherwise the paper's miner runs.
    """
    first = _search_stream(trace, host, places[0])
    others = () if first.loops else (_search_stream(trace, host, place) for place in places[1:])
    free = next((other for other in others if other.loops), first)
    if not counts:
        return free
    picked = pick_counted(free.loops, counts)
    if picked is not None:
        return replace(free, loops=picked)
    loops, reason = find_counted(trace, first.sequence, first.evidence, counts)
    return replace(first, loops=loops, reason=reason)


def carry_streams(trace: SelectedTrace, host: HostSide, place: tuple[int, int]) -> SearchedStream:
    """Return the loops of the whole on the device of a main stream (device, stream), as a part of it shows them."""
    own = [loop for loop in trace.loops if loop.device == place[0]]
    sequence = main_sequence(trace, place[0], own[0].stream if own else place[1], host)
    evidence = gather_evidence(trace, sequence, host)
    carried = (carry_over(loop, trace, sequence, evidence) for loop in own)
    loops = [loop for loop in carried if loop is not None]
    return SearchedStream(sequence, evidence, loops, None if loops else NO_ITERATION)


def _search_stream(trace: Trace, host: HostSide, place: tuple[int, int]) -> SearchedStream:
    """Return the loops that one stream shows."""
    sequence = main_sequence(trace, *place, host)
    evidence = gather_evidence(trace, sequence, host)
    return SearchedStream(sequence, evidence, *find_loops(trace, sequence, evidence))


def list_copying(trace: Trace, roles: pl.DataFrame) -> dict[int, list[int]]:
    """Return the busiest streams with copies of each device, where no device does much but copy; else none."""
    found = dict[int, list[int]]()
    for device in roles.filter(pl.col("kernels") > 0)["device"].unique():
        if not is_mostly_copies(trace.device_events.filter(pl.col("device") == device)):
            return {}
    copies = trace.device_events.filter(pl.col("activity") == "memcpy").group_by("device", "stream")
    busy = copies.agg(copies=pl.len(), busy_ns=busy_time()).sort(
        "device", "busy_ns", "stream", descending=[False, True, False]
    )
    for device, stream in busy.filter(pl.col("copies") >= MIN_STREAM_KERNELS).select("device", "stream").iter_rows():
        found.setdefault(device, []).append(stream)
    return {device: streams[:MOST_STREAMS] for device, streams in found.items()}


def next_streams(roles: pl.DataFrame, device: int) -> list[tuple[int, int]]:
    """Return the streams worth searching when the main one has no loop, the busiest first."""
    main = roles.filter(pl.col("device") == device, pl.col("role") == "main")
    worth = roles.filter(
        pl.col("device") == device,
        pl.col("role") == "assist",
        pl.col("kernels") >= MIN_STREAM_KERNELS,
        pl.col("busy_ns") >= WORTH * float(main["busy_ns"].sum()),
    )
    return worth.sort("busy_ns", descending=True).select("device", "stream").head(MOST_STREAMS).rows()
