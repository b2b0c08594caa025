"""Training jobs that never ran: PyTorch profiler files with a known truth, the same bytes for the same seed.

Every capture starts in the tail of an iteration that it did not see and ends in the middle of another one, holds a
warm-up iteration in which a tuner tries kernels, and a few statistics kernels every tenth iteration.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from deepprof.collectors.errors import UsageError
from deepprof.simulation.kernels import Launch
from deepprof.simulation.machine import DEVICE, PROCESS, Event, Machine
from deepprof.simulation.program import MAIN_STREAM, SCENARIOS, Job, Step, build_iteration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["MAIN_STREAM", "SCENARIOS", "Simulation", "simulate", "write"]

BASE_NS = 1_722_348_000_000_000_000
START_NS = 2_914_553_017_336  # a host that has been up for 48 minutes
TAIL_SHARE = 0.3  # of the iteration that was running when the capture began
CUT_SHARE = 0.45  # of the iteration that was running when it ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A capture and the truth about it.

    `iterations` counts the complete ones, `warmup` how many of the first of them are warm-up. Per complete iteration:
    `kernels` on the main stream; `first_kernels`, the index of its first kernel among the main stream's kernels in
    time order (copies and memsets not counted); `starts_ns` on the trace's absolute clock; `intervals_ns` from the end
    of its last kernel to the first kernel of the next iteration. `finding` is the rule that must fire, if any.
    """

    scenario: str
    seed: int
    document: dict[str, Any]
    iterations: int
    warmup: int
    stream: int
    kernels: tuple[int, ...]
    first_kernels: tuple[int, ...]
    starts_ns: tuple[int, ...]
    intervals_ns: tuple[int, ...]
    finding: str | None


def simulate(scenario: str, *, iterations: int = 40, seed: int = 0, annotate: bool = False) -> Simulation:
    """Simulate a training job that PyTorch's profiler watches for `iterations` complete iterations.

    `annotate` adds the `ProfilerStep#` ranges that `profiler.step()` writes. Raises `UsageError` for a scenario that
    does not exist or fewer than one iteration.
    """
    if scenario not in SCENARIOS:
        raise UsageError(f"no scenario {scenario!r}; choose from {', '.join(SCENARIOS)}")
    if iterations < 1:
        raise UsageError(f"{iterations} iterations cannot be simulated; ask for at least 1")
    machine = Machine(Random(f"{scenario} {seed}"), START_NS)  # noqa: S311  it must repeat, it guards nothing
    firsts = run(machine, SCENARIOS[scenario], iterations, annotate)
    starts = [machine.kernels[i][0] for i in firsts]
    return Simulation(
        scenario=scenario,
        seed=seed,
        document=document(machine),
        iterations=iterations,
        warmup=1,
        stream=MAIN_STREAM,
        kernels=tuple(after - first for first, after in pairwise(firsts)),
        first_kernels=tuple(firsts[:-1]),
        starts_ns=tuple(BASE_NS + start for start in starts[:-1]),
        intervals_ns=tuple(machine.kernels[i][0] - machine.kernels[i - 1][1] for i in firsts[1:]),
        finding=SCENARIOS[scenario].finding,
    )


def write(simulation: Simulation, path: str | Path) -> None:
    """Write the capture to `path`, compressed unless its name ends in `.json`. Raises `OSError`."""
    import msgspec

    from deepprof.files import write_file

    content = msgspec.json.encode(simulation.document)
    if Path(path).suffix != ".json":
        content = gzip.compress(content, compresslevel=6, mtime=0)  # without a time, the same bytes every day
    write_file(path, content)


def run(machine: Machine, job: Job, iterations: int, annotate: bool) -> list[int]:
    """Play the capture; return the index of every iteration's first kernel, the unfinished last one's included."""
    before = list(build_iteration(job, -1, annotate=annotate))
    play(machine, before[-round(len(before) * TAIL_SHARE) :])
    firsts = []
    for index in range(iterations):
        firsts.append(len(machine.kernels))
        play(machine, build_iteration(job, index, annotate=annotate))
    firsts.append(len(machine.kernels))
    play(machine, cut(list(build_iteration(job, iterations, annotate=annotate))))
    return firsts


def play(machine: Machine, steps: Iterable[Step]) -> None:
    """Let `steps` happen in order."""
    for step in steps:
        machine.play(step)


def cut(steps: Sequence[Step]) -> list[Step]:
    """Return `steps` up to the launch at `CUT_SHARE` of their launches."""
    launches = [at for at, step in enumerate(steps) if isinstance(step, Launch)]
    return list(islice(steps, launches[round(len(launches) * CUT_SHARE)]))


def document(machine: Machine) -> dict[str, Any]:
    """Return the profiler's file: host operators, then device activities, names of the rows, the capture's ends."""
    end = max(machine.host_ns, *machine.free.values())
    return {
        "schemaVersion": 1,
        "deviceProperties": [DEVICE_PROPERTIES],
        "cupti_version": 24,
        "cuda_runtime_version": 12040,
        "cuda_driver_version": 12040,
        "trace_id": "5B2A6C1D0E7F48A9B3C4D5E6F7081920",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": [*machine.operators, *machine.activities, *name_rows(machine), *mark_window(end)],
        "traceName": "/tmp/simulated.pt.trace.json",  # noqa: S108  a name in the file, nothing is written there
    }


def name_rows(machine: Machine) -> list[Event]:
    """Return the metadata events that name and order processes and threads."""
    processes = [(PROCESS, "python3", "CPU", PROCESS), (DEVICE, "python3", f"GPU {DEVICE}", 5_000_000 + DEVICE)]
    rows = [
        metadata(kind, pid, 0, {key: value})
        for pid, name, label, order in processes
        for kind, key, value in (
            ("process_name", "name", name),
            ("process_labels", "labels", label),
            ("process_sort_index", "sort_index", order),
        )
    ]
    streams = [
        metadata("thread_name", DEVICE, stream, {"name": f"stream {stream} "}) for stream in sorted(machine.free)
    ]
    return rows + streams


def metadata(kind: str, pid: int, tid: int, args: Event) -> Event:
    """Return one metadata event."""
    return {"name": kind, "ph": "M", "ts": START_NS / 1000, "pid": pid, "tid": tid, "args": args}


def mark_window(end_ns: int) -> list[Event]:
    """Return the events with which the profiler marks its own begin and end."""
    start, end = START_NS / 1000, end_ns / 1000
    profiler = {"pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}}
    instant = {"ph": "i", "s": "g"}
    return [
        {"ph": "X", "cat": "Trace", "ts": start, "dur": (end_ns - START_NS) / 1000, **profiler},
        {
            "name": "Iteration Start: PyTorch Profiler",
            **instant,
            "pid": "Traces",
            "tid": "Trace PyTorch Profiler",
            "ts": start,
        },
        {"name": "Record Window End", **instant, "pid": "", "tid": "", "ts": end},
    ]


DEVICE_PROPERTIES = {
    "id": DEVICE,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 85_031_714_816,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65_536,
    "warpSize": 32,
    "sharedMemPerBlock": 49_152,
    "numSms": 108,
    "regsPerMultiprocessor": 65_536,
    "sharedMemPerBlockOptin": 166_912,
    "sharedMemPerMultiprocessor": 167_936,
}
