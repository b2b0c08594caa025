"""The names of things: a trace of only the CPU has operators on a thread where others have kernels on a stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from deepprof.plurals import counted

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

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
        "idle_host_ns": "idle: other host work",
        "idle_dependency_ns": "idle: other stream",
        "idle_startup_ns": "idle: kernel start-up",
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

# How sentences state the shares of parts; their subject is the device, or the program.
GPU_SHARES: Mapping[str, str] = MappingProxyType(
    {
        "compute_ns": "computes {share}",
        "exposed_communication_ns": "only communicates {share}",
        "exposed_htod_ns": "only copies from the host {share}",
        "exposed_dtoh_ns": "only copies to the host {share}",
        "exposed_dtod_ns": "only copies within its memory {share}",
        "exposed_ptop_ns": "only copies from and to other devices {share}",
        "exposed_copy_ns": "only copies {share}",
        "exposed_memset_ns": "only sets memory {share}",
        "idle_input_ns": "waits for data {share}",
        "idle_launch_ns": "waits for launches {share}",
        "idle_sync_ns": "has nothing queued after the host waited for it {share}",
        "idle_allocator_ns": "waits for memory to be allocated or freed {share}",
        "idle_first_use_ns": "waits while code is loaded for its first use {share}",
        "idle_host_ns": "waits for other work of the host {share}",
        "idle_dependency_ns": "waits with work that needs another stream {share}",
        "idle_startup_ns": "needs to begin queued work {share}",
        "idle_shared_ns": "works for another process {share}",
        "idle_unknown_ns": "is idle for a reason that was not recorded {share}",
    }
)
CPU_SHARES: Mapping[str, str] = MappingProxyType(
    dict(GPU_SHARES)
    | {
        "compute_ns": "runs operators {share}",
        "exposed_communication_ns": "communicates {share}",
        "idle_input_ns": "loads data {share}",
        "idle_launch_ns": "is between operators {share}",
        "idle_sync_ns": "waits {share}",
        "idle_host_ns": "does other work {share}",
        "idle_unknown_ns": "does what was not recorded {share}",
    }
)


@dataclass(frozen=True, slots=True)
class Wording:
    """The nouns of a report.

    `shares` are parts as sentences have them, with `actor` as the subject. `work` is what repeats, `lane` what it runs
    on, `whole` the time that is shown where there is no loop, `mined` the source of iterations without ranges.
    """

    on_cpu: bool
    work: str
    lane: str
    whole: str
    mined: str
    parts: Mapping[str, str]
    shares: Mapping[str, str]
    actor: str

    def count(self, number: int) -> str:
        """Return `12 kernels` or `12 operators`."""
        return counted(number, self.work)

    def speak(self, text: str) -> str:
        """Return a sentence on kernels and their stream, as the miner writes it, in these words."""
        if not self.on_cpu:
            return text
        return LANE.sub(
            "thread", WORK.sub(self.work, text.replace("device gap", "pause").replace("host range", "range"))
        )


WORK, LANE = re.compile(r"\bkernel(?=s?\b)"), re.compile(r"\b(?:main )?stream\b")
GPU = Wording(
    on_cpu=False,
    work="kernel",
    lane="stream",
    whole="the devices' time",
    mined="the kernels and their launches",
    parts=GPU_PARTS,
    shares=GPU_SHARES,
    actor="the device",
)
CPU = Wording(
    on_cpu=True,
    work="operator",
    lane="thread",
    whole="the thread's time",
    mined="the order of the operators",
    parts=CPU_PARTS,
    shares=CPU_SHARES,
    actor="the program",
)


def wording_of(analysis: Analysis) -> Wording:
    """Return the words for an analysis: those of a CPU where none of its recordings saw a device."""
    return CPU if analysis.recordings and all(each.on_cpu for each in analysis.recordings) else GPU
