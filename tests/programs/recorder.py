"""What every program is run under: torch.profiler, and the clock that states when each iteration truly began."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile

__all__ = ["Recorder", "recording"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """Where a program computes, and what it shows of itself; `begins_ns` are unix times."""

    device: torch.device
    iterations: int
    profiler: profile | None = None  # who is told of every iteration, in an annotated run
    begins_ns: list[int] = field(default_factory=list)

    def numbers(self) -> Iterator[int]:
        """Count the iterations, noting when each one begins: before its batch is requested."""
        for number in range(self.iterations):
            self.begins_ns.append(time.time_ns())
            yield number
            if self.profiler is not None:
                self.profiler.step()


@contextmanager
def recording(device: str, path: Path, *, iterations: int, annotated: bool) -> Iterator[Recorder]:
    """Profile the block and write the trace to `path`; the caller has warmed up what it wants warm."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    schedule = (lambda _: ProfilerAction.RECORD) if annotated else None  # without one, step() writes nothing
    with profile(activities=activities, schedule=schedule, profile_memory=True) as profiler:
        yield Recorder(device=torch.device(device), iterations=iterations, profiler=profiler if annotated else None)
        if device == "cuda":
            torch.cuda.synchronize()
    profiler.export_chrome_trace(os.fspath(path))
