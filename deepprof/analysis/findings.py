"""What the rules find in one rank's trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.code_places import name_lines
from deepprof.diagnosis.engine import (
    diagnose_contexts,
    diagnose_loop,
    diagnose_memory,
    diagnose_shares,
    diagnose_work,
)
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.input_bound import find_loading
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.contexts.per_loop import LoopContexts, read_loop_contexts
from deepprof.metrics.cost.loop_device import describe_device
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.device_memory import list_memory
from deepprof.metrics.sharing.shares import ShareOfDevice
from deepprof.metrics.trace_loops import FoundLoops


def find_findings(
    annotation: TraceAnnotation,
    found: FoundLoops,
    kinds: KernelKinds,
    shares: tuple[ShareOfDevice, ...],
    peaks: Mapping[int, DevicePeaks | None],
) -> tuple[Finding, ...]:
    """Return the findings on a trace: on its loops, what they compute, their contexts, memory and shared devices."""
    trace = annotation.trace
    findings = [
        *_diagnose_loops(annotation, found, kinds, peaks),
        *_diagnose_memory(annotation, found),
        *find_loading(trace),
    ]
    return (*findings, *diagnose_shares(shares, found.loops, findings))


def _diagnose_loops(
    annotation: TraceAnnotation, found: FoundLoops, kinds: KernelKinds, peaks: Mapping[int, DevicePeaks | None]
) -> Iterator[Finding]:
    """Yield the findings on the loops, on what they compute, and on their calling contexts where these are known."""
    trace = annotation.trace
    contexts = {id(loop): _read_contexts(loop, annotation, found) for loop in found.measured}
    known = [each for each in contexts.values() if each is not None]
    yield from name_lines([each for loop in found.measured for each in diagnose_loop(loop, trace)], known)
    for loop in found.measured:
        yield from _diagnose_work(loop, trace, kinds, peaks.get(loop.device), contexts[id(loop)])
    for each in known:
        yield from diagnose_contexts(each)


def _read_contexts(loop: Loop, annotation: TraceAnnotation, found: FoundLoops) -> LoopContexts | None:
    """Return the calling contexts of a loop, None where they are unknown."""
    if annotation.tree is None:
        return None
    return read_loop_contexts(annotation.trace, annotation.tree, loop, found.timelines.values())


def _diagnose_work(
    loop: Loop, trace: Trace, kinds: KernelKinds, peaks: DevicePeaks | None, contexts: LoopContexts | None
) -> list[Finding]:
    if loop.work is None:
        return []
    device = describe_device(trace, loop.device)
    name = None if device is None else device["name"]
    return diagnose_work(LoopWork(loop, trace, kinds, loop.work, peaks, name, contexts))


def _diagnose_memory(annotation: TraceAnnotation, found: FoundLoops) -> Iterator[Finding]:
    """Yield the findings on the memory of every device that computes, and of those that no work was recorded on."""
    for memory in list_memory(annotation, found.measured):
        if not memory.is_beside:
            yield from diagnose_memory(memory)
