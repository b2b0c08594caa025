"""The device's queue runs empty while the host loads data."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent, many
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import spans_of_parts, threads_of
from deepprof.metrics.breakdown.program_places import find_place
from deepprof.metrics.host_only import measure_loading
from deepprof.metrics.loop import Loop
from deepprof.metrics.single import CONFIDENCE

PARTS = ("idle_input_ns",)
LIMITS = SeverityLimits(warning=0.08, critical=0.3)
LOAD_AHEAD = (
    "Load the next batch while this one computes, in more processes; decode and augment ahead of time or on the "
    "device; keep hot files on a local disk."
)
LOAD_AHEAD_IN = {
    "pytorch": "DataLoader: more num_workers, persistent_workers=True, a larger prefetch_factor, pin_memory=True.",
    "jax": "Grain or tf.data with prefetch(), and the next batch put on the device before the step is awaited.",
    "tensorflow": "tf.data: map(num_parallel_calls=tf.data.AUTOTUNE), cache() and prefetch(tf.data.AUTOTUNE).",
}


@rule("input-bound", parts=PARTS, limits=LIMITS, explains={"host-bound", "slow-iterations", "drift"}, delays_rank=True)
def input_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `input-bound` when the device idles while the host is loading data."""
    claim = input_bound.claim(loop)
    if claim is None:
        return
    place = find_place(trace, spans_of_parts(loop, PARTS), threads_of(loop))
    name = place.get("range", place.get("operator", place.get("frame", ""))) if place else ""
    texts = FindingTexts(
        title="The device waits for data",
        summary=(f"{claim.amount} the device is idle while the host loads data{f' in {name}' if name else ''}."),
        advice=advise(trace, LOAD_AHEAD, **LOAD_AHEAD_IN),
    )
    yield claim.conclude(texts, {}, place)


def find_loading(trace: Trace) -> Iterator[Finding]:
    """Yield `input-bound`, a remark, where a recording of ranges alone shows that the program loads data for long."""
    found = measure_loading(trace)
    share = 0.0 if found is None else found.loading_ns / max(1, found.whole_ns)
    if found is None or share < LIMITS.warning:
        return
    yield Finding(
        rule=input_bound.name,
        severity="info",
        title="The program loads data",
        summary=(
            f"For {format_ms(found.loading_ns)} of the recording ({format_percent(share)}) the program loads data in "
            f"{found.name}."
        ),
        evidence={"cost_ns_per_iteration": found.loading_ns, "share_ratio": share},
        advice=advise(trace, LOAD_AHEAD, **LOAD_AHEAD_IN),
        confidence=round(CONFIDENCE["recording"] * many(1), 3),
        rank=trace.rank or 0,
        location={"range": found.name},
    )
