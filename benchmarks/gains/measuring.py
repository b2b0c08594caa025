"""Run one pair in this process: its two programs in turn, then the first one again under torch.profiler."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from benchmarks.gains import programs
from benchmarks.gains.pairs import PAIRS

WARMUP, RECORDED = 5, 12  # iterations
FEWEST, MOST = 15, 200  # iterations of every program that are timed
BLOCK_NBYTES, BLOCKS = 1 << 26, 32
SEED = 0


def main() -> None:
    """Print the processor's time of every iteration in ns, before and after, as JSON; write traces of the first one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gains.measuring", description=__doc__)
    parser.add_argument("pair", choices=PAIRS)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--first", action="store_true", help="run before all other processes, which needs the right")
    given = parser.parse_args()
    torch.set_num_threads(1)
    build = getattr(programs, PAIRS[given.pair].function)
    before, after = _prepare(build, changed=False), _prepare(build, changed=True)
    if given.first:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    before_ns, after_ns = time_in_turn(before, after, given.seconds)
    for path in given.traces:
        record(before, path)
    json.dump({"before_ns": before_ns, "after_ns": after_ns}, sys.stdout)


def _prepare(build: Callable[[bool], programs.Iteration], *, changed: bool) -> programs.Iteration:
    """Return a program that has run often enough to be compiled and to have its memory."""
    torch.manual_seed(SEED)
    iterate = build(changed)
    for _ in range(WARMUP):
        iterate()
    return iterate


def time_in_turn(
    before: programs.Iteration,
    after: programs.Iteration,
    seconds: float,
    clock_ns: Callable[[], int] = time.process_time_ns,
) -> tuple[list[int], list[int]]:
    """Return what iterations of both programs take, one after the other, so that what slows the machine slows both."""
    taken: tuple[list[int], list[int]] = ([], [])
    end_ns = clock_ns() + int(seconds * 1e9)
    while len(taken[0]) < FEWEST or (len(taken[0]) < MOST and clock_ns() < end_ns):
        for iterate, times in zip((before, after), taken, strict=True):
            begin_ns = clock_ns()
            iterate()
            times.append(clock_ns() - begin_ns)
    return taken


def record(iterate: programs.Iteration, path: Path) -> None:
    """Write a trace of some iterations."""
    _touch_memory()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=_record_always) as profiler:
        for _ in range(RECORDED):
            iterate()
            profiler.step()
    profiler.export_chrome_trace(os.fspath(path))


def _touch_memory() -> None:
    """Have the allocator keep memory that was written to: what is recorded is never the first to touch a page.

    The profiler's own small blocks divide the large ones that an iteration frees, so that the next one needs new ones.
    """
    blocks = [torch.zeros(BLOCK_NBYTES, dtype=torch.uint8) for _ in range(BLOCKS)]
    del blocks


def _record_always(_: int) -> ProfilerAction:
    return ProfilerAction.RECORD


if __name__ == "__main__":
    main()
