"""Queued work waits although the device does nothing of this process: something that was not recorded contains it.

On a device that processes share without MPS they take turns of about two milliseconds; a trace of one of them shows
only that its queue does not move. With traces of both, `shared-device` states what each takes from the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import held_back_in
from deepprof.metrics.loop import Loop

PARTS = ("idle_unknown_ns",)
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
MOST_OF = 0.8  # of the part: what else is in it has other causes
CERTAINTY = 0.8  # host functions on the stream look alike; that nothing of this process ran is a fact

ADVICE = (
    "See which processes are on the device while the job runs (nvidia-smi, rocm-smi --showpids), and move one of them "
    "to another device, or run them one after the other. Recorded at the same time and given together, their traces "
    "show what each takes from the other. Where no other process is there: cudaLaunchHostFunc holds a stream, too."
)


@rule("unseen-work", parts=PARTS, limits=LIMITS, explains={"slow-iterations", "drift"})
def unseen_work(loop: Loop, _: Trace) -> Iterator[Finding]:
    """Yield `unseen-work` when work that is queued and ready waits for nothing that the trace shows."""
    claim, waits = unseen_work.claim(loop), held_back_in(loop)
    if claim is None or not waits:
        return
    lengths = waits.ends - waits.starts
    mean_ns = float(lengths.sum()) / max(1, loop.usual.height)
    if mean_ns < MOST_OF * claim.cost.mean_ns:
        return
    each_ns, number = float(np.median(lengths)), len(lengths) / max(1, loop.usual.height)
    texts = FindingTexts(
        title="Queued work waits: something that was not recorded occupies the device",
        summary=(
            f"{claim.amount} the device runs no work of this process although work is queued and ready, "
            f"{number:.1f} times {claim.per}, {format_ms(each_ns)} at the median. Nothing in the trace occupies it: "
            "most likely another process uses the device."
        ),
        advice=ADVICE,
    )
    evidence = {"waits_per_iteration": round(number, 2), "median_wait_ns": round(each_ns)}
    claim = replace(claim, headroom_ns=min(claim.cost.mean_ns, mean_ns), certainty=CERTAINTY)
    yield claim.conclude(texts, evidence)
