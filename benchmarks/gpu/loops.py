"""The loops that are measured, in a process of their own: `python -m benchmarks.gpu.loops MODE LOOP=N …` prints JSON.

Every loop runs once to warm up, then `repeats` times; before and after the timed part the device rests, so that its
records can be told from others by their times alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.gpu.mock import MockDevice
from benchmarks.gpu.reader import plain
from deepprof.collectors.live.torch_events import ACTIVITIES, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPS = ("launch", "compute", "graph")
TINY_KERNELS, BIG_PRODUCTS, GRAPH_NODES = 200, 8, 100
SIDE = 4096  # of the matrices
WORDS = {0: "kernel", 1: "memcpy", 2: "memset"}


class Device(Protocol):
    """What the loops need of a device; times are the caller's business."""

    rest_s: float

    def describe(self) -> dict[str, str]: ...
    def prepare(self, loop: str) -> Callable[[], object]: ...
    def synchronize(self) -> None: ...
    def profile(self, run: Callable[[], object]) -> Counter[tuple[str, str]]: ...


class TorchDevice:
    """The first NVIDIA GPU, through torch."""

    rest_s = 0.1

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def describe(self) -> dict[str, str]:
        torch = self.torch
        return {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "cuda": str(torch.version.cuda)}

    def prepare(self, loop: str) -> Callable[[], object]:
        """Return one iteration of `loop`."""
        return {"launch": self.launch, "compute": self.compute, "graph": self.graph}[loop]()

    def launch(self) -> Callable[[], object]:
        """Tiny kernels, a copy and a memset: the host is the bottleneck."""
        torch = self.torch
        small, zeros = torch.ones(64, device="cuda"), torch.ones(4096, device="cuda")
        batch, target = torch.ones(4096).pin_memory(), torch.empty(4096, device="cuda")

        def iterate() -> None:
            target.copy_(batch, non_blocking=True)
            zeros.zero_()
            for _ in range(TINY_KERNELS):
                small.add_(1)

        return iterate

    def compute(self) -> Callable[[], object]:
        """Matrix products that keep the device busy: it is the bottleneck."""
        torch = self.torch
        left = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
        out = torch.empty_like(left)

        def iterate() -> None:
            for _ in range(BIG_PRODUCTS):
                torch.mm(left, left, out=out)

        return iterate

    def graph(self) -> Callable[[], object]:
        """Tiny kernels in a CUDA graph: one launch, many nodes."""
        torch = self.torch
        small, graph = torch.ones(64, device="cuda"), torch.cuda.CUDAGraph()
        small.add_(1)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(GRAPH_NODES):
                small.add_(1)
        return graph.replay

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def profile(self, run: Callable[[], object]) -> Counter[tuple[str, str]]:
        """Return how often torch.profiler saw each (activity, name) while `run` ran."""
        profiler = self.torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as made:
            run()
        found: Counter[tuple[str, str]] = Counter()
        for event in made.profiler.kineto_results.events():
            if (activity := WORDS.get(ACTIVITIES.get(kind_of(event), -1))) is not None:
                found[activity, plain(event.name())] += 1
        return found


def measure(device: Device, iterate: Callable[[], object], iterations: int, repeats: int) -> dict[str, Any]:
    """Return the seconds of each repetition, and the Unix times between which they all lie."""
    device.synchronize()
    time.sleep(device.rest_s)
    began_ns, seconds = time.time_ns(), []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(iterations):
            iterate()
        device.synchronize()
        seconds.append(time.perf_counter() - began)
    ended_ns = time.time_ns()
    time.sleep(device.rest_s)
    return {"seconds": seconds, "window_ns": [began_ns, ended_ns]}


def run_loop(device: Device, loop: str, iterations: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return what one loop gave."""
    iterate = device.prepare(loop)
    measure(device, iterate, iterations, 1)
    result: dict[str, Any] = {}

    def run() -> None:
        result.update(measure(device, iterate, iterations, options.repeats))

    if options.mode in ("torch", "both"):
        counts = device.profile(run)
        result["counts"] = [[*key, count] for key, count in sorted(counts.items())]
    else:
        run()
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["nothing", "off", "deepprof", "torch", "both"])
    parser.add_argument("loops", nargs="+", help="LOOP=ITERATIONS")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--mock", default="")
    options = parser.parse_args(arguments)
    device: Device = MockDevice(options.mode, options.mock) if options.mock else TorchDevice()
    wanted = [(loop, int(count)) for loop, _, count in (words.partition("=") for words in options.loops)]
    loops = {loop: run_loop(device, loop, count, options) for loop, count in wanted}
    print(json.dumps({"device": device.describe(), "loops": loops}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
