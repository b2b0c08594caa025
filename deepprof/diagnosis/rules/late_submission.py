"""Work is launched on an idle device and waits for nothing, but begins milliseconds late: the driver holds it back.

Drivers that gather work before they submit it do that, as Windows' display driver model (WDDM), through WSL as well,
and some hypervisors. Another process on the device delays work in the middle of a filled queue, too (`unseen_work`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import spans_of_parts
from deepprof.metrics.loop import Loop

PARTS = ("idle_submission_ns",)
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
ADVICE = (
    "On Windows turn on hardware-accelerated GPU scheduling, or the TCC or MCDM driver model where the device has it "
    "(nvidia-smi -dm); native Linux has no such delay, WSL and virtual machines do. Otherwise leave the device idle "
    "less often: do not wait for it right after a launch, launch ahead, and submit less often and more at a time (CUDA "
    "graphs). Where none of these is in use, look for another process on the device."
)


@rule("late-submission", parts=PARTS, limits=LIMITS, explains={"slow-iterations", "drift"})
def late_submission(loop: Loop, _: Trace) -> Iterator[Finding]:
    """Yield `late-submission` when the driver hands work over to an idle device late."""
    claim, waits = late_submission.claim(loop), spans_of_parts(loop, PARTS)
    if claim is None or not len(waits.starts):
        return
    each_ns, number = float(np.median(waits.ends - waits.starts)), len(waits.starts) / max(1, loop.usual.height)
    texts = FindingTexts(
        title="The driver hands launched work over to the device late",
        summary=(
            f"{claim.amount} the device is idle although work was launched and waits for nothing, {number:.1f} times "
            f"{claim.per}, {format_ms(each_ns)} at the median: the driver submits it late."
        ),
        advice=ADVICE,
    )
    evidence = {"waits_per_iteration": round(number, 2), "median_wait_ns": round(each_ns)}
    yield claim.conclude(texts, evidence)
