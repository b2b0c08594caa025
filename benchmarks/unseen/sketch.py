"""A drawn recording before its truth is known: programs, how they were recorded, and what they are by construction."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.unseen.steps import Program

__all__ = ["FULL", "Recorder", "Sketch"]


@dataclass(frozen=True)
class Recorder:
    """What a recorder keeps: `system` calls of the host, device rows of its `waits`, the `sizes` of copies.

    `correlated` are launches and their kernels by number, `whole` times in whole microseconds, `device_ranges` are
    drawn around the work of ranges. Without `host` only the device was recorded.
    """

    style: str = "kineto"
    host: bool = True
    operators: bool = True
    ranges: bool = True
    calls: bool = True
    frames: bool = False
    system: bool = False
    waits: bool = False
    whole: bool = False
    correlated: bool = True
    sizes: bool = True
    device_ranges: bool = False
    amd: bool = False


FULL = Recorder()


@dataclass(frozen=True)
class Sketch:
    """What was drawn. `counts` are the true numbers of iterations, the best first; 0 where none need be found.

    `base` is what shares are of: an iteration, or the whole recording. `also` are other true names of its kind,
    `spoken` causes that are as true to name as the largest one. `separate` processes have a file each.
    `cut` is the share of the first iteration that had passed when the capture began: 0 where it has all.
    """

    variant: str
    kind: str
    programs: tuple[Program, ...]
    recorder: Recorder = FULL
    counts: tuple[int, ...] = (0,)
    base: str = "recording"
    also: tuple[str, ...] = ()
    spoken: tuple[str, ...] = ()
    separate: bool = False
    cut: float = 0.0
