"""The host uses something for the first time: a kernel's code is loaded, a library starts, a graph is captured."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import CostClaim, FindingTexts, Place, SeverityLimits
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import spans_of_parts, threads_of
from deepprof.metrics.breakdown.program_places import find_calls
from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import Spans, intersect

PARTS = ("idle_first_use_ns",)
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
MOST = 0.5  # of the time: the finding is about it
LIKELY = 0.75  # certainty that a library is read where nothing is recorded but the code that it loads then
LEAVE_OUT = (
    "Leave it out of what you measure: start recording after some iterations. To avoid it in short runs, "
    "load code while the data is prepared (CUDA_MODULE_LOADING=EAGER), and keep the process running."
)
REPLAY = (
    "Record the replays of the graph, which the capture does not show. It happens once; keep the process and the "
    "shapes, so that no graph is captured again."
)


@rule("first-use", parts=PARTS, limits=LIMITS)
def first_use(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `first-use` when calls that load code use much of the time; a remark, because it happens only once.

    `first_use` in the evidence is `capture` where most of the time a graph is captured, `pause` where a library is most
    likely read, though no call shows it.
    """
    claim = first_use.claim(loop)
    if claim is None:
        return
    spans = spans_of_parts(loop, PARTS)
    kind = _find_kind(loop, spans)
    place = None if kind else find_calls(trace, "", spans, threads_of(loop))
    claim = replace(claim, certainty=LIKELY) if kind == "pause" else claim
    evidence = {"first_use": kind} if kind else {}
    yield replace(claim.conclude(_describe(claim, kind, place), evidence, place), severity="info")


def _find_kind(loop: Loop, spans: Spans) -> str:
    """Return what uses most of the time; empty for calls."""
    timeline = loop.timeline
    if timeline is None or timeline.host is None:
        return ""
    kinds = {"capture": timeline.host.captures, "pause": timeline.start_pauses}
    large = (kind for kind, when in kinds.items() if intersect(spans, when).total_ns > MOST * spans.total_ns)
    return next(large, "")


def _describe(claim: CostClaim, kind: str, place: Place) -> FindingTexts:
    idle = f"{claim.amount} the device is idle while the host"
    if kind == "capture":
        captures = "captures a graph: what is launched meanwhile becomes part of it, and is not meant to run."
        title = "The host captures a graph, in which nothing is meant to run"
        return FindingTexts(title, f"{idle} {captures}", REPLAY)
    if kind == "pause":
        reads = (
            "most likely reads a library that it uses for the first time: nothing is recorded between two loads of "
            "code, after which a kernel is launched for the first time."
        )
        return FindingTexts("The host most likely reads a library for its first use", f"{idle} {reads}", LEAVE_OUT)
    called = f" ({next(iter(place.values()))})" if place else ""
    uses = f"uses something for the first time{called}."
    return FindingTexts("Code is loaded or a library starts on first use", f"{idle} {uses}", LEAVE_OUT)
