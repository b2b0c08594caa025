"""A host and a GPU that play steps and record what PyTorch's profiler would: the events of a Kineto file.

The host launches in order and runs ahead of the GPU until `QUEUE` launches wait; a stream runs one thing at a time.
Times are integer nanoseconds since the start of the capture's clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from deepprof.simulation.events import (
    CALLS,
    PROCESS,
    Event,
    describe_collective,
    describe_copy,
    describe_fill,
    describe_kernel,
    describe_memory,
    name_call,
    slice_event,
)
from deepprof.simulation.steps import (
    COMMUNICATION_STREAM,
    MAIN_STREAM,
    Allocate,
    Call,
    CapturedLaunch,
    Close,
    Copy,
    Fill,
    GraphReplay,
    HostOperator,
    Join,
    Launch,
    Open,
    Pause,
    Reduce,
    Release,
    Step,
    Wait,
)

if TYPE_CHECKING:
    from random import Random

MODEL_NBYTES = 3_221_225_472  # weights, gradients and the optimizer's state, allocated before the capture

SEGMENT_NBYTES = 20_971_520  # memory is taken from the device in pieces of this size

ALIGNMENT_NBYTES = 512

FIRST_ADDRESS = 0x7F2C_4000_0000


class Allocator:
    """Allocates device memory and keeps the totals: `allocated_nbytes` is in use, `reserved_nbytes` is kept."""

    def __init__(self) -> None:
        self.allocated_nbytes = MODEL_NBYTES
        self.reserved_nbytes = MODEL_NBYTES + SEGMENT_NBYTES
        self.address = FIRST_ADDRESS
        self.blocks: list[tuple[int, int]] = []

    def allocate(self, nbytes: int, *, kept: bool) -> tuple[int, int]:
        """Allocate memory and return its address and true size; a kept block is never released."""
        block = self.address, -(-nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        self.address += block[1]
        self.allocated_nbytes += block[1]
        if self.allocated_nbytes > self.reserved_nbytes:
            missing = self.allocated_nbytes - self.reserved_nbytes
            self.reserved_nbytes += -(-missing // SEGMENT_NBYTES) * SEGMENT_NBYTES
        if not kept:
            self.blocks.append(block)
        return block

    def release(self) -> tuple[int, int] | None:
        """Release the latest block and return it; None where it was allocated before the capture."""
        if not self.blocks:
            return None
        block = self.blocks.pop()
        self.allocated_nbytes -= block[1]
        return block


AUTOGRAD_THREAD = PROCESS + 312
QUEUE = 1024  # launches that the driver queues before it makes the host wait
LATENCY_NS = 4_200  # from the launch call to the kernel on an idle stream
GAP_NS = 1_100  # between two kernels on a busy stream
GRAPH_NS = 9_000  # a graph's launch call
NODE_NS = 12  # added to it by every kernel of the graph
PAGEABLE_BYTES_PER_NS = 6.1
PINNED_BYTES_PER_NS = 23.5
DEVICE_BYTES_PER_NS = 650  # of copies within the device, which read and write
FILL_BYTES_PER_NS = 1_350


class _Arrival(Struct, frozen=True):
    """A launched collective: when its kernel starts to wait for the other ranks, and the ids of operator and call."""

    begin_ns: int
    ids: tuple[int, int]


class Machine:
    """Plays steps; `operators` and `activities` collect the profiler's events, `kernels` the main stream's kernels.

    `pace` multiplies the host's time per launch, `slowness` the time of kernels. `ranks` is the size of the job.
    """

    def __init__(
        self, random: Random, start_ns: int, *, pace: float = 1.0, slowness: float = 1.0, ranks: int = 1
    ) -> None:
        self.random = random
        self.host_ns = start_ns
        self.pace = pace
        self.slowness = slowness
        self.ranks = ranks
        self.operators: list[Event] = []
        self.activities: list[Event] = []
        self.kernels: list[tuple[int, int]] = []
        self.free: dict[int, int] = {}
        self.waiting: deque[int] = deque(maxlen=QUEUE)
        self.ranges: list[tuple[Open, int, int]] = []
        self.allocator = Allocator()
        self.correlation = 2_048
        self.external = 512
        self.collectives = 0

    def play(self, step: Step) -> None:
        """Play one step; collectives, which involve several machines, are played with `arrive` and `leave`."""
        match step:
            case Launch():
                self.launch(step)
            case Copy():
                self.copy(step)
            case Fill():
                self.fill(step)
            case HostOperator():
                start = self.begin(0)
                self.finish(step.op, start, start + self.vary(step.ns, 0.05), PROCESS)
            case Pause():
                self.host_ns += self.vary(step.ns, 0.05)
            case Wait():
                self.wait(step.stream)
            case Open():
                self.open(step)
            case Close():
                self.close()
            case _:
                self.play_rare(step)

    def play_rare(self, step: Step) -> None:
        """Play a step of a kind that most jobs do not have."""
        match step:
            case Call():
                drained = max(self.free.values(), default=0) if step.drains else 0
                self.call(step.name, step.ns, PROCESS, until=drained)
            case CapturedLaunch():
                self.capture(step.launch)
            case GraphReplay():
                self.replay(step)
            case Join():
                self.call("cudaStreamWaitEvent", 1_400, AUTOGRAD_THREAD)
                self.free[MAIN_STREAM] = max(self.free.get(stream, 0) for stream in (MAIN_STREAM, COMMUNICATION_STREAM))
            case Allocate():
                self.mark_memory(*self.allocator.allocate(step.nbytes, kept=step.kept))
            case Release():
                block = self.allocator.release()
                if block:
                    self.mark_memory(block[0], -block[1])
            case _:
                raise TypeError(f"{step} is no step for one machine")

    def launch(self, step: Launch) -> None:
        """Launch a kernel on the main stream."""
        thread = AUTOGRAD_THREAD if step.backward else PROCESS
        start = self.begin(2_600)
        called = self.call(name_call(step), 4_300, thread, until=self.room())
        span = self.occupy(MAIN_STREAM, self.vary(step.ns * self.slowness, 0.03))
        self.activities.append(describe_kernel(step.kernel, span, self.ids))
        self.kernels.append(span)
        self.waiting.append(span[0])
        self.finish(step.op, start, called + self.vary(1_500 * self.pace, 0.3), thread)

    def capture(self, step: Launch) -> None:
        """Make the call of a launch that is only captured into a graph."""
        thread = AUTOGRAD_THREAD if step.backward else PROCESS
        start = self.begin(2_600)
        called = self.call(name_call(step), 2_900, thread)
        self.finish(step.op, start, called + self.vary(1_500 * self.pace, 0.3), thread)

    def replay(self, step: GraphReplay) -> None:
        """Launch a graph: its kernels follow each other without the host."""
        self.external += 1
        self.call("cudaGraphLaunch", GRAPH_NS + NODE_NS * len(step.launches), PROCESS, until=self.room())
        for number, launch in enumerate(step.launches, step.first_node):
            span = self.occupy(MAIN_STREAM, self.vary(launch.ns * self.slowness, 0.03))
            node = {"graph id": step.graph, "graph node id": (step.graph << 32) | number}
            self.activities.append(describe_kernel(launch.kernel, span, self.ids, node))
            self.kernels.append(span)
        self.waiting.append(self.kernels[-1][0])

    def room(self) -> int:
        """Return until when a launch has to wait for space in the queue; 0 where there is some."""
        return self.waiting[0] if len(self.waiting) == QUEUE else 0

    def copy(self, step: Copy) -> None:
        """Copy between host and device or within it; the host waits for copies from or to pageable memory."""
        start = self.begin(3_100) if step.op else self.host_ns
        asked = self.host_ns
        self.host_ns += self.vary(6_000 * self.pace, 0.2)
        rate = PINNED_BYTES_PER_NS if step.pinned else PAGEABLE_BYTES_PER_NS
        rate = DEVICE_BYTES_PER_NS if step.direction == "DtoD" else rate
        span = self.occupy(step.stream, self.vary(1_200 + step.nbytes / rate, 0.02))
        if not step.pinned:
            self.host_ns = max(self.host_ns, span[1])
        self.record_call("cudaMemcpyAsync", asked, PROCESS)
        self.activities.append(describe_copy(step, span, self.ids))
        if step.op:
            self.finish(step.op, start, self.host_ns + 1_200, PROCESS)

    def fill(self, step: Fill) -> None:
        """Set memory on the main stream."""
        start = self.begin(1_900)
        called = self.call("cudaMemsetAsync", 3_800, PROCESS)
        span = self.occupy(MAIN_STREAM, self.vary(900 + step.nbytes / FILL_BYTES_PER_NS, 0.03))
        self.activities.append(describe_fill(step, span, self.ids))
        self.finish("aten::zero_", start, called + 900, PROCESS)

    def arrive(self) -> _Arrival:
        """Launch a collective after the gradients it needs; how long it waits for other ranks is unknown yet."""
        start = self.begin(9_000)
        self.call("cudaEventRecord", 1_300, AUTOGRAD_THREAD)
        self.call("cudaStreamWaitEvent", 1_400, AUTOGRAD_THREAD)
        opened = self.host_ns
        self.call("cudaLaunchKernelExC", 5_200, AUTOGRAD_THREAD, until=self.room())
        ready = max(self.host_ns + self.vary(LATENCY_NS, 0.2), self.free.get(MAIN_STREAM, 0))
        begin = max(ready, self.free.get(COMMUNICATION_STREAM, 0) + self.vary(GAP_NS, 0.2))
        arrival = _Arrival(begin, self.ids)
        self.waiting.append(begin)
        self.finish("c10d::allreduce_", start, self.host_ns + 2_000, AUTOGRAD_THREAD)
        self.annotate("nccl:all_reduce", opened, AUTOGRAD_THREAD)
        return arrival

    def leave(self, step: Reduce, arrival: _Arrival, end_ns: int) -> None:
        """End the collective."""
        self.collectives += 1
        self.free[COMMUNICATION_STREAM] = end_ns
        span = arrival.begin_ns, end_ns
        self.activities.append(describe_collective(step, span, arrival.ids, self.collectives, self.ranks))

    def wait(self, stream: int) -> None:
        """Make the host wait until a stream is empty."""
        asked = self.host_ns
        self.host_ns = max(asked, self.free.get(stream, 0)) + self.vary(5_000, 0.2)
        self.external += 1
        self.record_call("cudaStreamSynchronize", asked, PROCESS)

    def open(self, step: Open) -> None:
        """Begin a range; an operator's number is available at once, so that events within it can refer to it."""
        self.external += step.category == "cpu_op"
        self.ranges.append((step, self.host_ns, self.external))

    def close(self) -> None:
        """End the innermost range; one that began before the capture is not recorded."""
        if not self.ranges:
            return
        step, start, external = self.ranges.pop()
        if step.category == "user_annotation":
            self.annotate(step.name, start, PROCESS)
            return
        args = {"External id": external, "Record function id": 0, "Ev Idx": len(self.operators)}
        self.operators.append(slice_event(step.category, step.name, (PROCESS, PROCESS), (start, self.host_ns), args))

    def annotate(self, name: str, start: int, thread: int) -> None:
        """Record a range from `start` to now."""
        self.external += 1
        args = {"External id": self.external, "Record function id": 0}
        span = start, self.host_ns
        self.operators.append(slice_event("user_annotation", name, (PROCESS, thread), span, args))

    def mark_memory(self, address: int, nbytes: int) -> None:
        """Record what the allocator did."""
        totals = self.allocator.allocated_nbytes, self.allocator.reserved_nbytes
        self.operators.append(describe_memory(self.host_ns, nbytes, address, totals))

    def begin(self, ns: int) -> int:
        """Open an operator and return its start; `ns` passes before its first runtime call."""
        start = self.host_ns + self.vary(700 * self.pace, 0.3)
        self.host_ns = start + (self.vary(ns * self.pace, 0.3) if ns else 0)
        self.external += 1
        return start

    def finish(self, op: str, start: int, end: int, thread: int) -> None:
        """Close an operator."""
        self.host_ns = max(self.host_ns, end)
        args = {"External id": self.external, "Record function id": 0, "Ev Idx": len(self.operators)}
        self.operators.append(slice_event("cpu_op", op, (PROCESS, thread), (start, self.host_ns), args))

    def call(self, name: str, ns: int, thread: int, until: int = 0) -> int:
        """Make a runtime call that returns at once, or at `until` when that is later; return the time of its return."""
        asked = self.host_ns
        self.host_ns = max(asked, until) + self.vary(ns * self.pace, 0.25)
        self.record_call(name, asked, thread)
        return self.host_ns

    def record_call(self, name: str, asked: int, thread: int) -> None:
        """Record a runtime or driver call from `asked` to now."""
        self.correlation += 1
        args = {"External id": self.external, "cbid": CALLS.get(name, 0), "correlation": self.correlation}
        category = "cuda_runtime" if name.startswith("cuda") else "cuda_driver"
        self.activities.append(slice_event(category, name, (PROCESS, thread), (asked, self.host_ns), args))

    @property
    def ids(self) -> tuple[int, int]:
        """The numbers of the latest operator and of the latest call."""
        return self.external, self.correlation

    def occupy(self, stream: int, ns: int) -> tuple[int, int]:
        """Reserve a stream for `ns` after all its work, and return the start and the end."""
        ready = self.host_ns + self.vary(LATENCY_NS, 0.2)
        begin = max(ready, self.free.get(stream, 0) + self.vary(GAP_NS, 0.2))
        self.free[stream] = begin + ns
        return begin, begin + ns

    def vary(self, ns: float, share: float) -> int:
        """Return `ns` plus or minus up to `share` of it."""
        return max(1, round(ns * (1 + share * (2 * self.random.random() - 1))))
