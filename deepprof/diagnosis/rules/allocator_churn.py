"""Memory is requested of the driver, or given back to it, in every iteration, while the device still has work.

Where the device waits for it, `allocator-bound` reports it, and this rule is silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import STEADY, FindingTexts, format_ms, format_percent
from deepprof.diagnosis.memory_claims import MemoryClaim, Place, place_of, trace_of
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.rules.allocator_bound import KEEP_MEMORY, KEEP_MEMORY_IN, allocator_bound
from deepprof.metrics.memory.churn import find_churn_place, measure_churn
from deepprof.metrics.memory.device_memory import DeviceMemory

LEAST_CALLS = 1.0  # per iteration: in a steady loop a caching allocator makes none
FEWEST_LATER = 3  # iterations of the later half: in fewer the cache may fill still
WORTH = 0.01  # of an iteration that the calls need on the host


@rule("allocator-churn", subject="memory")
def allocator_churn(memory: DeviceMemory) -> Iterator[Finding]:
    """Yield `allocator-churn`, a remark, when most later iterations call the driver for memory."""
    loop = memory.loop
    if loop is None or loop.single or allocator_bound.claim(loop) is not None:
        return
    found = measure_churn(loop, trace_of(memory))
    iteration_ns = float(loop.usual["iteration_ns"].mean() or 0)  # type: ignore[arg-type]
    if found is None or found.iterations < FEWEST_LATER or found.calls < LEAST_CALLS:
        return
    if found.affected < STEADY * found.iterations or found.time_ns < WORTH * iteration_ns:
        return
    share = found.time_ns / iteration_ns
    texts = FindingTexts(
        title="Every iteration requests memory from the driver",
        summary=(
            f"The host requests memory from the driver, or returns it, {found.calls:.1f} times per iteration, in "
            f"{found.affected} of the last {found.iterations}, for {format_ms(found.time_ns)} "
            f"({format_percent(share)}); the device has other work meanwhile."
        ),
        advice=advise(trace_of(memory), KEEP_MEMORY, **KEEP_MEMORY_IN),
    )
    evidence = {
        "calls_per_iteration": round(found.calls, 2),
        "host_ns_per_iteration": round(found.time_ns),
        "share_ratio": round(share, 4),
        "affected_iterations": found.affected,
        "iterations": found.iterations,
    }
    claim = MemoryClaim(rule="allocator-churn", memory=memory)
    yield claim.conclude(texts, evidence, _find_place(memory))


def _find_place(memory: DeviceMemory) -> Place | None:
    """Return the line and operator in which most of the calls' time is."""
    return place_of(find_churn_place(memory) or {}) or None
