"""The recording lacks something that the results need, and how to record it."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rule import rule
from deepprof.metrics.completeness import find_lacks
from deepprof.metrics.loop import Loop

# How sure it is that what is missing matters: that it is missing is a fact.
DECISIVE, MINOR = 0.9, 0.5
# By prefix of the format's name; the first match wins.
ADVICE = (
    (
        "kineto",
        "torch.profiler with activities=[CPU, CUDA] and schedule(wait=1, warmup=3, active=20); call step() once per "
        "iteration, and let the program go on until the trace is written.",
    ),
    (
        "nsys",
        "`nsys profile --trace=cuda,nvtx,osrt --cuda-graph-trace=node`, over twenty iterations or more; end the range "
        "with cudaProfilerStop (torch.cuda.profiler.stop()) or let the program end by itself, so that nothing is lost.",
    ),
    (
        "nvprof",
        "a larger --device-buffer-size, twenty iterations or more, and a program that ends by itself (or calls "
        "cudaProfilerStop); better, Nsight Systems.",
    ),
    ("ro", "`rocprofv3 --sys-trace` (kernels, copies and HIP calls), over twenty iterations or more."),
    ("rpd", "`runTracer.sh` with HIP calls, over twenty iterations or more."),
    (
        "x",
        "jax.profiler.start_trace and stop_trace around twenty iterations or more after the first ones, with "
        "host_tracer_level=2, and block_until_ready before the end.",
    ),
    ("", "twenty iterations or more after warm-up, kernels and copies with the runtime calls that launched them."),
)


@rule("capture-incomplete")
def capture_incomplete(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `capture-incomplete` with all that the recording lacks: a warning where the results depend on it."""
    lacks = [] if loop.single else find_lacks(loop, trace)
    if not lacks:
        return
    decisive = lacks[0].decisive
    advice = next(text for prefix, text in ADVICE if trace.format.startswith(prefix))
    yield Finding(
        rule="capture-incomplete",
        severity="warning" if decisive else "info",
        title="The recording is incomplete"
        if decisive
        else "The recording is too short or lacks records for some results",
        summary=(
            _sentence("; ".join(lack.what for lack in lacks))
            + f" Missing as a result: {'; '.join(dict.fromkeys(lack.prevents for lack in lacks))}."
        ),
        evidence={lack.key: lack.value for lack in lacks},
        advice=f"Record {advice}",
        headroom_ns_per_iteration=None,
        confidence=round(loop.confidence * (DECISIVE if decisive else MINOR), 3),
        **loop.place,
    )


def _sentence(text: str) -> str:
    """Return the text with a capital at its start and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:]}."
