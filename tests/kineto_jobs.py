"""Recordings of PyTorch's profiler that are written kernel by kernel: the program is a list, the rest is added."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

LAUNCH_US = 5.0  # of the host per kernel
GAP_US = 1.0  # of the device between kernels
PROCESS, THREAD = 4242, 1
READ_US = 40.0  # of the host between iterations

Event = dict[str, object]


@dataclass(frozen=True)
class TimedKernel:
    """A kernel: the operators around its launch from outside to inside, its name and its duration.

    An operator with `~7` behind its name has the sequence number 7, one with `~7!` is the backward node of that one.
    """

    operators: str
    name: str
    us: float
    dims: object = None
    types: Sequence[str] = ()
    stream: int = 7
    grid: Sequence[int] = (1024, 1, 1)
    device: int = 0


@dataclass(frozen=True)
class DeviceOfJob:
    """What Kineto writes of a device; `name` empty: it writes nothing."""

    name: str = "NVIDIA A100-SXM4-80GB"
    major: int = 8
    minor: int = 0
    multiprocessors: int = 108

    def describe(self, index: int) -> Event:
        """Return the entry of `deviceProperties`."""
        return {
            "id": index,
            "name": self.name,
            "computeMajor": self.major,
            "computeMinor": self.minor,
            "numSms": self.multiprocessors,
            "totalGlobalMem": 80 * 1024**3,
            "warpSize": 32,
        }


@dataclass(frozen=True)
class KinetoJob:
    """A job on one rank: the kernels of an iteration, and what surrounds them.

    `wait_us`: what the host does after the kernels of an iteration, while the device waits. `slow`: by how much each
    iteration's kernels last longer. `steps`: whether `ProfilerStep#` is annotated.
    """

    kernels: Sequence[TimedKernel]
    devices: Sequence[DeviceOfJob] = (DeviceOfJob(),)
    iterations: int = 8
    wait_us: float = READ_US
    slow: Sequence[float] = ()
    steps: bool = True
    rank: int | None = None
    ranks: int = 1

    def write(self, path: Path) -> Path:
        """Write the recording and return its path."""
        path.write_text(json.dumps(self.make_document()))
        return path

    def make_document(self) -> Event:
        """Return Kineto's document."""
        document: Event = {"schemaVersion": 1, "traceEvents": list(_Writing(self).write())}
        named = [device.describe(index) for index, device in enumerate(self.devices) if device.name]
        if named:
            document["deviceProperties"] = named
        if self.rank is not None:
            document["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": self.ranks}
        return document


class _Writing:
    """The clocks of the host and of the device's streams while a job is written."""

    def __init__(self, job: KinetoJob) -> None:
        self.job = job
        self.host = 1_000_000.0
        self.free: dict[tuple[int, int], float] = {}
        self.numbers = count(1)

    def write(self) -> Iterable[Event]:
        for index in range(self.job.iterations):
            begin = self.host
            factor = self.job.slow[index] if self.job.slow else 1.0
            yield from self._iterate(factor)
            if self.job.steps:
                yield _complete("user_annotation", f"ProfilerStep#{index}", begin, self.host - begin, {})

    def _iterate(self, factor: float) -> Iterable[Event]:
        for kernel in self.job.kernels:
            yield from self._launch(kernel, factor)
        begin = self.host
        self.host = max([self.host, *self.free.values()]) + 5
        args: Event = {"correlation": next(self.numbers)}
        yield _complete("cuda_runtime", "cudaStreamSynchronize", begin, self.host - begin, args)
        self.host += self.job.wait_us

    def _launch(self, kernel: TimedKernel, factor: float) -> Iterable[Event]:
        number, begin = next(self.numbers), self.host
        for depth, operator in enumerate(kernel.operators.split("/") if kernel.operators else ()):
            name, args = _split_number(operator)
            args |= {"External id": number}
            if kernel.dims is not None:
                args |= {"Input Dims": kernel.dims, "Input type": list(kernel.types)}
            yield _complete("cpu_op", name, begin + 0.1 * depth, LAUNCH_US - 0.2 * depth - 0.5, args)
        joint: Event = {"correlation": number, "External id": number}
        yield _complete("cuda_runtime", "cudaLaunchKernel", begin + 1.5, 2.0, joint)
        self.host += LAUNCH_US
        key = (kernel.device, kernel.stream)
        start = max(self.host, self.free.get(key, 0.0) + GAP_US)
        self.free[key] = start + kernel.us * factor
        place: Event = {"device": kernel.device, "context": 1, "stream": kernel.stream, "grid": list(kernel.grid)}
        event = _complete("kernel", kernel.name, start, kernel.us * factor, joint | place)
        yield event | {"pid": kernel.device, "tid": kernel.stream}


def _split_number(name: str) -> tuple[str, Event]:
    """Return an operator's name, and the sequence number that is written behind it."""
    name, _, sequence = name.partition("~")
    if not sequence:
        return name, {}
    return name, {"Sequence number": int(sequence.rstrip("!")), "Fwd thread id": int(sequence.endswith("!"))}


def _complete(category: str, name: str, start_us: float, us: float, args: Event) -> Event:
    common: Event = {"ph": "X", "pid": PROCESS, "tid": THREAD, "cat": category, "name": name}
    return common | {"ts": start_us, "dur": us, "args": args}
