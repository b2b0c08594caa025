"""Work is queued on one stream and waits for another one, while nothing runs."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import spans_of_parts, threads_of
from deepprof.metrics.breakdown.program_places import find_place
from deepprof.metrics.loop import Loop

PARTS = ("idle_dependency_ns",)
LIMITS = SeverityLimits(warning=0.15, critical=0.5)


@rule("dependency-bound", parts=PARTS, limits=LIMITS)
def dependency_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `dependency-bound` when the handing over of work between streams leaves the device idle."""
    claim = dependency_bound.claim(loop)
    if claim is None:
        return
    texts = FindingTexts(
        title="Streams wait for each other while the device idles",
        summary=f"{claim.amount} the device is idle although work is queued: it waits for another stream.",
        advice=(
            "Hand work over between streams less often: keep short kernels that depend on each other on one stream, "
            "and wait for an event (wait_event) only where its result is needed; larger pieces hide the handing over."
        ),
    )
    yield claim.conclude(texts, {}, find_place(trace, spans_of_parts(loop, PARTS), threads_of(loop)))
