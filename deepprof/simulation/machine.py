"""A host and a GPU that play steps and write down what PyTorch's profiler would: the events of a Kineto file.

The host launches in order and runs ahead of the GPU until `QUEUE` launches wait; a stream runs one thing at a time.
Times are integer nanoseconds since the start of the capture's clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from deepprof.simulation.kernels import Launch
from deepprof.simulation.program import MAIN_STREAM, Close, Copy, Fill, Host, Open, Step, Wait

if TYPE_CHECKING:
    from random import Random

__all__ = ["DEVICE", "PROCESS", "Event", "Machine"]

Event = dict[str, Any]

PROCESS = 41_207
AUTOGRAD_THREAD = PROCESS + 312
DEVICE = 0
QUEUE = 1024  # launches the driver takes before it makes the host wait
LATENCY_NS = 4_200  # from the launch call to the kernel on an idle stream
GAP_NS = 1_100  # between two kernels on a busy stream
PAGEABLE_BYTES_PER_NS = 6.1
PINNED_BYTES_PER_NS = 23.5
FILL_BYTES_PER_NS = 1_350
CALLS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
}


class Machine:
    """Plays steps; `operators` and `activities` grow by what the profiler writes, `kernels` by the main stream's."""

    def __init__(self, random: Random, start_ns: int) -> None:
        self.random = random
        self.host_ns = start_ns
        self.operators: list[Event] = []
        self.activities: list[Event] = []
        self.kernels: list[tuple[int, int]] = []
        self.free: dict[int, int] = {}
        self.waiting: deque[int] = deque(maxlen=QUEUE)
        self.ranges: list[tuple[str, int]] = []
        self.correlation = 2_048
        self.external = 512

    def play(self, step: Step) -> None:
        """Let one step happen."""
        match step:
            case Launch():
                self.launch(step)
            case Copy():
                self.copy(step)
            case Fill():
                self.fill(step)
            case Host():
                self.operate(step)
            case Wait():
                self.wait(step.stream)
            case Open():
                self.ranges.append((step.name, self.host_ns))
            case Close():
                self.close()

    def launch(self, step: Launch) -> None:
        """Launch a kernel on the main stream."""
        thread = AUTOGRAD_THREAD if step.backward else PROCESS
        room = self.waiting[0] if len(self.waiting) == QUEUE else 0  # the call itself waits for room in the queue
        start = self.begin(2_600)
        call = "cudaLaunchKernelExC" if "gemm" in step.kernel else "cudaLaunchKernel"
        called = self.call(call, 4_300, thread, until=room)
        begin, end = self.occupy(MAIN_STREAM, self.vary(step.ns, 0.03))
        self.activities.append(describe_kernel(step.kernel, begin, end, self.external, self.correlation))
        self.kernels.append((begin, end))
        self.waiting.append(begin)
        self.finish(step.op, start, called + self.vary(1_500, 0.3), thread)

    def copy(self, step: Copy) -> None:
        """Copy between host and device; the host waits for what comes from or goes to pageable memory."""
        start = self.begin(3_100)
        asked = self.host_ns
        self.host_ns += self.vary(6_000, 0.2)
        rate = PINNED_BYTES_PER_NS if step.pinned else PAGEABLE_BYTES_PER_NS
        begin, end = self.occupy(step.stream, self.vary(1_200 + step.nbytes / rate, 0.02))
        if not step.pinned:
            self.host_ns = max(self.host_ns, end)
        self.record_call("cudaMemcpyAsync", asked, PROCESS)
        self.activities.append(describe_copy(step, begin, end, self.external, self.correlation))
        self.finish("aten::copy_", start, self.host_ns + 1_200, PROCESS)

    def fill(self, step: Fill) -> None:
        """Set memory on the main stream."""
        start = self.begin(1_900)
        called = self.call("cudaMemsetAsync", 3_800, PROCESS)
        begin, end = self.occupy(MAIN_STREAM, self.vary(900 + step.nbytes / FILL_BYTES_PER_NS, 0.03))
        self.activities.append(describe_fill(step, begin, end, self.external, self.correlation))
        self.finish("aten::zero_", start, called + 900, PROCESS)

    def operate(self, step: Host) -> None:
        """Run an operator that never reaches the GPU."""
        start = self.begin(0)
        self.finish(step.op, start, start + self.vary(step.ns, 0.05), PROCESS)

    def wait(self, stream: int) -> None:
        """Hold the host until a stream is empty."""
        asked = self.host_ns
        self.host_ns = max(asked, self.free.get(stream, 0)) + self.vary(5_000, 0.2)
        self.external += 1
        self.record_call("cudaStreamSynchronize", asked, PROCESS)

    def close(self) -> None:
        """End the innermost range; one that began before the capture leaves no trace."""
        if self.ranges:
            name, start = self.ranges.pop()
            self.external += 1
            args = {"External id": self.external, "Record function id": 0}
            self.operators.append(slice_event("user_annotation", name, (PROCESS, PROCESS), (start, self.host_ns), args))

    def begin(self, ns: int) -> int:
        """Open an operator and return its start; `ns` passes before its first runtime call."""
        start = self.host_ns + self.vary(700, 0.3)
        self.host_ns = start + (self.vary(ns, 0.3) if ns else 0)
        self.external += 1
        return start

    def finish(self, op: str, start: int, end: int, thread: int) -> None:
        """Close an operator."""
        self.host_ns = max(self.host_ns, end)
        args = {"External id": self.external, "Record function id": 0, "Ev Idx": len(self.operators)}
        self.operators.append(slice_event("cpu_op", op, (PROCESS, thread), (start, self.host_ns), args))

    def call(self, name: str, ns: int, thread: int, until: int = 0) -> int:
        """Make a runtime call that returns at once, or at `until` when that is later, and return when it did."""
        asked = self.host_ns
        self.host_ns = max(asked, until) + self.vary(ns, 0.25)
        self.record_call(name, asked, thread)
        return self.host_ns

    def record_call(self, name: str, asked: int, thread: int) -> None:
        """Write down a runtime call from `asked` to now."""
        self.correlation += 1
        args = {"External id": self.external, "cbid": CALLS[name], "correlation": self.correlation}
        self.activities.append(slice_event("cuda_runtime", name, (PROCESS, thread), (asked, self.host_ns), args))

    def occupy(self, stream: int, ns: int) -> tuple[int, int]:
        """Reserve a stream for `ns` behind all it has, and return when it starts and ends."""
        ready = self.host_ns + self.vary(LATENCY_NS, 0.2)
        begin = max(ready, self.free.get(stream, 0) + self.vary(GAP_NS, 0.2))
        self.free[stream] = begin + ns
        return begin, begin + ns

    def vary(self, ns: float, share: float) -> int:
        """Return `ns` give or take up to `share` of it."""
        return max(1, round(ns * (1 + share * (2 * self.random.random() - 1))))


def slice_event(category: str, name: str, row: tuple[int, int], span: tuple[int, int], args: Event) -> Event:
    """Return a complete event in Kineto's key order; `row` is process and thread, times have three decimals."""
    start, end = span
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": row[0],
        "tid": row[1],
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }


def place(external: int, correlation: int, stream: int) -> Event:
    """Return the arguments that every device event carries."""
    return {"External id": external, "device": DEVICE, "context": 1, "stream": stream, "correlation": correlation}


def describe_kernel(name: str, begin: int, end: int, external: int, correlation: int) -> Event:
    """Return a kernel's event."""
    blocks = max(1, (end - begin) // 150)
    shape = {"registers per thread": 32 if blocks < 200 else 128, "shared memory": 0, "grid": [blocks, 1, 1]}
    args = {"queued": 0, **place(external, correlation, MAIN_STREAM), **shape, "block": [256, 1, 1]}
    return slice_event("kernel", name, (DEVICE, MAIN_STREAM), (begin, end), args)


def describe_copy(step: Copy, begin: int, end: int, external: int, correlation: int) -> Event:
    """Return a copy's event."""
    host = "Pinned" if step.pinned else "Pageable"
    ends = f"{host} -> Device" if step.direction == "HtoD" else f"Device -> {host}"
    args = {**place(external, correlation, step.stream), **measure(step.nbytes, begin, end)}
    name = f"Memcpy {step.direction} ({ends})"
    return slice_event("gpu_memcpy", name, (DEVICE, step.stream), (begin, end), args)


def describe_fill(step: Fill, begin: int, end: int, external: int, correlation: int) -> Event:
    """Return a memset's event."""
    args = {**place(external, correlation, MAIN_STREAM), **measure(step.nbytes, begin, end)}
    return slice_event("gpu_memset", "Memset (Device)", (DEVICE, MAIN_STREAM), (begin, end), args)


def measure(nbytes: int, begin: int, end: int) -> Event:
    """Return the size and the rate of a copy or a memset."""
    return {"bytes": nbytes, "memory bandwidth (GB/s)": nbytes / (end - begin)}
