"""The devices that loops run on: an NVIDIA GPU through torch, or the stand-in of `benchmarks.gpu.mock`."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.gpu.mock import REPLAYING, MockDevice
from benchmarks.gpu.reader import plain
from benchmarks.gpu.second_client import ask_to_subscribe
from deepprof.collectors.live.torch_events import ACTIVITIES, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Device", "TorchDevice", "count_launched", "find_gpu", "open_device", "work_without_device"]

TINY_KERNELS, BIG_PRODUCTS, GRAPH_NODES = 200, 8, 100
SIDE = 4096  # of the matrices
LAYERS, WIDTH, BATCH = 12, 512, 256  # of the network
COPIED_NBYTES = 64 << 20
TAKEN_RATIO = 0.8  # of the memory that a program may use, it needs this much; the rest is for the work itself
WORDS = {0: "kernel", 1: "memcpy", 2: "memset"}
OPERATOR = "cpu_op"


class Device(Protocol):
    """What the loops need of a device. `now_s` is the clock that they are timed by.

    `settle_s` is before all else once we collect, `rest_s` around what is measured, `gap_s` between marked
    iterations, `sample_s` between examines the memory.
    """

    settle_s: float
    rest_s: float
    gap_s: float
    sample_s: float
    nodes: int

    def now_s(self) -> float: ...
    def describe(self) -> dict[str, str]: ...
    def prepare(self, loop: str) -> Callable[[], object]: ...
    def synchronize(self) -> None: ...
    def profile(self, run: Callable[[], object], *, count: bool = True) -> Counter[tuple[str, str, str]]: ...
    def subscribe(self) -> int: ...
    def memory_nbytes(self) -> int: ...
    def allow(self, share: float) -> None: ...


def find_gpu() -> str | None:
    """Return why there is no GPU to measure on, or None."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no NVIDIA GPU"
    return None if torch.version.hip is None else "this torch is AMD's; the injected library is for NVIDIA"


def open_device(mock: str) -> Device:
    """Return the stand-in of a kind, or the first GPU; its driver has started then."""
    return MockDevice(mock) if mock else TorchDevice()


def work_without_device(mock: str) -> None:
    """Do what a program does that searches for a device and finds none."""
    if mock:
        MockDevice(mock).find_none()
        return
    import torch

    torch.cuda.is_available()
    with suppress(Exception):  # "No CUDA GPUs are available"
        torch.cuda.init()
    torch.ones(64, 64) @ torch.ones(64, 64)


class TorchDevice:
    """The first NVIDIA GPU, through torch. `where` and `cuda` are for trying its code out without one."""

    settle_s = 0.3
    rest_s = 0.1
    gap_s = 0.02
    sample_s = 0.25
    nodes = GRAPH_NODES

    def __init__(self, where: str = "cuda", cuda: Any = None) -> None:
        import torch

        self.torch, self.where, self.cuda = torch, where, cuda or torch.cuda
        self.ballast: Any = torch.ones(1, device=where)

    def now_s(self) -> float:
        return time.perf_counter()

    def describe(self) -> dict[str, str]:
        found = {"gpu": self.cuda.get_device_name(0), "torch": self.torch.__version__}
        found["cuda"] = str(self.torch.version.cuda)
        with suppress(Exception):  # of no version of torch is it promised
            found["driver"] = str(self.torch._C._cuda_getDriverVersion())
        return found

    def prepare(self, loop: str) -> Callable[[], object]:
        """Return one iteration of `loop`."""
        loops = {
            "launch": self.launch,
            "compute": self.compute,
            "graph": self.graph,
            "replay": self.replay,
            "train": self.train,
            "copy": self.copy,
        }
        return loops[loop]()

    def launch(self) -> Callable[[], object]:
        """Tiny kernels, a copy and a memset: the host is the bottleneck."""
        small, zeros = self.torch.ones(64, device=self.where), self.torch.ones(4096, device=self.where)
        batch, target = self.pin(4096), self.torch.empty(4096, device=self.where)

        def iterate() -> None:
            target.copy_(batch, non_blocking=True)
            zeros.zero_()
            for _ in range(TINY_KERNELS):
                small.add_(1)

        return iterate

    def compute(self) -> Callable[[], object]:
        """Matrix products that keep the device busy: it is the bottleneck."""
        left = self.torch.randn(SIDE, SIDE, device=self.where, dtype=self.torch.bfloat16)
        out = self.torch.empty_like(left)

        def iterate() -> None:
            for _ in range(BIG_PRODUCTS):
                self.torch.mm(left, left, out=out)

        return iterate

    def graph(self) -> Callable[[], object]:
        """Tiny kernels in a CUDA graph: one launch, many nodes."""
        small, graph = self.torch.ones(64, device=self.where), self.cuda.CUDAGraph()
        small.add_(1)
        self.synchronize()
        with self.cuda.graph(graph):
            for _ in range(GRAPH_NODES):
                small.add_(1)

        def iterate() -> None:
            graph.replay()
            small.data_ptr()  # the graph writes to it: it must live as long

        return iterate

    def replay(self) -> Callable[[], object]:
        """The same graph, launched within a range: a launch has a calling context only within one, or an operator."""
        replay = self.graph()

        def iterate() -> None:
            with self.torch.profiler.record_function(REPLAYING):
                replay()

        return iterate

    def train(self) -> Callable[[], object]:
        """A network of equal layers, trained: an iteration that can be mined."""
        nn = self.torch.nn
        layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        model = nn.Sequential(*layers).to(self.where)
        optimizer = self.torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        batch, inputs = self.pin(BATCH, WIDTH), self.torch.empty(BATCH, WIDTH, device=self.where)

        def iterate() -> None:
            inputs.copy_(batch, non_blocking=True)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()

        return iterate

    def copy(self) -> Callable[[], object]:
        """Copies to the device and back with next to no work between them: the bus is the bottleneck."""
        there, back = self.pin(COPIED_NBYTES // 4), self.pin(COPIED_NBYTES // 4)
        target = self.torch.empty(COPIED_NBYTES // 4, device=self.where)

        def iterate() -> None:
            target.copy_(there, non_blocking=True)
            target[:64].add_(1)
            back.copy_(target, non_blocking=True)

        return iterate

    def pin(self, *shape: int) -> Any:
        """Return a tensor on the host that can be copied from while the host goes on."""
        return self.torch.ones(*shape, pin_memory=self.where == "cuda")

    def synchronize(self) -> None:
        self.cuda.synchronize()

    def profile(self, run: Callable[[], object], *, count: bool = True) -> Counter[tuple[str, str, str]]:
        """Return how often torch.profiler saw each (activity, name, operator that launched it) while `run` ran.

        Without `count` nothing is counted.
        """
        profiler = self.torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as made:
            run()
        return count_launched(made.profiler.kineto_results.events() if count else ())

    def subscribe(self) -> int:
        """Return what CUPTI answers to a second client that asks to subscribe."""
        return ask_to_subscribe("libcupti.so")

    def memory_nbytes(self) -> int:
        """Return how much of the device's memory is in use, by whomever."""
        free, total = self.cuda.mem_get_info()
        return int(total - free)

    def allow(self, share: float) -> None:
        """Allow this process a share of the device's memory, and use most of it. Raises torch's OutOfMemoryError."""
        self.ballast = None
        self.cuda.empty_cache()
        self.cuda.set_per_process_memory_fraction(share)
        nbytes = int(TAKEN_RATIO * share * self.cuda.mem_get_info()[1])
        self.ballast = self.torch.empty(nbytes, dtype=self.torch.uint8, device=self.where)


def count_launched(events: Iterable[Any]) -> Counter[tuple[str, str, str]]:
    """Return how often each (activity, name, operator) is among Kineto's events; "": no operator launched it."""
    kinds = [(event, kind_of(event)) for event in events]
    operators = {event.correlation_id(): event.name() for event, kind in kinds if kind == OPERATOR}
    found: Counter[tuple[str, str, str]] = Counter()
    for event, kind in kinds:
        if (activity := WORDS.get(ACTIVITIES.get(kind, -1))) is not None:
            found[activity, plain(event.name()), operators.get(event.linked_correlation_id(), "")] += 1
    return found
