"""Work from before the recording: the first work of a stream is queued, and waits for what the file does not have."""

from __future__ import annotations

from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.host_states import WAIT
from deepprof.metrics.breakdown.program_places import find_calls
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.spans import Spans, intersect

UNKNOWN = "idle_unknown_ns"
MOST = 0.8  # of the idle time of unknown cause: it is for earlier work, or the host waits in it


class EarlierWork(Struct, frozen=True):
    """A device waits most likely for earlier work; `call` is the one in which the host waits meanwhile, if any."""

    call: str | None


def find_earlier_work(trace: Trace, timeline: Timeline) -> EarlierWork | None:
    """Return for what a device waits most of the time of unknown cause, where that is most likely earlier work."""
    unknown = timeline.spans([UNKNOWN])
    waits = intersect(unknown, timeline.earlier)
    if not unknown.total_ns or waits.total_ns < MOST * unknown.total_ns:
        return None
    call = find_calls(trace, WAIT, waits, None if timeline.host is None else timeline.host.threads)
    return EarlierWork(str(call["call"]) if call and _is_waiting(timeline, waits) else None)


def _is_waiting(timeline: Timeline, spans: Spans) -> bool:
    """Return whether the host waits for the device in most of the time."""
    return timeline.host is not None and intersect(timeline.host.waiting, spans).total_ns >= MOST * spans.total_ns
