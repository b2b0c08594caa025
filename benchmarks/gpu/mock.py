"""A device that is none, for trying the benchmark out where there is no GPU: its figures mean nothing.

The real library is loaded as a driver loads it, and its CUPTI is the tests' mock of one. `lossy` loses a record of each
iteration, and `quiet` does not say that another profiler is there.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.reader import plain

if TYPE_CHECKING:
    from collections.abc import Callable

WORK_S, PATIENCE_S = 0.002, 10
KERNEL, MEMCPY, MEMSET, GRAPH = 10, 1, 2, 51  # kinds of CUPTI's records
WORDS = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset", GRAPH: "graph"}
CLOCK_NS = 500_000_000_000_000_000  # what the mock's clock is ahead of CLOCK_MONOTONIC
NODES, HTOD, BUSY_CODE = 5, 1, 3
GEMM, ADD, COPY, ZERO = (KERNEL, "gemm"), (KERNEL, "_Z3addv"), (MEMCPY, "Memcpy HtoD"), (MEMSET, "Memset")
LAUNCH = (GRAPH, "CUDA graph 1")
WORK = {"launch": [COPY, ZERO, *[ADD] * NODES], "compute": [GEMM] * 2, "graph": [ADD] * NODES}


class Record(ctypes.Structure):
    """As mock_cupti.h has it."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("start", "end", "nbytes", "graph_node")),
        ("name", ctypes.c_char_p),
        *((name, ctypes.c_uint32) for name in ("kind", "device", "context", "stream", "correlation", "graph", "type")),
        ("source", ctypes.c_uint8),
        ("target", ctypes.c_uint8),
    )


class MockDevice:
    """Iterations of one length, whatever they do."""

    rest_s = 0.005

    def __init__(self, mode: str, kind: str) -> None:
        self.mode, self.kind, self.done = mode, kind, Counter[tuple[str, str]]()
        self.number, self.names = 0, dict[str, bytes]()  # CUPTI never frees a name
        self.cupti: Any = None
        if path := os.environ.get("CUDA_INJECTION64_PATH"):
            self.cupti = ctypes.CDLL(os.environ["DEEPPROF_CUPTI"], mode=ctypes.RTLD_GLOBAL)
            self.library = ctypes.CDLL(path)
            self.library.InitializeInjection()
            self.wait()

    def wait(self) -> None:
        """Wait until the agent has wanted records, if it will."""
        patience_s = time.monotonic() + PATIENCE_S
        while self.mode != "off" and not self.cupti.mock_is_enabled(KERNEL):
            if time.monotonic() > patience_s:
                raise TimeoutError("the library has enabled nothing")
            time.sleep(0.001)

    def describe(self) -> dict[str, str]:
        return {"gpu": "none: a stand-in", "torch": "none", "cuda": "none"}

    def prepare(self, loop: str) -> Callable[[], object]:
        as_launch = loop == "graph" and os.environ.get("DEEPPROF_GRAPHS") == "launches"
        sent = [LAUNCH] if as_launch else WORK[loop][1 if self.kind == "lossy" else 0 :]

        def iterate() -> None:
            time.sleep(WORK_S)
            self.done.update((WORDS[kind], plain(name)) for kind, name in WORK[loop])
            if self.cupti is not None and self.mode != "both":
                self.send(sent)

        return iterate

    def send(self, records: list[tuple[int, str]]) -> None:
        """Let the device have done this now."""
        for kind, name in records:
            self.number += 1
            now = time.monotonic_ns() + CLOCK_NS
            record = Record(start=now, end=now + 1, kind=kind, correlation=self.number, stream=7, name=self.keep(name))
            record.type, record.nbytes, record.graph = HTOD, 64, int(kind == GRAPH)
            self.cupti.mock_emit(ctypes.byref(record))

    def keep(self, name: str) -> bytes:
        return self.names.setdefault(name, name.encode())

    def synchronize(self) -> None:
        pass

    def profile(self, run: Callable[[], object]) -> Counter[tuple[str, str]]:
        if self.cupti is not None and self.kind != "quiet":
            self.library.deepprof_notice(BUSY_CODE, b"another profiler has the driver")
        self.done.clear()
        run()
        return Counter(self.done)
