"""The idle gaps of one device, and what the event that ends each of them shows of its cause.

Either the event was launched before the gap and ready (then the device or another stream took its time), or the host
launched it too late (then the host's activity in the gap is the cause), or the trace has no launch record and the cause
is unknown.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from deepprof.collectors.trace import Trace
from deepprof.metrics.sharing.work import OtherWork, is_on_link
from deepprof.metrics.spans import NOTHING, Spans, covered, union

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LATENCY_NS = 10_000  # from a launch call to its kernel on an idle device, where the trace does not show it
MOST_LATENCY_NS = 20_000  # longer ones are waits in a queue that is never empty
STARTUP_NS = 20_000  # to begin a kernel behind another on its stream: NVIDIA 1 µs, AMD up to 10 µs, at most twice that
STREAM_WAIT = "Wait Event"  # a stream waits for another one; in other synchronisations the host waits
HELD_BACK_NS = 100_000  # work that is queued on an idle device so long is not late by the device's own slowness
BETWEEN_NS = 1_000  # from one kernel to the next of a full queue, where the trace shows too few of them: NVIDIA's
MIN_BETWEEN = 10  # pairs of such kernels
LATE_NS = 5_000_000  # drivers that gather work before they submit it (WDDM, WSL) use 0.2 to 2 ms
ON_IDLE = 0.8  # of the time from a launch to its begin: the device was idle, so that nothing of it was in the way
HANDOFF_NS = 50_000  # from the end of work on one stream to the begin of work on another that waited for it


class Endings(Struct, frozen=True, eq=False):
    """Every gap [start, end) of a device, with the event that ends it: its launch, and where the last work ran.

    `launch_ns` and `launched_ns` are begin and end of the launch call, meaningless where `linked` is false; `same`
    is whether the work which ended last ran on the same stream. `event` is the number of the row that ends the gap.
    `first` is whether the event is the first of its stream. `between_ns` is what the device takes from one kernel to
    the next where both are queued.
    """

    start: Int64s
    end: Int64s
    linked: Bools
    launch_ns: Int64s
    launched_ns: Int64s
    stream: Int64s
    same: Bools
    latency_ns: int
    event: Int64s
    first: Bools
    between_ns: int = BETWEEN_NS


class Gaps(Struct, frozen=True, eq=False):
    """The idle time that is classified without the host's records; the rest of the gaps is the host's."""

    launching: Spans
    dependency: Spans
    startup: Spans
    unknown: Spans
    held: tuple[Spans, Spans] = (NOTHING, NOTHING)  # when kernels, and when copies, wait for what other processes use
    held_back: Spans = NOTHING  # the parts of `unknown` in which queued work waits for nothing that the trace shows
    earlier: Spans = NOTHING  # the parts of `unknown` before the first work of a stream, launched long before
    handed_over: Spans = NOTHING  # the parts of `unknown` in which the driver may hold work back
    prompt: bool = False  # whether any work begins soon after its launch: then the clocks agree
    filled: Int64s = field(default_factory=lambda: np.empty(0, np.int64))  # launches that find a filled queue


NO_GAPS = Gaps(NOTHING, NOTHING, NOTHING, NOTHING)


def find_gaps(work: pl.DataFrame) -> Endings:
    """Return the gaps between events sorted by start, with their launches (launch_ns, launched_ns; null: unknown)."""
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    reach, at = end_gaps(start, end)
    stream, launch = work["stream"].to_numpy(), work["launch_ns"]
    newest = np.maximum.accumulate(np.where(end == reach, np.arange(len(end)), 0)) if len(end) else at
    linked = launch.is_not_null().to_numpy()
    begun, done = (work[name].fill_null(0).to_numpy() for name in ("launch_ns", "launched_ns"))
    return Endings(
        start=reach[at - 1],
        end=start[at],
        linked=linked[at],
        launch_ns=begun[at],
        launched_ns=done[at],
        stream=stream[at],
        same=stream[at] == stream[newest[at - 1]],
        latency_ns=shortest_latency(start[linked] - begun[linked]),
        event=at,
        first=np.isin(at, np.unique(stream, return_index=True)[1]),
        between_ns=find_between(work),
    )


def end_gaps(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Return until when there was work up to every event, of those sorted by start, and the rows that end a gap."""
    reach = np.maximum.accumulate(end) if len(end) else end
    return reach, np.flatnonzero(start[1:] > reach[:-1]) + 1


def shortest_latency(latencies: Int64s) -> int:
    """Return the time from a launch to its start that an idle device takes in this trace."""
    if not len(latencies):
        return LATENCY_NS
    shortest = int(np.quantile(latencies, 0.05))
    return shortest if shortest <= MOST_LATENCY_NS else LATENCY_NS


def find_between(work: pl.DataFrame) -> int:
    """Return the median time from the end of work to the begin of the next on its stream that is queued by then."""
    ended = pl.col("end_ns").shift().over("stream")
    gap, queued = (pl.col("start_ns") - ended).clip(0), pl.col("launched_ns") + STARTUP_NS <= ended
    between = work.select(gap.filter(queued & (gap <= STARTUP_NS))).to_series()
    return round(float(between.median())) if len(between) >= MIN_BETWEEN else BETWEEN_NS  # type: ignore[arg-type]


def judge_gaps(trace: Trace, device: int, gaps: Endings) -> Gaps:
    """Return the parts of the gaps that the launch, another stream, the device or nothing in the trace explains."""
    late = gaps.linked & (_ready_ns(gaps) >= gaps.start)
    begun = np.clip(gaps.launch_ns, gaps.start, gaps.end)  # the host's part of the gap ends here
    held = _queued_since(gaps)
    rest = gaps.end - held
    startup = gaps.linked & gaps.same & (rest <= STARTUP_NS)
    handoff = gaps.linked & ~gaps.same & (rest <= HANDOFF_NS)
    open_ones = gaps.linked & ~startup & ~handoff
    dependency = handoff | (open_ones & _waited(trace, device, gaps, held)) if open_ones.any() else handoff
    unknown = ~startup & ~dependency
    return Gaps(
        launching=_select(begun, held, late),
        dependency=_select(held, gaps.end, dependency),
        startup=_select(held, gaps.end, startup),
        unknown=_select(held, gaps.end, unknown),
        held_back=_select(held, gaps.end, unknown & _is_held_back(gaps, rest)),
        earlier=_select(held, gaps.end, unknown & gaps.linked & gaps.first & (rest > HELD_BACK_NS)),
        handed_over=_select(held, gaps.end, _is_handed_over_late(gaps, rest, unknown)),
        prompt=bool(_are_prompt(gaps).any()),
    )


def _are_prompt(gaps: Endings) -> Bools:
    """Return which gaps end soon after the launch of what ends them."""
    return gaps.linked & (gaps.end - gaps.launch_ns <= MOST_LATENCY_NS)


def _is_handed_over_late(gaps: Endings, rest: Int64s, unknown: Bools) -> Bools:
    """Return in which of the `unknown` gaps work that was launched on an idle device waits for its driver.

    Whatever the work could wait for is done then. Another process delays work in the middle of a filled queue as well;
    where that is most of the time, nothing is put down to the driver.
    """
    queued = unknown & gaps.linked & (rest > HELD_BACK_NS)
    on_idle = queued & (rest >= ON_IDLE * (gaps.end - gaps.launched_ns))
    late = on_idle & (rest <= LATE_NS)
    return late if rest[late].sum() >= rest[queued & ~on_idle].sum() else np.zeros(len(rest), bool)


def _is_held_back(gaps: Endings, rest: Int64s) -> Bools:
    """Return where the work that ends a gap was ready long before, though only its own stream is used.

    With several streams it may have waited for an event whose record is missing; where no work begins soon after its
    launch, the clocks of host and device may be apart.
    """
    alone = _are_prompt(gaps).any() and len(np.unique(gaps.stream)) == 1
    return alone & gaps.linked & gaps.same & (rest > HELD_BACK_NS)


def _ready_ns(gaps: Endings) -> Int64s:
    """Return when an idle device would have begun the event that ends each gap; meaningless for unlinked events."""
    return np.maximum(gaps.launched_ns, gaps.launch_ns + gaps.latency_ns + gaps.latency_ns // 2)


def _queued_since(gaps: Endings) -> Int64s:
    """Return since when work is queued and ready in every gap; the begin of the gap if earlier or unknown."""
    ready, begun = _ready_ns(gaps), np.clip(gaps.launch_ns, gaps.start, gaps.end)
    return np.where(gaps.linked & (ready >= gaps.start), np.clip(ready, begun, gaps.end), gaps.start)


def find_held(work: pl.DataFrame, gaps: Endings, others: OtherWork) -> tuple[Spans, Spans]:
    """Return the parts of the gaps in which queued kernels, and queued copies, wait while others use the device.

    Gaps that the device's own latency explains are left out. Without any launch record every longer gap counts. A
    copy is queued from its call on, though the call may not return before it is done.
    """
    copies = work.select(is_on_link()).to_series().to_numpy()[gaps.event]
    asked = np.clip(gaps.launch_ns + gaps.latency_ns, gaps.start, gaps.end)
    since = np.where(copies & gaps.linked, asked, _queued_since(gaps))
    counted = (gaps.end - since > STARTUP_NS) & (gaps.linked | (not gaps.linked.any()))
    return others.hold(*(_select(since, gaps.end, counted & which) for which in (~copies, copies)))


def _select(starts: Int64s, ends: Int64s, wanted: Bools) -> Spans:
    """Return the wanted spans, empty ones left out."""
    return union(starts[wanted], ends[wanted])


def _waited(trace: Trace, device: int, gaps: Endings, since: Int64s) -> Bools:
    """Return whether the device recorded that the next event's stream waited for most of the gap."""
    syncs = trace.device_events.filter((pl.col("activity") == "sync") & (pl.col("device") == device))
    of_streams = trace.names.gather(syncs["name_id"]).str.contains(STREAM_WAIT, literal=True).fill_null(value=False)
    waits = syncs.filter(of_streams, pl.col("stream").is_in(np.unique(gaps.stream).tolist()))
    found = np.zeros(len(since), bool)
    for (stream,), rows in waits.partition_by("stream", as_dict=True).items():
        spans = union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
        here = gaps.stream == stream
        found[here] = 2 * covered(spans, since[here], gaps.end[here]) > (gaps.end - since)[here]
    return found
