"""The device's queue runs empty because the host launches too slowly, though it does not wait (see `sync_bound`)."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, say_left
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import mean_of, spans_of_parts, threads_of, without_own_gaps
from deepprof.metrics.breakdown.program_places import find_own_place, find_place
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.plurals import counted

LAUNCH = ("idle_launch_ns",)
LIMITS = SeverityLimits(warning=0.15, critical=0.5)

QUEUE_EMPTY = ": the device's queue is empty"
LAUNCH_LESS = (
    "Launch less: CUDA graphs, fused kernels, larger batches. Profilers slow launches down: compare with a recording "
    "that holds less."
)
LAUNCH_LESS_IN = {
    "pytorch": (
        "torch.compile (mode='reduce-overhead' uses CUDA graphs), torch.cuda.graphs, fused or foreach optimizers; "
        "record without stacks and shapes."
    ),
    "jax": (
        "Put more into one jit: the whole step with its optimizer, several steps with lax.scan; donate the arguments. "
        "XLA's command buffers (--xla_gpu_enable_command_buffer) replay it as a graph."
    ),
    "tensorflow": "tf.function(jit_compile=True) around the whole step; steps_per_execution in Keras' compile().",
}


@rule("launch-bound", parts=LAUNCH, limits=LIMITS, explains={"small-kernels"}, delays_rank=True)
def launch_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `launch-bound` when the host launches too slowly to keep the device busy, though it does not wait."""
    claim = launch_bound.claim(loop)
    claim = claim and claim.limit(without_own_gaps(loop, LAUNCH))
    if claim is None or is_stand_in(trace):
        return
    launches, spans, threads = mean_of(loop, "launches"), spans_of_parts(loop, LAUNCH), threads_of(loop)
    each = claim.cost.mean_ns / max(1.0, launches)
    own = {} if threads is None else find_own_place(trace, spans, threads) or {}
    work = own.get("operator")  # a frame's own time is that of all launches within it
    less = advise(trace, LAUNCH_LESS, **LAUNCH_LESS_IN)
    texts = FindingTexts(
        title="The host launches too slowly" + (f", most of the time in {work}" if work else QUEUE_EMPTY),
        summary=(
            f"{claim.amount} the device waits for the next launch: "
            f"{counted(launches, 'launch', 'launches')} {claim.per}, each "
            f"{each / 1e3:.1f} µs too late on average.{say_left(claim)}"
        ),
        advice=f"Look at {work} first. {less}" if work else less,
    )
    evidence = {"launches_per_iteration": round(launches, 1), "host_ns_per_launch": round(each)}
    yield claim.conclude(texts, evidence, find_place(trace, spans, threads))
