"""The device's queue runs empty while the host loads data."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import spans_of_parts, threads_of
from deepprof.metrics.breakdown.program_places import find_place
from deepprof.metrics.loop import Loop

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
        summary=(
            f"{claim.amount} the device has nothing to do while the host loads data{f' in {name}' if name else ''}."
        ),
        advice=advise(trace, LOAD_AHEAD, **LOAD_AHEAD_IN),
    )
    yield claim.conclude(texts, {}, place)
