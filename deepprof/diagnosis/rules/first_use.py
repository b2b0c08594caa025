"""The host uses something for the first time: a kernel's code is loaded, a library starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import spans_of_parts, threads_of
from deepprof.metrics.breakdown.program_places import find_calls
from deepprof.metrics.loop import Loop

PARTS = ("idle_first_use_ns",)
LIMITS = SeverityLimits(warning=0.1, critical=0.3)


@rule("first-use", parts=PARTS, limits=LIMITS)
def first_use(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `first-use` when calls that load code take much of the time; a remark, because it happens only once."""
    claim = first_use.claim(loop)
    if claim is None:
        return
    place = find_calls(trace, "", spans_of_parts(loop, PARTS), threads_of(loop))
    called = f" ({next(iter(place.values()))})" if place else ""
    texts = FindingTexts(
        title="Code is loaded or a library starts on first use",
        summary=(
            f"{claim.amount} the device has nothing to do while the host uses something for the first time{called}."
        ),
        advice=(
            "Leave it out of what you measure: start recording after some iterations. To avoid it in short runs, "
            "load code while the data is prepared (CUDA_MODULE_LOADING=EAGER), and keep the process running."
        ),
    )
    yield replace(claim.conclude(texts, {}, place), severity="info")
