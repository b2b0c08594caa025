"""Queue starvation because of how the host launches: too slowly, or again and again after waiting.

Both leave the queue empty. They differ in whether the host had time to spare. A host that waits for the device could
have launched ahead instead, so the waits are the cause; a host that never waits is too slow.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import CostClaim, FindingTexts, SeverityLimits, format_ms
from deepprof.metrics.breakdown.costs import cost_of, mean_of, spans_of_parts, threads_of, windows_of
from deepprof.metrics.breakdown.host_states import WAIT
from deepprof.metrics.breakdown.program_places import find_calls, find_place
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.spans import Spans, intersect
from deepprof.plurals import counted

__all__ = ["launch_bound", "sync_bound"]

SYNC, LAUNCH = ("idle_sync_ns",), ("idle_launch_ns",)
SYNC_LIMITS = SeverityLimits(warning=0.1, critical=0.3)
EXCUSED = 0.5  # share of the idle time that the waits must last to be its cause
LAUNCH_LIMITS = SeverityLimits(warning=0.15, critical=0.5)

WAIT_LESS = (
    "Read values back less often: keep sums on the device and fetch them every so many iterations; copy "
    "asynchronously, from and to pinned memory."
)
WAIT_LESS_IN = {
    "pytorch": (
        "No .item(), .cpu(), print of a tensor, if on a tensor's value or torch.cuda.synchronize() in the loop; "
        ".to(device, non_blocking=True). torch.cuda.set_sync_debug_mode('warn') names the lines."
    ),
    "jax": (
        "No float(), print or numpy of a result, and no block_until_ready() in every step: return metrics and look at "
        "those of an earlier step, so that dispatch runs ahead."
    ),
    "tensorflow": "No .numpy() or print of a tensor in every step; log metrics every so many (steps_per_execution).",
}
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


def blamed_on_waits(loop: Loop) -> tuple[str, ...]:
    """Return the parts of the time that the host's waits cause.

    Late launches are among them where the waits are long enough for the host to have launched ahead instead.
    """
    starved = mean_of(loop, *SYNC, *LAUNCH)
    return (*SYNC, *LAUNCH) if mean_of(loop, "waiting_ns") >= EXCUSED * starved else SYNC


def sync_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `sync-bound` when the host's waits, and not its speed, leave the device without work."""
    parts = blamed_on_waits(loop)
    cost = cost_of(loop, parts)
    if cost is None or mean_of(loop, "waits") < 1:
        return
    headroom_ns = min(cost.mean_ns, mean_of(loop, "waiting_ns"))
    claim = CostClaim(rule="sync-bound", loop=loop, cost=cost, parts=parts, limits=SYNC_LIMITS, headroom_ns=headroom_ns)
    if not claim.holds:
        return
    waits = mean_of(loop, "waits")
    host = loop.timeline.host if loop.timeline else None
    waiting = intersect(host.waiting, windows_of(loop)) if host else None
    place = place_of_waits(trace, waiting, threads_of(loop)) if waiting else {}
    doing = f", in {place['operator']}" if "operator" in place else f", in {place['call']}" if "call" in place else ""
    texts = FindingTexts(
        title="The host waits for the device, then the device waits for the host",
        summary=(
            f"{waits:.1f} times {claim.per} the host waits until the device is done{doing}, "
            f"{format_ms(mean_of(loop, 'waiting_ns'))} in all; after that the device has nothing queued. "
            f"{claim.amount} are idle because of it."
        ),
        advice=advise(trace, WAIT_LESS, **WAIT_LESS_IN),
    )
    evidence = {
        "waits_per_iteration": round(waits, 2),
        "waiting_ns_per_iteration": round(mean_of(loop, "waiting_ns")),
        "idle_after_waits_ns_per_iteration": round(mean_of(loop, *SYNC)),
    }
    yield claim.conclude(texts, evidence, place or None)


def place_of_waits(trace: Trace, waiting: Spans, threads: pl.DataFrame | None) -> dict[str, int | str]:
    """Return the call in which the launching threads wait longest, and its place in the program."""
    call = find_calls(trace, WAIT, waiting, threads) or {}
    return call | (find_place(trace, waiting, threads) or {})


def launch_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `launch-bound` when the host launches too slowly to keep the device busy, though it does not wait."""
    cost = cost_of(loop, LAUNCH)
    if cost is None or is_stand_in(trace):
        return
    if mean_of(loop, "waits") >= 1 and blamed_on_waits(loop) != SYNC:
        return
    claim = CostClaim(rule="launch-bound", loop=loop, cost=cost, parts=LAUNCH, limits=LAUNCH_LIMITS)
    if not claim.holds:
        return
    launches = mean_of(loop, "launches")
    each = cost.mean_ns / max(1.0, launches)
    texts = FindingTexts(
        title="The host launches too slowly: the device's queue is empty",
        summary=(
            f"{claim.amount} the device waits for the next launch: "
            f"{counted(launches, 'launch', 'launches')} {claim.per}, each "
            f"{each / 1e3:.1f} µs too late on average."
        ),
        advice=advise(trace, LAUNCH_LESS, **LAUNCH_LESS_IN),
    )
    evidence = {"launches_per_iteration": round(launches, 1), "host_ns_per_launch": round(each)}
    place = find_place(trace, spans_of_parts(loop, LAUNCH), threads_of(loop))
    yield claim.conclude(texts, evidence, place)
