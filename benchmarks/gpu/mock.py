"""A device that is none, for trying the benchmark out where there is no GPU: its figures mean nothing.

The real library is loaded as a driver loads it, and its CUPTI is the tests' mock of one. But for `plain` every kind has
a fault that a check has to find.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.reader import plain
from benchmarks.gpu.second_client import ask_to_subscribe
from deepprof.collectors.live.hook import find_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["KINDS", "REPLAYING", "MockDevice"]

KINDS = {
    "plain": "nothing is wrong",
    "lossy": "the first record of every other iteration is missing",
    "intruding": "another profiler sees other kernels while we are there",
    "quiet": "another profiler takes over, or no device is there, and nobody says so",
    "foreign": "after another profiler's session times are ticks of another clock (Kineto's rdtsc)",
    "stretched": "after another profiler's session the clock runs half as fast again",
    "invalid": "from the 1,000th record on times are half a minute too early",
    "leaking": "each iteration leaves 4 MiB of device memory behind",
    "blind": "graphs captured while collecting is off give no kernels",
    "dying": "the process dies beside another profiler, and without a device",
    "slow": "iterations take twenty times as long with us",
    "late": "launches are told within the operator after their own",
    "unlinked": "every other launch is told of no operator",
    "forgetful": "after another profiler's session no operator is told of",
}
WORK_S = 0.002
KERNEL, MEMCPY, MEMSET, GRAPH = 10, 1, 2, 51  # kinds of CUPTI's records
WORDS = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset", GRAPH: "graph"}
CLOCK_NS = 500_000_000_000_000_000  # what the mock's clock is ahead of CLOCK_MONOTONIC
FOREIGN_RATIO, STRETCHED_RATIO, EARLY_NS = 3, 1.5, 30_000_000_000
INVALID_FROM, LEAK_NBYTES = 1000, 4 << 20
NODES, HTOD, GRAPH_ID = 5, 1, 1
GEMM, ADD, COPY, ZERO = (KERNEL, "gemm"), (KERNEL, "_Z3addv"), (MEMCPY, "Memcpy HtoD"), (MEMSET, "Memset")
LAUNCH = (GRAPH, "CUDA graph 1")
REPLAYING = "replay a graph"  # the range around launches of a graph
MODES = {"operators": 1, "python": 2}  # of contexts
HOOK = str(find_hook())
LAYERS = 12
TRAIN = [
    COPY,
    *[(KERNEL, name) for name in ("gemm", "bias", "relu")] * LAYERS,
    *[(KERNEL, name) for name in ("square", "mean", "mean_backward")],
    *[(KERNEL, name) for name in ("relu_backward", "gemm_nt", "gemm_tn", "sum")] * LAYERS,
    *[(KERNEL, name) for name in ("momentum", "scale", "update")],
]
WORK = {
    "launch": [COPY, ZERO, *[ADD] * NODES],
    "compute": [GEMM] * 2,
    "graph": [ADD] * NODES,
    "replay": [ADD] * NODES,
    "train": TRAIN,
    "copy": [COPY, ADD, COPY],
}


class Record(ctypes.Structure):
    """As mock_cupti.h has it."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("start", "end", "nbytes", "graph_node")),
        ("name", ctypes.c_char_p),
        *((name, ctypes.c_uint32) for name in ("kind", "device", "context", "stream", "correlation", "graph", "type")),
        ("source", ctypes.c_uint8),
        ("target", ctypes.c_uint8),
        ("end_device", ctypes.c_uint32),
    )


class MockDevice:
    """Iterations of one length, whatever they do; loops are timed by what it was to take, not by how busy we are."""

    settle_s = 0.0
    rest_s = 0.005
    gap_s = 0.02
    sample_s = 0.0
    nodes = NODES

    def __init__(self, kind: str) -> None:
        self.kind, self.done, self.mode = kind, Counter[tuple[str, str, str]](), 0
        self.number = self.sent = self.iterations = 0  # of launches, records and iterations
        self.names = dict[str, bytes]()  # CUPTI never frees a name
        self.worked_s = 0.0
        self.session_ended_ns = 0  # of another profiler; 0: there was none
        self.cupti: Any = None
        if path := os.environ.get("CUDA_INJECTION64_PATH"):
            self.cupti = ctypes.CDLL(os.environ["DEEPPROF_CUPTI"], mode=ctypes.RTLD_GLOBAL)
            self.library = ctypes.CDLL(path)
            self.library.InitializeInjection()
            self.begin_operators(path)

    def describe(self) -> dict[str, str]:
        return {"gpu": "none: a stand-in", "torch": "none", "cuda": "none"}

    def begin_operators(self, library: str) -> None:
        """Begin to call the library at operators, as PyTorch and the hook do, where contexts are requested."""
        self.mode = MODES.get(os.environ.get("DEEPPROF_CONTEXTS", ""), 0)
        if self.mode and (self.library.deepprof_contexts(self.mode, b"", 1) or self.cupti.made_start(library.encode())):
            raise RuntimeError("the library takes no operators")

    def find_none(self) -> None:
        """Be no device."""
        if self.kind == "dying":
            os.kill(os.getpid(), signal.SIGSEGV)

    def prepare(self, loop: str) -> Callable[[], object]:
        is_graph = loop in ("graph", "replay")
        as_launch = is_graph and os.environ.get("DEEPPROF_GRAPHS") == "launches"
        sent = [LAUNCH] if as_launch else WORK[loop]
        if self.kind == "blind" and is_graph and self.cupti is not None:
            self.cupti.mock_capture(GRAPH_ID)

        def iterate() -> None:
            began_ns = time.monotonic_ns()
            self.work(20 * WORK_S if self.kind == "slow" and self.is_collecting() else WORK_S)
            self.iterations += 1
            operator = operator_of if loop != "graph" else lambda _: ""
            self.done.update((WORDS[kind], plain(name), operator(name)) for kind, name in WORK[loop])
            skipped = 1 if self.kind == "lossy" and self.iterations % 2 else 0
            launched_by = [operator_of(name) for _, name in sent]
            with self.inside(REPLAYING if loop == "replay" else ""):
                self.send(sent[skipped:], began_ns, [] if is_graph else launched_by[skipped:])

        return iterate

    def work(self, seconds: float) -> None:
        time.sleep(seconds)
        self.worked_s += seconds

    def now_s(self) -> float:
        return self.worked_s

    def is_collecting(self) -> bool:
        """Whether kernels are recorded now."""
        return self.cupti is not None and bool(self.cupti.mock_is_enabled(KERNEL))

    @contextmanager
    def inside(self, operator: str) -> Iterator[None]:
        """Be in an operator, or none."""
        is_told = bool(operator) and self.mode and not (self.session_ended_ns and self.kind == "forgetful")
        if is_told:
            self.cupti.made_begin(operator.encode())
        yield
        if is_told:
            self.cupti.made_end()

    def send(self, records: list[tuple[int, str]], began_ns: int, operators: list[str]) -> None:
        """Let the device have done this since then, one after the other, each in its operator.

        Without operators the records are of one launch of a graph.
        """
        if self.cupti is None or not records:
            return
        each_ns = (time.monotonic_ns() - began_ns) // len(records)
        for place, (kind, name) in enumerate(records):
            self.number += 1 if operators or not place else 0
            self.sent += 1
            start_ns = began_ns + place * each_ns
            times = self.to_device_clock(start_ns), self.to_device_clock(start_ns + each_ns - each_ns // 8)
            record = Record(*times, kind=kind, correlation=self.number, stream=7, name=self.keep(name))
            record.type, record.nbytes, record.graph = HTOD, 64, 0 if operators else GRAPH_ID
            with self.inside(self.choose_operator(operators, place)):
                self.cupti.mock_emit(ctypes.byref(record))

    def choose_operator(self, operators: list[str], place: int) -> str:
        """Return in which operator a launch is told: in its own, where nothing is wrong."""
        if not operators or (self.kind == "unlinked" and self.number % 2):
            return ""
        return operators[(place + (self.kind == "late")) % len(operators)]

    def to_device_clock(self, time_ns: int) -> int:
        """Return what a record states of a time of CLOCK_MONOTONIC."""
        if self.session_ended_ns and self.kind == "foreign":
            return FOREIGN_RATIO * time_ns
        if self.session_ended_ns and self.kind == "stretched":
            time_ns = self.session_ended_ns + int(STRETCHED_RATIO * (time_ns - self.session_ended_ns))
        if self.kind == "invalid" and self.sent > INVALID_FROM:
            time_ns -= EARLY_NS
        return time_ns + CLOCK_NS

    def keep(self, name: str) -> bytes:
        return self.names.setdefault(name, name.encode())

    def synchronize(self) -> None:
        pass

    def profile(self, run: Callable[[], object], *, count: bool = True) -> Counter[tuple[str, str, str]]:
        """Be another profiler, for which the hook steps aside."""
        is_beside = self.cupti is not None
        if is_beside and self.kind == "dying":
            os.kill(os.getpid(), signal.SIGSEGV)
        has_hook = is_beside and self.kind != "quiet" and HOOK in os.environ.get("PYTHONPATH", "")
        if has_hook:
            self.library.deepprof_pause()
        if is_beside:
            self.cupti.mock_torch_profiler(1)
        self.done.clear()
        run()
        found = Counter(self.done)
        if is_beside:
            self.cupti.mock_torch_profiler(0)
        if has_hook:
            self.library.deepprof_resume()
        self.session_ended_ns = time.monotonic_ns()
        if is_beside and self.kind == "intruding":
            found[min(found)] -= 1
            found["kernel", "odd", ""] += 1
        return found if count else Counter()

    def subscribe(self) -> int:
        """Return what the mock answers to a second client that asks to subscribe."""
        return ask_to_subscribe(os.environ["DEEPPROF_CUPTI"])

    def memory_nbytes(self) -> int:
        return (1 << 30) + (LEAK_NBYTES * self.iterations if self.kind == "leaking" else 0)

    def allow(self, share: float) -> None:
        """There is no memory."""


def operator_of(name: str) -> str:
    """Return which operator launches a record of this name."""
    return f"aten::{plain(name)}"
