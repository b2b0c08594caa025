"""The device's queue runs empty while the driver allocates or frees memory."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import mean_of, spans_of_parts, threads_of
from deepprof.metrics.breakdown.program_places import find_place
from deepprof.metrics.loop import Loop

PARTS = ("idle_allocator_ns",)
# In a steady loop the caching allocator requests nothing from the driver.
LIMITS = SeverityLimits(warning=0.05, critical=0.2)
KEEP_MEMORY = (
    "Keep the memory from one iteration to the next instead of freeing it: a caching allocator or a pool, buffers made "
    "once; shapes that do not change in every iteration (pad or bucket them), and a little less memory in use."
)
KEEP_MEMORY_IN = {
    "pytorch": (
        "No torch.cuda.empty_cache() in the loop; PYTORCH_NO_CUDA_MEMORY_CACHING must not be set; "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation."
    ),
    "jax": "XLA_PYTHON_CLIENT_PREALLOCATE must not be false, nor XLA_PYTHON_CLIENT_ALLOCATOR=platform.",
    "tensorflow": "TF_FORCE_GPU_ALLOW_GROWTH makes it ask again and again; TF_GPU_ALLOCATOR=cuda_malloc_async pools.",
}


@rule(
    "allocator-bound",
    parts=PARTS,
    limits=LIMITS,
    explains={"sync-bound", "launch-bound", "slow-iterations", "host-bound"},
    delays_rank=True,
)
def allocator_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `allocator-bound` when the device idles during calls such as cudaMalloc and cudaFree."""
    claim = allocator_bound.claim(loop)
    if claim is None:
        return
    calls = mean_of(loop, "allocations")
    texts = FindingTexts(
        title="The device waits for memory to be allocated and freed",
        summary=(
            f"{claim.amount} the device is idle while "
            f"the host allocates or frees device memory, {calls:.1f} calls {claim.per}; a free waits for the device."
        ),
        advice=advise(trace, KEEP_MEMORY, **KEEP_MEMORY_IN),
    )
    place = find_place(trace, spans_of_parts(loop, PARTS), threads_of(loop))
    yield claim.conclude(texts, {"allocations_per_iteration": round(calls, 2)}, place)
