"""What runs in its own process: `python -m benchmarks.gpu.loops SCENARIO [LOOP=N …]` prints JSON.

It stops at named steps until it is instructed to go on (`benchmarks.gpu.programs`). Before and after what is measured
the device rests, so that its records can be told from others by their times alone."""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.devices import open_device, work_without_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.gpu.devices import Device

__all__ = ["main"]

WARM = 3  # iterations before marked ones
FEWEST = 8  # iterations at a share of the memory, however busy the machine is
PROFILED_PART = 4
CHUNK = 50  # replays of a graph between two looks at the clock
Loops = dict[str, int]


def print_json(**said: object) -> None:
    print(json.dumps(said), flush=True)


def reach(step: str) -> None:
    """Say where we are, and wait to be instructed to go on."""
    print_json(step=step)
    if not sys.stdin.readline():
        sys.exit("nobody leads this program any more")


def has_line(wait_s: float | None = 0) -> bool:
    """Whether a line has come since the last step, or comes while we wait; None: until one comes or no one is there."""
    if not select.select([sys.stdin], [], [], wait_s)[0]:
        return False
    if not sys.stdin.readline():
        sys.exit("nobody leads this program any more")
    return True


def measure(device: Device, iterate: Callable[[], object], iterations: int, repeats: int) -> dict[str, Any]:
    """Return the seconds of every repetition, and the Unix times between which they all are."""
    device.synchronize()
    time.sleep(device.rest_s)
    began_ns = time.time_ns()
    seconds = time_repeats(device, iterate, iterations, repeats)
    ended_ns = time.time_ns()
    time.sleep(device.rest_s)
    return {"seconds": seconds, "window_ns": [began_ns, ended_ns]}


def time_repeats(device: Device, iterate: Callable[[], object], iterations: int, repeats: int) -> list[float]:
    """Return the seconds of every repetition; between two of them the device does nothing."""
    seconds = []
    for _ in range(repeats):
        began_s = device.now_s()
        for _ in range(iterations):
            iterate()
        device.synchronize()
        seconds.append(device.now_s() - began_s)
    return seconds


def mark(device: Device, iterate: Callable[[], object], iterations: int) -> list[list[int]]:
    """Return when each iteration began and ended, Unix ns; between two of them the device does nothing."""
    marks = []
    device.synchronize()
    for _ in range(iterations):
        time.sleep(device.gap_s)
        marks.append(mark_one(device, iterate))
    time.sleep(device.gap_s)
    return marks


def warm_up(device: Device, iterate: Callable[[], object], iterations: int = WARM) -> Callable[[], object]:
    """Run what is slower, or does more, than all that follows."""
    for _ in range(iterations):
        iterate()
    device.synchronize()
    return iterate


# ---- scenarios ----


def run_contexts(device: Device, loops: Loops, options: argparse.Namespace) -> dict[str, Any]:
    """Have another client ask to subscribe, and time loops afterwards."""
    return {"answer": device.subscribe(), "loops": run_loops(device, loops, options)}


def run_loops(device: Device, loops: Loops, options: argparse.Namespace) -> dict[str, Any]:
    """Time loops, under torch.profiler where that is wanted."""
    return {loop: run_loop(device, loop, count, options) for loop, count in loops.items()}


def run_loop(device: Device, loop: str, iterations: int, options: argparse.Namespace) -> dict[str, Any]:
    iterate = warm_up(device, device.prepare(loop), iterations)
    result: dict[str, Any] = {}

    def run() -> None:
        result.update(measure(device, iterate, iterations, options.repeats))

    if options.profile:
        counts = device.profile(run, count=options.profile == "count")
        result["counts"] = [[*key, count] for key, count in sorted(counts.items())]
    else:
        run()
    return result


def run_turns(device: Device, loops: Loops, options: argparse.Namespace) -> dict[str, Any]:
    """Time one loop whenever we are told its name, with a profiler that begins and ends each time if it is wanted.

    Under a profiler once, and a fourth of it: it keeps in memory what it records, and lasts long to read it.
    """
    repeats, part = (1, PROFILED_PART) if options.profile else (options.repeats, 1)
    iterates = {loop: warm_up(device, device.prepare(loop), count) for loop, count in loops.items()}
    print_json(step="ready")
    while loop := sys.stdin.readline().strip():
        seconds: list[float] = []

        def run(loop: str = loop, seconds: list[float] = seconds) -> None:
            count = max(1, loops[loop] // part)
            warm_up(device, iterates[loop], max(WARM, count // 2))  # the others had the device before
            taken = time_repeats(device, iterates[loop], count, repeats)
            seconds += [each * loops[loop] / count for each in taken]

        if options.profile:
            device.profile(run, count=False)
        else:
            run()
        print_json(step="timed", seconds=seconds)
    return {}


def run_session(device: Device, loops: Loops, options: argparse.Namespace) -> dict[str, Any]:
    """Mark iterations, have torch.profiler count as many in a session for every loop, and mark iterations again.

    With `--works` it works while it waits behind the sessions, so that records show when they come again.
    """
    iterates = {loop: device.prepare(loop) for loop in loops}

    def mark_all() -> dict[str, list[list[int]]]:
        """Mark all loops, once CUPTI's clock has been used: after a change some of its first times are of the other."""
        for iterate in iterates.values():
            warm_up(device, iterate)
        time.sleep(device.rest_s)
        return {loop: mark(device, iterates[loop], count) for loop, count in loops.items()}

    def count(loop: str) -> list[list[Any]]:
        counts = device.profile(lambda: measure(device, iterates[loop], loops[loop], 1))
        return [[*key, number] for key, number in sorted(counts.items())]

    before = mark_all()
    counts = {loop: count(loop) for loop in loops}
    print_json(step="profiled")
    while not has_line(0.1 if options.works else None):
        for iterate in iterates.values():
            warm_up(device, iterate, 1)
    time.sleep(device.settle_s)
    return {"before": before, "counts": counts, "after": mark_all()}


def run_windows(device: Device, loops: Loops, _: argparse.Namespace) -> dict[str, Any]:
    """Capture a graph in one state of the collector, and replay it in another."""
    iterate = device.prepare("graph")
    reach("captured")
    return {"nodes": device.nodes, "marks": mark(device, iterate, loops["graph"])}


def run_replays(device: Device, loops: Loops, options: argparse.Namespace) -> dict[str, Any]:
    """Replay a graph until this many kernels have run, or time is out, and examine the device's memory meanwhile."""
    iterate, kernels = device.prepare("graph"), 0
    samples = [[0, device.memory_nbytes()]]
    began_s = sampled_s = time.monotonic()
    while kernels < loops["graph"] and time.monotonic() - began_s < options.seconds:
        count = min(CHUNK, -(-(loops["graph"] - kernels) // device.nodes))
        warm_up(device, iterate, count)
        kernels += count * device.nodes
        if time.monotonic() - sampled_s >= device.sample_s:
            sampled_s = time.monotonic()
            samples.append([kernels, device.memory_nbytes()])
    return {"kernels": kernels, "seconds": time.monotonic() - began_s, "samples": samples}


def run_shares(device: Device, loops: Loops, options: argparse.Namespace) -> dict[str, Any]:
    """Run one loop at each share of the device's memory, each until we are told to stop, and at least a few times."""
    (loop,) = loops
    found: dict[str, Any] = {}
    for share in options.shares:
        problem, marks = "", list[list[int]]()
        try:
            device.allow(share)
            iterate = warm_up(device, device.prepare(loop))
        except RuntimeError as error:  # torch's OutOfMemoryError is one
            problem = (str(error) or repr(error)).splitlines()[0]
        reach(f"share {share:g}")
        if not problem:
            marks += [mark_one(device, iterate) for _ in range(FEWEST)]
        print_json(step="running")
        while not has_line():
            if problem:
                time.sleep(device.rest_s)
            else:
                marks.append(mark_one(device, iterate))
        found[f"{share:g}"] = {"marks": marks, "problem": problem}
    return found


def mark_one(device: Device, iterate: Callable[[], object]) -> list[int]:
    """Return when an iteration began and ended, Unix ns."""
    began_ns = time.time_ns()
    iterate()
    device.synchronize()
    return [began_ns, time.time_ns()]


SCENARIOS = {
    "loops": run_loops,
    "contexts": run_contexts,
    "turns": run_turns,
    "session": run_session,
    "windows": run_windows,
    "replays": run_replays,
    "shares": run_shares,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=[*SCENARIOS, "hidden"])
    parser.add_argument("loops", nargs="*", help="LOOP=ITERATIONS")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--profile", choices=["count", "time"], default="")
    parser.add_argument("--works", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--shares", type=float, nargs="*", default=[])
    parser.add_argument("--mock", default="")
    options = parser.parse_args(arguments)
    if options.scenario == "hidden":
        work_without_device(options.mock)
        reach("started")
        print_json(hidden=True)
        return 0
    device = open_device(options.mock)
    reach("started")
    time.sleep(device.settle_s)
    loops = {loop: int(count) for loop, _, count in (words.partition("=") for words in options.loops)}
    found = SCENARIOS[options.scenario](device, loops, options)
    print_json(device=device.describe(), found=found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
