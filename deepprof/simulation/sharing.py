"""Two jobs on one simulated device, with the truth about what each loses to the other.

The device runs one kernel at a time and, where both processes have work, gives them turns of `TURN_NS`, which change at
the end of a kernel; a process without work gives up its turn. Or kernels run at once, each at half its speed while
another one runs (as with MPS, where neither leaves room for the other). Copies of one direction share one engine, first
come, first served. Every process has one stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, pairwise
from random import Random
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from deepprof.simulation import Simulation, program
from deepprof.simulation.capture import keep_head, keep_tail
from deepprof.simulation.document import BASE_NS, START_NS, FileOrigin, make_document
from deepprof.simulation.events import PROCESS, Event, describe_memory
from deepprof.simulation.machine import GAP_NS, LATENCY_NS, Machine
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import MAIN_STREAM, Copy, Fill, GraphReplay, Launch, Step

Manner = Literal["in turn", "at once"]

TURN_NS = 2_000_000
HELD_NS = 3_000  # pause between two kernels in which a process keeps its turn
LAUNCH_NS = 7_000  # about the host's time until its launch call returns
DEVICE_NBYTES = 85_031_714_816
KERNELS = "kernels"  # the engine that runs kernels, not copies


class _SharingLoss(Struct, frozen=True):
    """One loss: a process waited (`turns`, `copies`), or a kernel took longer (`slowed`), for `ns` up to `time_ns`."""

    time_ns: int
    kind: str
    ns: int


class _SharedGpu(Struct, dict=True):
    """One device: until when each engine is taken, which process has its turn, and which kernels run."""

    manner: Manner = "in turn"
    taken: dict[str, int] = field(default_factory=dict)
    owner: object = None
    turn_ends: int = 0
    running: dict[int, tuple[int, int]] = field(default_factory=dict)  # by process: its latest kernel

    def begin(self, engine: str, ready_ns: int) -> int:
        """Return when work that is ready at `ready_ns` can begin."""
        if engine == KERNELS and self.manner == "at once":
            return ready_ns
        return max(ready_ns, self.taken.get(engine, 0))

    def take(self, engine: str, owner: object, span: tuple[int, int]) -> None:
        """Record that an engine works for `owner`."""
        if engine == KERNELS and (owner is not self.owner or span[0] >= self.turn_ends):
            self.owner, self.turn_ends = owner, span[0] + TURN_NS
        self.taken[engine] = max(span[1], self.taken.get(engine, 0))

    def slow_down(self, process: int, begin_ns: int, ns: int) -> int:
        """Return how long a kernel of `ns` takes from `begin_ns` on; while others run, it has half its speed."""
        if self.manner != "at once":
            return ns
        beside = max((end for pid, (_, end) in self.running.items() if pid != process), default=0) - begin_ns
        slow = min(max(0, beside), 2 * ns)
        taken = ns + slow // 2
        self.running[process] = (begin_ns, begin_ns + taken)
        return taken


class _SharedMachine(Machine):
    """A process on a device that others use too; `losses` is the truth about what the others cost it."""

    def __init__(self, random: Random, start_ns: int, gpu: _SharedGpu, pid: int, plan: RankPlan) -> None:
        super().__init__(random, start_ns, pace=plan.pace, slowness=plan.slowness)
        self.gpu, self.pid, self.engine = gpu, pid, KERNELS
        self.losses: list[_SharingLoss] = []
        self.work: list[tuple[int, int]] = []

    def copy(self, step: Copy) -> None:
        """Copy with the engine of that direction."""
        self.engine = step.direction
        super().copy(step)
        self.engine = KERNELS

    def occupy(self, stream: int, ns: int) -> tuple[int, int]:
        """Reserve the stream and the engine, and record what others cost."""
        own = max(self.host_ns + self.vary(LATENCY_NS, 0.2), self.free.get(stream, 0) + self.vary(GAP_NS, 0.2))
        begin = self.gpu.begin(self.engine, own)
        taken = self.gpu.slow_down(self.pid, begin, ns) if self.engine == KERNELS else ns
        self.note(begin, "turns" if self.engine == KERNELS else "copies", begin - own)
        self.note(begin + taken, "slowed", taken - ns)
        self.gpu.take(self.engine, self, (begin, begin + taken))
        self.free[stream] = begin + taken
        self.work.append((begin, begin + taken))
        return begin, begin + taken

    def note(self, time_ns: int, kind: str, ns: int) -> None:
        """Record a loss."""
        if ns:
            self.losses.append(_SharingLoss(time_ns, kind, ns))

    def ready(self, step: Step) -> int:
        """Return about when the work of a step is ready to begin."""
        return max(self.host_ns + LAUNCH_NS + LATENCY_NS, self.free.get(_stream_of(step), 0) + GAP_NS)


def _stream_of(step: Step) -> int:
    return step.stream if isinstance(step, Copy) else MAIN_STREAM


def _engine_of(step: Step) -> str:
    return step.direction if isinstance(step, Copy) else KERNELS


class SharingMember(Struct, frozen=True, kw_only=True):
    """One job on the device: its program, its iterations, when it starts, and the memory that it needs (a share).

    A member that `lasts` continues after its iterations until all others have done theirs.
    """

    plan: RankPlan
    iterations: int
    start_ns: int = 0
    memory_share: float = 0.0
    lasts: bool = False


class SharedRun(Struct, frozen=True, kw_only=True):
    """One job's capture and its truth; `losses` is what others cost each complete iteration, in ns by kind.

    `starts_ns` are the starts of the iterations and the end of the last, `work` the times when the device works for the
    process, in order.
    """

    simulation: Simulation
    starts_ns: tuple[int, ...]
    losses: tuple[dict[str, int], ...]
    work: tuple[tuple[int, int], ...]

    @property
    def iterations_ns(self) -> tuple[int, ...]:
        """Times of the iterations, from start to start."""
        return tuple(after - before for before, after in pairwise(self.starts_ns))

    @property
    def execution_ns(self) -> int:
        """Time from the first iteration's start to the end of the last."""
        return self.starts_ns[-1] - self.starts_ns[0]


def measure_busy(runs: Sequence[SharedRun]) -> tuple[int, int]:
    """Return how long all of `runs` are in their iterations, and how long the device works in that time."""
    start, end = max(run.starts_ns[0] for run in runs), min(run.starts_ns[-1] for run in runs)
    busy, reach = 0, start
    for begin, until in sorted(span for run in runs for span in run.work):
        busy += max(0, min(until, end) - max(begin, reach))
        reach = max(reach, min(until, end))
    return end - start, busy


class _PlayedMember:
    """A member while it plays: its machine, the steps to come, and where its iterations begin."""

    def __init__(self, member: SharingMember, machine: _SharedMachine, everyone: list[_PlayedMember]) -> None:
        self.member, self.machine, self.firsts = member, machine, list[int]()
        self.everyone = everyone
        self.steps = self.tour(member.plan)
        self.next: Step | None = None
        self.proceed()

    def tour(self, plan: RankPlan) -> Iterator[Step]:
        """Yield the steps of a capture, and record where iterations begin."""
        yield from keep_tail(list(plan.build(-1)))
        for index in count():
            self.firsts.append(len(self.machine.kernels))
            if index >= self.member.iterations and not (self.member.lasts and self.awaits()):
                break
            yield from plan.build(index)
        yield from keep_head(list(plan.build(index)))

    def awaits(self) -> bool:
        """Return whether any other member has iterations left to do."""
        return any(len(each.firsts) <= each.member.iterations for each in self.everyone)

    def proceed(self) -> None:
        """Play steps that need no device, up to the next one that does; `next` is None at the end."""
        for step in self.steps:
            if isinstance(step, Launch | Copy | Fill | GraphReplay):
                self.next = step
                return
            self.machine.play(step)
        self.next = None

    def work(self) -> None:
        """Play the step that needs the device."""
        if self.next is not None:
            self.machine.play(self.next)
        self.proceed()


def play_together(members: Sequence[SharingMember], seed: str, manner: Manner = "in turn") -> list[SharedRun]:
    """Run several jobs on one device, and return the capture of each."""
    gpu = _SharedGpu(manner)
    machines = [
        _SharedMachine(Random(f"{seed} {n}"), START_NS + each.start_ns, gpu, PROCESS + 100 * n, each.plan)  # noqa: S311
        for n, each in enumerate(members)
    ]
    for each, machine in zip(members, machines, strict=True):
        _reserve(machine, each.memory_share)
    players: list[_PlayedMember] = []
    for each, machine in zip(members, machines, strict=True):
        players.append(_PlayedMember(each, machine, players))
    while waiting := [player for player in players if player.next is not None]:
        _choose(waiting, gpu).work()
    return [_report(player, each, seed) for player, each in zip(players, members, strict=True)]


def _reserve(machine: _SharedMachine, share: float) -> None:
    """Record that a process takes its share of the memory at its start, as TensorFlow does."""
    if share:
        nbytes = round(share * DEVICE_NBYTES)
        machine.operators.append(describe_memory(machine.host_ns, nbytes, 1 << 40, (nbytes, nbytes)))


def _choose(players: Sequence[_PlayedMember], gpu: _SharedGpu) -> _PlayedMember:
    """Return the player whose work begins next; of several that wait for one engine, the turn's owner until it ends."""

    def begins(player: _PlayedMember) -> tuple[int, bool]:
        machine, step = player.machine, player.next
        assert step is not None  # noqa: S101  only those with a step are asked
        begin = gpu.begin(_engine_of(step), machine.ready(step))
        free = gpu.taken.get(KERNELS, 0)
        owns = gpu.owner is machine and _engine_of(step) == KERNELS
        if owns and free < gpu.turn_ends and begin - free <= HELD_NS:
            return free, False
        return begin, True

    return min(players, key=begins)


def _report(player: _PlayedMember, member: SharingMember, seed: str) -> SharedRun:
    """Return the capture of one job and the truth about it."""
    machine, firsts = player.machine, player.firsts
    starts = [machine.kernels[first][0] for first in firsts]
    losses = [dict.fromkeys(("turns", "slowed", "copies"), 0) for _ in starts[1:]]
    for loss in machine.losses:
        at = next((n for n, (a, b) in enumerate(pairwise(starts)) if a < loss.time_ns <= b), None)
        if at is not None:
            losses[at][loss.kind] += loss.ns
    return SharedRun(
        simulation=_describe(machine, member.plan, firsts, seed),
        starts_ns=tuple(starts),
        losses=tuple(losses),
        work=tuple(machine.work),
    )


def _describe(machine: _SharedMachine, plan: RankPlan, firsts: Sequence[int], seed: str) -> Simulation:
    """Return the capture with the truth about its iterations."""
    starts = [machine.kernels[i][0] for i in firsts]
    document = make_document(machine, FileOrigin())
    document["traceEvents"] = [_rename(each, machine.pid) for each in document["traceEvents"]]
    return Simulation(
        scenario=f"shared {seed}",
        seed=0,
        document=document,
        iterations=len(firsts) - 1,
        warmup=plan.warmup,
        stream=MAIN_STREAM,
        kernels=tuple(after - first for first, after in pairwise(firsts)),
        first_kernels=tuple(firsts[:-1]),
        starts_ns=tuple(BASE_NS + start for start in starts[:-1]),
        intervals_ns=tuple(machine.kernels[i][0] - machine.kernels[i - 1][1] for i in firsts[1:]),
        finding=None,
    )


def _rename(event: Event, pid: int) -> Event:
    """Return an event of the host as one of the process `pid`."""
    return {**event, "pid": pid} if event["pid"] == PROCESS else event


class _StudyJob(Struct, frozen=True):
    """A program of the study: its name, the memory that it needs, and its copies."""

    name: str
    nbytes: int
    copies: float  # strength of its copies; 0: it only computes

    def plan(self, seed: int) -> RankPlan:
        """Return the program."""
        if not self.copies:
            return program.plan_healthy(SimulationRequest(random=Random(seed), iterations=1, strength=1.0))  # noqa: S311
        request = SimulationRequest(random=Random(seed), iterations=1, strength=self.copies)  # noqa: S311
        return on_one_stream(program.plan_copy_bound(request))


JOBS = {"compute": _StudyJob("compute", 6 * 10**9, 0.0), "io": _StudyJob("io", 11 * 10**9, 0.5)}


def needs(job: str) -> float:
    """Return the smallest share of the device's memory in which a program fits."""
    return JOBS[job].nbytes / DEVICE_NBYTES


def on_one_stream(plan: RankPlan) -> RankPlan:
    """Return the program with all copies on its main stream."""

    def build(index: int) -> Iterable[Step]:
        return (replace(step, stream=MAIN_STREAM) if isinstance(step, Copy) else step for step in plan.build(index))

    return replace(plan, build=build)


def simulate_shared(
    jobs: Sequence[str], *, memory_share: float, iterations: int = 12, seed: int = 0, manner: Manner = "in turn"
) -> list[SharedRun]:
    """Simulate programs of `JOBS` on one device, alone or together, each with a share of its memory.

    Each runs at least `iterations` iterations and continues until all have, so that it is never alone. Raises
    `ValueError` for a share that a program does not fit in.
    """
    for job in jobs:
        if needs(job) > memory_share:
            raise ValueError(f"{job} takes {needs(job):.0%} of the device's memory, and has {memory_share:.0%}")
    plans = [on_one_stream(JOBS[job].plan(seed)) for job in jobs]
    members = [SharingMember(plan=plan, iterations=iterations, memory_share=memory_share, lasts=True) for plan in plans]
    return play_together(members, f"{'+'.join(jobs)} {memory_share} {seed}", manner)
