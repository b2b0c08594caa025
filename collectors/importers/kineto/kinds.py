"""The kind of record that a Kineto event is, from its phase and category, in both generations of spelling."""

from __future__ import annotations

from collections.abc import Mapping

DEVICE_KINDS = ("kernel", "memcpy", "memset", "sync")
HOST_KINDS = ("op", "runtime", "python", "overhead", "other")
DROPPED_KINDS = ("metadata", "flow", "profiler", "counter", "other-device", "unknown", "undecodable")

PHASES: Mapping[str, str] = {
    **dict.fromkeys("M", "metadata"),
    **dict.fromkeys("stf", "flow"),
    **dict.fromkeys("C", "counter"),
    **dict.fromkeys("iIR", "instant"),
}
CATEGORIES: Mapping[str, str] = {
    "kernel": "kernel",
    "memcpy": "memcpy",
    "gpu_memcpy": "memcpy",
    "memset": "memset",
    "gpu_memset": "memset",
    "cuda_sync": "sync",
    "operator": "op",
    "cpu_op": "op",
    "runtime": "runtime",
    "python_function": "python",
    "overhead": "overhead",
    "user_annotation": "host annotation",
    "gpu_user_annotation": "device annotation",
    "trace": "profiler",
    "cuda_profiler_range": "profiler",
    "gpu_pm_counter": "counter",
    "collective_comm": "other-device",
}
OTHER_DEVICES = ("mtia_", "hpu_", "glow_", "xpu_", "privateuse1_", "tpu_")

# Ranges of the first generation had the operators' category.
OLD_ANNOTATION = r"^(?:ProfilerStep#|enumerate\(DataLoader\)#|Optimizer\.(?:step|zero_grad)#)"
# Ranges that PyTorch writes on its own. ProfilerStep is not among them: the user's prof.step() marks an iteration.
FRAMEWORK_RANGE = (
    r"^(?:enumerate\(DataLoader\)#|Optimizer\.(?:step|zero_grad)#|DistributedDataParallel\.forward"
    r"|FullyShardedDataParallel\.|FSDP::|(?:nccl|gloo|mpi|ucc):|## Call CompiledFxGraph|Torch-Compiled Region"
    r"|TorchDynamo |Pregraph bytecode|PyTorch Profiler|\w+_data: (?:fn_name|compile_id)=)"
)


class KinetoKinds(dict[tuple[str, str], str]):
    """Kinds by (phase, category), computed once for every pair that occurs."""

    def __missing__(self, key: tuple[str, str]) -> str:
        self[key] = _classify(*key)
        return self[key]


def _classify(phase: str, category: str) -> str:
    """Return the kind of an event: a host or device kind, an annotation, `instant`, or the reason for dropping it."""
    if phase != "X":
        return PHASES.get(phase, "unknown")
    category = category.lower()
    if category in CATEGORIES:
        return CATEGORIES[category]
    if category.endswith(("_runtime", "_driver")) or category.startswith("hip"):
        return "runtime"
    return "other-device" if category.startswith(OTHER_DEVICES) else "unknown"
