"""Plays programs: a host launches in order and runs ahead of the device, whose streams run one thing at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from benchmarks.unseen.played import DeviceRow, HostRow, Played, RangeRow
from benchmarks.unseen.steps import (
    COMMUNICATION_STREAM,
    MAIN,
    MAIN_STREAM,
    OTHER,
    Call,
    Close,
    Copy,
    Join,
    Launch,
    Mark,
    Meet,
    Open,
    Program,
    Replay,
    Step,
    Sync,
    Work,
)
from benchmarks.unseen.vocabulary import (
    BLOCKED_CALL,
    COMMUNICATION,
    COPY_TO_DEVICE,
    COPY_TO_HOST,
    COPY_WITHIN,
    LATE_RANK,
    LATE_SUBMISSION,
    LAUNCHING,
    SYNCHRONIZATION,
)

__all__ = ["COPY_CAUSES", "play"]

LATENCY_NS = 3_000  # from the end of a launch to the begin of the kernel on an idle stream
GAP_NS = 900  # between two kernels of a busy stream
QUEUE = 1_024  # launches that wait before the host has to
LEAST_CALL_NS = 150  # of a launch that costs nothing
CALLS = 1_000  # the first correlation
MEMSET = "Memset (Device)"
COPY_CAUSES = {"HtoD": COPY_TO_DEVICE, "DtoH": COPY_TO_HOST, "DtoD": COPY_WITHIN}
WAYS = {"HtoD": "{host} -> Device", "DtoH": "Device -> {host}", "DtoD": "Device -> Device"}
CATEGORIES = {"operator": "op", "frame": "python", "system": "other"}
Range = tuple[Open, int, int]


def play(programs: Sequence[Program], without: frozenset[str] = frozenset()) -> list[Played]:
    """Return what happened in every process; causes in `without` do not happen."""
    players = [Player(program, without) for program in programs]
    runs = [player.run() for player in players]
    while meetings := [step for step in (next(run, None) for run in runs) if step is not None]:
        arrivals = [player.arrive(step) for player, step in zip(players, meetings, strict=True)]
        took = 0 if COMMUNICATION in without else meetings[0].ns
        for player, step, arrival in zip(players, meetings, arrivals, strict=True):
            player.leave(step, arrival, max(arrivals) + took)
    return [player.played for player in players]


def name_call(step: Launch) -> str:
    """Return the call that launches a kernel, or sets memory."""
    if step.kernel == MEMSET:
        return "cudaMemsetAsync"
    if step.kernel.startswith(("triton_", "nvjet_")):
        return "cuLaunchKernelEx"
    return "cudaLaunchKernelExC" if "gemm" in step.kernel else "cudaLaunchKernel"


class Player:
    """One process; `clock` is its host's time, `free` when each stream has done all its work."""

    def __init__(self, program: Program, without: frozenset[str]) -> None:
        self.program = program
        self.without = without
        late = program.late and LATE_RANK in without
        self.clock = 0 if late else program.start_ns
        self.free: dict[tuple[int, int], int] = {}
        self.queue: deque[int] = deque(maxlen=QUEUE)
        self.open: dict[int, list[Range]] = {}
        self.correlation = CALLS
        self.external = 0
        self.played = Played(late=program.late)

    def run(self) -> Iterator[Meet]:
        """Play the program; stop at collectives, which involve other processes."""
        for step in self.program.steps:
            self.played.clocks.append(self.clock)
            if isinstance(step, Meet):
                yield step
            else:
                self.step(step)

    def step(self, step: Step) -> None:
        """Play one step."""
        match step:
            case Work():
                self.work(step)
            case Launch():
                self.launch(step)
            case Copy():
                self.copy(step)
            case Replay():
                self.replay(step)
            case Call():
                self.call(step)
            case _:
                self.rare(step)

    def rare(self, step: Step) -> None:
        """Play a step that uses no time of its own, or waits."""
        match step:
            case Sync():
                self.sync(step)
            case Open():
                self.external += step.operator
                self.open.setdefault(step.thread, []).append((step, self.clock, self.external))
            case Close():
                self.close(step.thread)
            case Join():
                self.join(step)
            case Mark():
                self.played.marks.append((len(self.played.device), self.clock))

    def work(self, step: Work) -> None:
        """Let time pass on a thread, or make it wait for another one that holds what it needs."""
        if step.cause in self.without or not step.ns:
            return
        start, self.clock = self.clock, self.clock + step.ns
        if step.holder:
            self.played.host.append(HostRow(start, self.clock, OTHER, "python", step.holder))
        if step.shown in ("loader", "range"):
            framework = step.shown == "loader"
            self.played.ranges.append(RangeRow(start, self.clock, step.thread, step.name, framework))
        elif step.shown != "nothing":
            category = "dataloader" if step.name == "IteratorGetNext" else CATEGORIES[step.shown]
            self.add_host(start, step.thread, category, step.name)

    def add_host(self, start: int, thread: int, category: str, name: str) -> None:
        """Record what a thread did until now."""
        self.external += category == "op"
        external = self.external if category == "op" else None
        self.played.host.append(HostRow(start, self.clock, thread, category, name, None, external))

    def launch(self, step: Launch) -> None:
        """Launch a kernel."""
        cheap = LAUNCHING in self.without
        start = self.clock
        self.external += 1
        self.clock += 0 if cheap else step.before_ns
        slow = 0 if step.slow_cause in self.without else step.slow_ns
        self.runtime(name_call(step), slow + (LEAST_CALL_NS if cheap else step.call_ns), step.thread)
        late = 0 if LATE_SUBMISSION in self.without else step.late_ns
        begin, end = self.occupy(step.device, step.stream, step.ns, late)
        activity = "memset" if step.kernel == MEMSET else "kernel"
        self.add_device(DeviceRow(begin, end, step.device, step.stream, activity, step.kernel, self.correlation, None))
        self.clock += 0 if cheap else step.after_ns
        if step.op:
            self.close_operator(start, step.thread, step.op)

    def close_operator(self, start: int, thread: int, name: str) -> None:
        """Record the operator whose number is the newest one."""
        self.played.host.append(HostRow(start, self.clock, thread, "op", name, None, self.external))

    def runtime(self, name: str, ns: int, thread: int) -> None:
        """Make a launching call, which waits for room in the queue."""
        start = self.clock
        room = self.queue[0] if len(self.queue) == QUEUE else 0
        self.clock = max(start, room) + ns
        self.add_call(start, name, thread)

    def add_call(self, start: int, name: str, thread: int) -> None:
        """Record a call until now."""
        self.correlation += 1
        external = self.external or None
        self.played.host.append(HostRow(start, self.clock, thread, "runtime", name, self.correlation, external))

    def occupy(self, device: int, stream: int, ns: int, late: int = 0) -> tuple[int, int]:
        """Reserve a stream for `ns` after all its work; return when it begins and ends."""
        device = device or self.program.device
        ready = self.clock + LATENCY_NS + late
        begin = max(ready, self.free.get((device, stream), -GAP_NS) + GAP_NS)
        self.free[device, stream] = begin + ns
        self.queue.append(begin)
        return begin, begin + ns

    def add_device(self, row: DeviceRow) -> None:
        """Record work on the device, with the operator that launched it."""
        row.device = row.device or self.program.device
        row.external = self.external or None
        self.played.device.append(row)

    def copy(self, step: Copy) -> None:
        """Copy between host and device, or within the device."""
        start = self.clock
        slow = 0 if BLOCKED_CALL in self.without else step.slow_ns
        waits = step.blocking and SYNCHRONIZATION not in self.without
        if COPY_CAUSES[step.direction] in self.without:
            self.clock = max(self.clock + slow, self.done(step) if waits else 0)
            return
        self.external += 1
        self.clock += step.call_ns + slow
        begin, end = self.occupy(step.device, step.stream, step.ns)
        self.clock = max(self.clock, end) if waits or not step.pinned else self.clock
        self.add_call(start, "cudaMemcpyAsync", MAIN)
        self.add_device(self.describe(step, begin, end))
        if step.op:
            self.clock += 800
            self.close_operator(start, MAIN, step.op)

    def done(self, step: Copy) -> int:
        """Return when the stream of a copy has done all its work."""
        return self.free.get((step.device or self.program.device, step.stream), 0)

    def describe(self, step: Copy, begin: int, end: int) -> DeviceRow:
        """Return the row of a copy."""
        way = WAYS[step.direction].format(host="Pinned" if step.pinned else "Pageable")
        place = (begin, end, step.device, step.stream)
        name = f"Memcpy {step.direction} ({way})"
        return DeviceRow(*place, "memcpy", name, self.correlation, None, step.nbytes, step.direction)

    def replay(self, step: Replay) -> None:
        """Launch a graph."""
        self.runtime("cudaGraphLaunch", LEAST_CALL_NS if LAUNCHING in self.without else step.call_ns, MAIN)
        for number, (kernel, ns) in enumerate(step.kernels):
            begin, end = self.occupy(0, MAIN_STREAM, ns)
            row = DeviceRow(begin, end, 0, MAIN_STREAM, "kernel", kernel, self.correlation, None)
            row.node = (step.graph << 32) | number
            self.add_device(row)

    def call(self, step: Call) -> None:
        """Make a call that launches nothing."""
        if step.cause in self.without:
            return
        start = self.clock
        drained = max(self.free.values(), default=0) if step.drains else 0
        self.clock = max(start, drained) + step.ns
        self.add_call(start, step.name, step.thread)

    def sync(self, step: Sync) -> None:
        """Wait for the device."""
        if SYNCHRONIZATION in self.without:
            return
        start = self.clock
        self.clock = max(start, max(self.free.values(), default=0)) + step.after_ns
        self.add_call(start, step.name, MAIN)
        row = (start, self.clock, self.program.device, MAIN_STREAM, "sync", "Stream Sync", self.correlation, None)
        self.played.waits.append(DeviceRow(*row))

    def close(self, thread: int) -> None:
        """End the innermost range of a thread."""
        opened, start, external = self.open[thread].pop()
        if opened.operator:
            self.played.host.append(HostRow(start, self.clock, thread, "op", opened.name, None, external))
        else:
            self.played.ranges.append(RangeRow(start, self.clock, thread, opened.name))

    def join(self, step: Join) -> None:
        """Make one stream wait for another."""
        device = self.program.device
        awaited = self.free.get((device, step.awaited), 0)
        self.free[device, step.waiting] = max(self.free.get((device, step.waiting), 0), awaited)

    def arrive(self, step: Meet) -> int:
        """Launch a collective after the gradients it needs; return when its kernel begins."""
        self.runtime("cudaLaunchKernelExC", step.call_ns, MAIN)
        ready = max(self.clock + LATENCY_NS, self.free.get((self.program.device, MAIN_STREAM), 0))
        begin = max(ready, self.free.get((self.program.device, COMMUNICATION_STREAM), 0) + GAP_NS)
        self.queue.append(begin)
        return begin

    def leave(self, step: Meet, begin: int, end: int) -> None:
        """End the collective."""
        device = self.program.device
        self.free[device, COMMUNICATION_STREAM] = max(end, begin + 1)
        name = f"ncclDevKernel_{step.name}(ncclDevKernelArgsStorage<4096ul>)"
        place = (begin, max(end, begin + 1), device, COMMUNICATION_STREAM)
        self.add_device(DeviceRow(*place, "kernel", name, self.correlation, None))
