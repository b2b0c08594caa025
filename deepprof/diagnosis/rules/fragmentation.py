"""The allocator holds memory that it cannot use: enough is free in all, but in pieces that are too short."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_nbytes, format_percent
from deepprof.diagnosis.memory_claims import MemoryClaim, place_of, trace_of
from deepprof.diagnosis.rule import rule
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.memory.failures import FailedAllocation, list_failures
from deepprof.metrics.memory.floors import begins
from deepprof.metrics.memory.segments import Fragmentation, measure_fragmentation, measure_refused

SPLIT = 0.2  # of what the allocator holds at the peak is next to blocks in use, the longest section left out
REFUSED = 0.1  # of what it contains was taken after warm-up although as much was free
MUCH = 0.5  # of the device's memory: while the allocator holds less, nothing is short
SAME_SIZES = (
    "Allocate what lives long before what lives short, and give tensors the same sizes in every iteration (pad or "
    "bucket them)."
)
SAME_SIZES_IN = {
    "pytorch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets segments grow in place of being split.",
    "jax": "XLA_PYTHON_CLIENT_PREALLOCATE=true takes one large piece that nothing divides.",
    "tensorflow": "TF_GPU_ALLOCATOR=cuda_malloc_async has a pool that moves what is free together.",
}


@rule("fragmentation", subject="memory", explains={"near-limit", "allocator-churn"})
def fragmentation(memory: DeviceMemory) -> Iterator[Finding]:
    """Yield `fragmentation`, a remark, when memory is free that nothing fits into, or an allocation failed for that."""
    found = measure_fragmentation(memory)
    if found is None or not found.reserved_nbytes:
        return
    failed = next((each for each in list_failures(memory) if each.is_fragmented), None)
    split, refused = found.pieces_nbytes / found.reserved_nbytes, _measure_refused(memory)
    if failed is None and split < SPLIT and refused < REFUSED * found.reserved_nbytes:
        return
    if failed is None and _has_room(memory):
        return
    texts = FindingTexts(
        title="Memory is free in pieces that are too short",
        summary=_describe(found, failed, refused),
        advice=advise(trace_of(memory), SAME_SIZES, **SAME_SIZES_IN),
    )
    evidence = {
        "allocated_nbytes": found.allocated_nbytes,
        "reserved_nbytes": found.reserved_nbytes,
        "split_nbytes": found.split_nbytes,
        "largest_free_nbytes": found.largest_nbytes,
        "refused_nbytes": refused,
        "failed_nbytes": None if failed is None else failed.asked_nbytes,
    }
    place = place_of(failed.line) if failed is not None else None
    yield MemoryClaim(rule="fragmentation", memory=memory).conclude(texts, evidence, place)


def _has_room(memory: DeviceMemory) -> bool:
    """Return whether the allocator never held much of the device's memory: the driver has more for any request."""
    use, size = memory.use, memory.capacity_nbytes
    held = None if use is None else use.reserved_nbytes
    return held is not None and size is not None and int(held.max()) < MUCH * size


def _measure_refused(memory: DeviceMemory) -> int:
    """Return what the allocator took after the warm-up although as much was free in all."""
    if memory.use is None or memory.loop is None or memory.has_only_totals:
        return 0
    begin = begins(memory.loop, trace_of(memory))[1]
    return measure_refused(memory.use, int(begin[0])) if len(begin) else 0


def _describe(found: Fragmentation, failed: FailedAllocation | None, refused: int) -> str:
    """Return what shows the fragmentation, the clearest first."""
    held = f"{format_nbytes(found.free_nbytes)} of {format_nbytes(found.reserved_nbytes)} are held and not in use"
    if failed is not None:
        free = format_nbytes(failed.free_in_all_nbytes or 0)
        return f"An allocation of {format_nbytes(failed.asked_nbytes)} failed although {free} were free in all; {held}."
    if found.pieces_nbytes >= SPLIT * found.reserved_nbytes:
        share = format_percent(found.pieces_nbytes / found.reserved_nbytes)
        return (
            f"At the peak {held}, {format_nbytes(found.pieces_nbytes)} ({share}) in pieces between blocks in use; the "
            f"longest free stretch has {format_nbytes(found.largest_nbytes or 0)}."
        )
    return f"The allocator took {format_nbytes(refused)} more although as much was free; at the peak {held}."
