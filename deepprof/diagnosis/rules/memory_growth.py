"""Every iteration leaves more memory in use: losses kept with their history, caches without a limit.

A line leaks that leaves something unreleased in nearly all iterations, if that would double what is in use within a
thousand of them (where no totals are recorded: if it is large, too), or fill the device within a hundred thousand.
Where allocations have no addresses, or no single line leaks, what iterations leave in use in all must grow
(`find_memory_growth`): by a good part of it, or over twenty iterations and more by as much as a line that leaks.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_nbytes
from deepprof.diagnosis.memory_claims import MemoryClaim, Place, place_of, trace_of
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.frames import write_line
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.memory.leaks import list_growth, may_grow
from deepprof.metrics.memory.rises import LEAK_NBYTES, find_memory_growth

DOUBLED, FULL = 1_000, 100_000  # iterations within which memory in use doubles, or the device is full
KEPT = (
    "Find what is kept from every iteration: losses or outputs stored with their autograd history (store "
    ".item() or .detach()), lists of tensors for statistics, caches without a limit."
)
KEPT_IN = {"pytorch": "torch.cuda.memory._record_memory_history() shows where it was allocated."}


class _Leak(Struct, frozen=True):
    """What grows: per iteration, over the trace, and where it is allocated; `certainty` as of a finding."""

    nbytes: float
    grown: int
    iterations: int
    certainty: float
    place: Place
    line: str


@rule("memory-growth", subject="memory", explains={"near-limit"})
def memory_growth(memory: DeviceMemory) -> Iterator[Finding]:
    """Yield `memory-growth` for what iterations leave in use, with the line that leaves most of it."""
    leak = _find_leak(memory) or _find_rise(memory)
    if leak is None:
        return
    left = _count_left(memory, leak.nbytes)
    size = memory.capacity_nbytes
    ending = f"; at that pace its {format_nbytes(size)} are full after {left} more iterations" if size and left else ""
    texts = FindingTexts(
        title="Every iteration leaves more memory in use",
        summary=(
            f"Memory in use between iterations grows by {format_nbytes(leak.nbytes)} per iteration, "
            f"{format_nbytes(leak.grown)} over the trace{ending}{leak.line}."
        ),
        advice=advise(trace_of(memory), KEPT, **KEPT_IN),
    )
    evidence = {
        "nbytes_per_iteration": round(leak.nbytes),
        "grown_nbytes": leak.grown,
        "leaking_iterations": leak.iterations,
        "last_nbytes": _last_in_use(memory),
        "device_nbytes": size,
        "iterations_left": left,
    }
    claim = MemoryClaim(rule="memory-growth", memory=memory, severity="warning", certainty=leak.certainty)
    yield claim.conclude(texts, evidence, leak.place)


def _find_leak(memory: DeviceMemory) -> _Leak | None:
    """Return what the lines leave that leave something in nearly all iterations; None where that is little."""
    if memory.use is None or not may_grow(memory):
        return None
    lines = list_growth(memory).filter("is_steady")
    if lines.is_empty():
        return None
    nbytes, most = float(lines["nbytes"].sum()), lines.row(0, named=True)
    if not _is_much(memory, nbytes):
        return None
    known = most["file"] is not None
    where = write_line(most["function"], most["file"], most["line"]) if known else most["operator"]
    line = f"; {100 * most['nbytes'] / nbytes:.0f} % of it is allocated in {where}" if where else ""
    looked_at = int(most["looked_at"])
    return _Leak(nbytes, round(nbytes * looked_at), looked_at, 1.0, place_of(most), line)


def _is_much(memory: DeviceMemory, nbytes: float) -> bool:
    """Return whether this much per iteration matters before a job is over.

    Without totals it is unknown what is in use next to what the recording shows, and so not when that doubles.
    """
    use, size = memory.use, memory.capacity_nbytes
    in_use = int(use.allocated_nbytes.max()) if use is not None else 0
    least = in_use / DOUBLED if use is not None and use.absolute else max(in_use / DOUBLED, LEAK_NBYTES)
    return nbytes >= least or (size is not None and nbytes * FULL >= size - in_use >= 0)


def _find_rise(memory: DeviceMemory) -> _Leak | None:
    """Return by how much more memory is in use after each iteration, whoever allocates it."""
    if memory.loop is None:
        return None
    found = find_memory_growth(memory.loop, trace_of(memory), lambda nbytes: _is_much(memory, nbytes))
    if found is None:
        return None
    many = found.bounds[1] - found.bounds[0] + 1
    return _Leak(found.per_iteration, found.grown, many, found.certainty, {}, "")


def _last_in_use(memory: DeviceMemory) -> int | None:
    """Return the memory in use at the end, None where no totals were recorded."""
    use = memory.use
    return int(use.allocated_nbytes[-1]) if use is not None and use.absolute else None


def _count_left(memory: DeviceMemory, nbytes: float) -> int | None:
    """Return after how many more iterations the device is full, None where that is unknown."""
    size, last = memory.capacity_nbytes, _last_in_use(memory)
    return None if size is None or last is None else max(0, round((size - last) / max(1.0, nbytes)))
