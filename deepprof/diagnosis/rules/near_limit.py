"""The peak of the memory in use comes near the size of the device: a longer sequence or one more batch may not fit."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_nbytes, format_percent
from deepprof.diagnosis.memory_claims import MemoryClaim, place_of, trace_of
from deepprof.diagnosis.rule import rule
from deepprof.metrics.memory.composition import add_up_by
from deepprof.metrics.memory.device_memory import DeviceMemory

NEAR = 0.9  # of the device's memory in use at the peak: libraries, the driver and fragmentation need some of the rest
BEYOND = "More is in use at the peak than the device's memory holds"  # managed memory is on the host, too
LESS = (
    "Where more has to fit: smaller batches with gradient accumulation, recomputed activations, parameters and "
    "optimizer state in fewer bytes or shared among ranks."
)
LESS_IN = {
    "pytorch": "torch.utils.checkpoint recomputes activations; FSDP shards parameters, gradients and optimizer state.",
    "jax": "jax.checkpoint recomputes activations; sharding parameters over devices divides them.",
}


@rule("near-limit", subject="memory")
def near_limit(memory: DeviceMemory) -> Iterator[Finding]:
    """Yield `near-limit`, a remark, when nearly all of a device's memory is in use at the peak."""
    use, size = memory.use, memory.capacity_nbytes
    if use is None or size is None or not use.absolute:
        return
    peak = int(use.allocated_nbytes[use.peak])
    if peak < NEAR * size:
        return
    shares = add_up_by(memory.peak, "category").row(0, named=True)
    earlier = str(shares["category"]).startswith("before")
    texts = FindingTexts(
        title=BEYOND if peak > size else "Nearly all of the device's memory is in use at the peak",
        summary=(
            f"{format_nbytes(peak)} of {format_nbytes(size)} ({format_percent(peak / size)}) are in use at the peak; "
            f"{format_nbytes(shares['nbytes'])} of that {'were allocated' if earlier else 'are'} {shares['category']}."
        ),
        advice=advise(trace_of(memory), LESS, **LESS_IN),
    )
    evidence = {
        "peak_nbytes": peak,
        "device_nbytes": size,
        "peak_ratio": round(peak / size, 4),
        "headroom_nbytes": max(0, size - peak),
        "reserved_nbytes": None if use.reserved_nbytes is None else int(use.reserved_nbytes.max()),
    }
    yield MemoryClaim(rule="near-limit", memory=memory).conclude(
        texts, evidence, place_of(memory.peak.row(0, named=True))
    )
