"""The host is blocked in calls that usually return at once, while the device has nothing to run.

What blocks it does not show: a lock that another thread of the process holds in the driver, memory that is swapped
in, a processor that others use. A host that launches too slowly (`launch_bound`) is late in every call instead."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import spans_of_parts, threads_of
from deepprof.metrics.breakdown.program_places import find_calls, find_place
from deepprof.metrics.loop import Loop
from deepprof.plurals import counted

PARTS = ("idle_blocked_ns",)
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
ADVICE = (
    "Find out what holds the call: another thread of the process that allocates, frees, loads code or waits (the "
    "driver has one lock for them), memory that is swapped, more threads than cores, a debugger. A recording "
    "of the operating system's calls shows locks and context switches (nsys --trace=cuda,osrt; perf sched)."
)


@rule(
    "blocked-call",
    parts=PARTS,
    limits=LIMITS,
    explains={"sync-bound", "launch-bound", "host-bound", "slow-iterations"},
    delays_rank=True,
)
def blocked_call(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `blocked-call` when the device idles while calls need milliseconds that usually take microseconds."""
    claim = blocked_call.claim(loop)
    if claim is None:
        return
    spans = spans_of_parts(loop, PARTS)
    call, longest = (
        find_calls(trace, "", spans, threads_of(loop)) or {},
        int((spans.ends - spans.starts).max(initial=0)),
    )
    name = call.get("call", "a call")
    texts = FindingTexts(
        title=f"The host is blocked in {name}",
        summary=(
            f"{claim.amount} the device is idle while the host is in calls that usually return in "
            f"microseconds, most of it in {name}: {counted(len(spans.starts), 'call')}, up to {format_ms(longest)}."
        ),
        advice=ADVICE,
    )
    place = call | (find_place(trace, spans, threads_of(loop)) or {})
    yield claim.conclude(texts, {"blocked_calls": len(spans.starts), "longest_ns": longest}, place or None)
