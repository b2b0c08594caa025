"""The device's queue runs empty because the host launches only after it has waited for the device, again and again.

A host that launches too slowly (`launch_bound`) leaves the queue empty, too. They differ in whether the host had time
to spare. A host that waits for the device could have launched ahead instead, for as long as it waited; what is late
beyond that is too slow (`metrics.breakdown.timeline`).
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, say_left
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import mean_of, threads_of, windows_of, without_own_gaps
from deepprof.metrics.breakdown.host_states import WAIT
from deepprof.metrics.breakdown.program_places import find_calls, find_place
from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import Spans, intersect

SYNC = ("idle_sync_ns",)
LIMITS = SeverityLimits(warning=0.1, critical=0.3)

WAIT_LESS = (
    "Read values back less often: keep sums on the device and fetch them every so many iterations; copy "
    "asynchronously, from and to pinned memory."
)
WAIT_LESS_IN = {
    "pytorch": (
        "No .item(), .cpu(), print of a tensor, if on a tensor's value or torch.cuda.synchronize() in the loop; "
        ".to(device, non_blocking=True). torch.cuda.set_sync_debug_mode('warn') names the lines."
    ),
    "jax": (
        "No float(), print or numpy of a result, and no block_until_ready() in every step: return metrics and look at "
        "those of an earlier step, so that dispatch runs ahead."
    ),
    "tensorflow": "No .numpy() or print of a tensor in every step; log metrics every so many (steps_per_execution).",
}


@rule("sync-bound", parts=SYNC, limits=LIMITS, explains={"launch-bound", "host-bound"}, delays_rank=True)
def sync_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `sync-bound` when the host's waits, and not its speed, leave the device without work."""
    claim, waits = sync_bound.claim(loop), mean_of(loop, "waits")
    claim = claim and claim.limit(without_own_gaps(loop, SYNC))
    if claim is None or waits < 1:
        return
    host = loop.timeline.host if loop.timeline else None
    waiting = intersect(host.waiting, windows_of(loop)) if host else None
    place = _place_of_waits(trace, waiting, threads_of(loop)) if waiting else {}
    doing = f", in {place['operator']}" if "operator" in place else f", in {place['call']}" if "call" in place else ""
    texts = FindingTexts(
        title="The host waits for the device, then the device waits for the host",
        summary=(
            f"{waits:.1f} times {claim.per} the host waits until the device is done{doing}, "
            f"{format_ms(mean_of(loop, 'waiting_ns'))} in all; after that the device has nothing queued. "
            f"{claim.amount} it is idle because of that.{say_left(claim)}"
        ),
        advice=advise(trace, WAIT_LESS, **WAIT_LESS_IN),
    )
    evidence = {
        "waits_per_iteration": round(waits, 2),
        "waiting_ns_per_iteration": round(mean_of(loop, "waiting_ns")),
        "idle_after_waits_ns_per_iteration": round(mean_of(loop, *SYNC)),
    }
    yield claim.conclude(texts, evidence, place or None)


def _place_of_waits(trace: Trace, waiting: Spans, threads: pl.DataFrame | None) -> dict[str, int | str]:
    """Return the call in which the launching threads wait longest, and its place in the program."""
    call = find_calls(trace, WAIT, waiting, threads) or {}
    return call | (find_place(trace, waiting, threads) or {})
