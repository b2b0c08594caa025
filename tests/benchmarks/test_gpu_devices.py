"""What the benchmark for GPUs asks of torch, on a CPU, and of Kineto's events, on made-up ones."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from subprocess import PIPE
from types import SimpleNamespace

import pytest

from benchmarks.gpu import loops
from benchmarks.gpu.contexts import MODES, join
from benchmarks.gpu.devices import TorchDevice, count_launched
from benchmarks.gpu.mock import REPLAYING
from benchmarks.gpu.programs import Plan, environment, wait_until
from benchmarks.gpu.reader import EventLog, Reader
from deepprof.collectors.live.packets import CollectionLevel


class FakeGraph:
    def replay(self) -> None:
        pass


@contextmanager
def capture(_: FakeGraph) -> Iterator[None]:
    yield


def test_the_code_for_torch_runs() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    cuda = SimpleNamespace(
        CUDAGraph=FakeGraph,
        graph=capture,
        synchronize=lambda: None,
        empty_cache=lambda: None,
        set_per_process_memory_fraction=lambda share: None,
        mem_get_info=lambda: (1 << 20, 3 << 20),
        get_device_name=lambda _: "none",
    )
    device = TorchDevice("cpu", cuda)
    device.allow(0.5)
    assert device.ballast.numel() == int(0.8 * 0.5 * (3 << 20))
    assert device.memory_nbytes() == 2 << 20
    assert device.describe()["gpu"] == "none"
    for loop in ("launch", "graph", "replay", "train"):
        loops.warm_up(device, device.prepare(loop), 1)
    assert len(loops.mark(device, device.prepare("launch"), 2)) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about the missing device
        assert device.profile(device.prepare("launch")) == Counter()
    for loop in ("compute", "copy"):
        assert callable(device.prepare(loop))


@dataclass(frozen=True)
class KinetoEvent:
    kind: str
    text: str
    number: int = 0
    linked: int = 0

    def activity_type(self) -> str:
        return self.kind

    def name(self) -> str:
        return self.text

    def correlation_id(self) -> int:
        return self.number

    def linked_correlation_id(self) -> int:
        return self.linked


def test_work_is_counted_by_the_operator_that_launched_it() -> None:
    events = [
        KinetoEvent("kernel", "_Z3addv", 901, 7),
        KinetoEvent("cpu_op", "aten::add_", 7),
        KinetoEvent("cuda_runtime", "cudaLaunchKernel", 901, 7),
        KinetoEvent("cuda_runtime", "a call with an operator's number", 7),
        KinetoEvent("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 902, 8),
        KinetoEvent("cpu_op", "aten::copy_", 8),
        KinetoEvent("kernel", "_Z3addv", 903),
        KinetoEvent("kernel", "_Z3addv", 904, 7),
    ]
    assert count_launched(events) == Counter(
        {("kernel", "add()", "aten::add_"): 2, ("memcpy", "Memcpy HtoD", "aten::copy_"): 1, ("kernel", "add()", ""): 1}
    )
    assert count_launched([]) == Counter()


IN_A_RANGE = """
import ctypes, os, sys, time
from benchmarks.gpu.mock import CLOCK_NS, KERNEL, Record
cupti = ctypes.CDLL(os.environ["DEEPPROF_CUPTI"], mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
from benchmarks.gpu.devices import TorchDevice

class Graph:
    def replay(self):
        Graph.number += 1
        now = CLOCK_NS + time.monotonic_ns()
        cupti.mock_emit(ctypes.byref(Record(now, now + 100, kind=KERNEL, correlation=Graph.number, name=b"node")))

from contextlib import nullcontext
from types import SimpleNamespace
cuda = SimpleNamespace(CUDAGraph=Graph, graph=nullcontext, synchronize=lambda: None)
iterate = TorchDevice("cpu", cuda).prepare("replay")
Graph.number = 0
print('{"step": "started"}', flush=True)
sys.stdin.readline()
for _ in range(5):
    iterate()
"""


@pytest.mark.parametrize("mode", MODES)
def test_what_is_launched_in_a_range_of_torch_has_its_context(mode: str, plan: Callable[[str], Plan]) -> None:
    """On a GPU graphs are launched like this; here a mock of CUPTI hears of launches next to torch on the CPU."""
    pytest.importorskip("torch", reason="torch is not installed")
    asked = replace(plan("plain"), contexts=mode)
    with Reader(asked.folder / "a.sock", make_consumer=EventLog) as reader:
        command = [sys.executable, "-W", "ignore", "-c", IN_A_RANGE]
        with subprocess.Popen(command, env=environment(asked, reader.path), stdin=PIPE, stdout=PIPE) as process:
            assert process.stdout is not None
            assert b"started" in process.stdout.readline()
            assert wait_until(lambda: reader.of(process.pid).level == CollectionLevel.ON, asked.patience_s)
            process.communicate(b"\n", timeout=asked.patience_s)
    assert process.returncode == 0
    session = reader.main
    assert isinstance(session.consumer, EventLog)
    work = join(session, session.consumer.events)
    assert work.counts == Counter({("kernel", f"node in {REPLAYING}"): 5})
    assert work.iterating == (5 if mode == "python" else 0)
