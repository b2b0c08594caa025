"""The names of things: a trace of only the CPU has operators on a thread where others have kernels on a stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from deepprof.metrics.streams import FEW_KERNELS
from deepprof.plurals import counted
from deepprof.results.analysis_result import AnalysisResult

GPU_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "compute_ns": "compute",
        "exposed_communication_ns": "communication, exposed",
        "exposed_htod_ns": "copies from host, exposed",
        "exposed_dtoh_ns": "copies to host, exposed",
        "exposed_dtod_ns": "copies on device, exposed",
        "exposed_ptop_ns": "copies to peers, exposed",
        "exposed_copy_ns": "other copies, exposed",
        "exposed_memset_ns": "memset, exposed",
        "idle_input_ns": "idle: data loading",
        "idle_launch_ns": "idle: launching",
        "idle_sync_ns": "idle: synchronisation",
        "idle_allocator_ns": "idle: allocator",
        "idle_first_use_ns": "idle: first use, code loading",
        "idle_blocked_ns": "idle: host blocked in a call",
        "idle_host_ns": "idle: other host work",
        "idle_dependency_ns": "idle: other stream",
        "idle_startup_ns": "idle: kernel start-up",
        "idle_submission_ns": "idle: late submission",
        "idle_shared_ns": "idle: another process",
        "idle_unknown_ns": "idle: cause unknown",
    }
)
CPU_PARTS: Mapping[str, str] = MappingProxyType(
    dict(GPU_PARTS)
    | {
        "compute_ns": "operators",
        "idle_input_ns": "data loading",
        "idle_launch_ns": "between operators",
        "idle_sync_ns": "waiting",
        "idle_host_ns": "other work of the program",
        "idle_unknown_ns": "cause unknown",
    }
)

# What the device, or the program, does, as sentences have it, and for what: the parts of the time that it consists of.
GPU_GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "computing": "computes",
        "communicating": "only communicates",
        "copying": "only copies",
        "waiting": "waits",
    }
)
CPU_GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "computing": "runs operators",
        "communicating": "communicates",
        "copying": "copies",
        "waiting": "runs no operator",
    }
)
GPU_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "exposed_htod_ns": "from the host",
        "exposed_dtoh_ns": "to the host",
        "exposed_dtod_ns": "within its memory",
        "exposed_ptop_ns": "from and to other devices",
        "exposed_copy_ns": "in a direction that was not recorded",
        "exposed_memset_ns": "to set memory",
        "idle_input_ns": "for data",
        "idle_launch_ns": "for launches",
        "idle_sync_ns": "for the host to continue after a synchronization",
        "idle_allocator_ns": "for memory to be allocated or freed",
        "idle_first_use_ns": "for code that is loaded on first use",
        "idle_blocked_ns": "while the host is blocked in a call",
        "idle_host_ns": "while the host does other work",
        "idle_dependency_ns": "for another stream",
        "idle_startup_ns": "for queued work to start",
        "idle_submission_ns": "for the driver to submit queued work",
        "idle_shared_ns": "for another process",
        "idle_unknown_ns": "for a reason that was not recorded",
    }
)
CPU_REASONS: Mapping[str, str] = MappingProxyType(
    dict(GPU_REASONS)
    | {
        "idle_input_ns": "while data is loaded",
        "idle_launch_ns": "between operators",
        "idle_sync_ns": "while it waits",
        "idle_host_ns": "while it does other work",
        "idle_unknown_ns": "while it does what was not recorded",
    }
)


class Wording(Struct, frozen=True):
    """The nouns of a report.

    `unit` and `units` are what an iteration consists of: kernels, or copies of a device that does nothing else.
    `actor` is the subject of sentences on where the time goes, `groups` what it does and `reasons` for what. `work` is
    what repeats, `lane` what it runs on, `mined` the source of
    iterations without ranges.
    """

    on_cpu: bool
    work: str
    lane: str
    mined: str
    parts: Mapping[str, str]
    groups: Mapping[str, str]
    reasons: Mapping[str, str]
    actor: str
    unit: str
    units: str

    def count(self, number: int) -> str:
        """Return `12 kernels`, `12 operators` or `12 copies`."""
        return counted(number, self.unit, self.units)

    def speak(self, text: str) -> str:
        """Return a sentence on kernels and their stream, as the miner writes it, in these words."""
        text = ONE.sub(self.unit, SEVERAL.sub(self.units, text))
        if not self.on_cpu:
            return text
        return LANE.sub("thread", text.replace("device gap", "pause").replace("host range", "range"))


# What was not recorded keeps its name.
ONE, SEVERAL = re.compile(r"(?<!\bno )(?<!GPU )\bkernel\b"), re.compile(r"\bkernels\b")
LANE = re.compile(r"\b(?:main )?stream\b")
GPU = Wording(
    on_cpu=False,
    work="kernel",
    lane="stream",
    mined="the kernels and their launches",
    parts=GPU_PARTS,
    groups=GPU_GROUPS,
    reasons=GPU_REASONS,
    actor="the device",
    unit="kernel",
    units="kernels",
)
COPIES = replace(GPU, mined="the copies and their launches", unit="copy", units="copies")
CPU = Wording(
    on_cpu=True,
    work="operator",
    lane="thread",
    mined="the order of the operators",
    parts=CPU_PARTS,
    groups=CPU_GROUPS,
    reasons=CPU_REASONS,
    actor="the program",
    unit="operator",
    units="operators",
)


def wording_of(analysis: AnalysisResult) -> Wording:
    """Return the words for an analysis: of a CPU where no recording saw a device, of copies where devices only copy."""
    if analysis.recordings and all(each.on_cpu for each in analysis.recordings):
        return CPU
    events = analysis.summary.events
    kernels, copies = events.get("kernel", 0) + events.get("graph", 0), events.get("memcpy", 0)
    return COPIES if copies and kernels <= FEW_KERNELS * copies else GPU
