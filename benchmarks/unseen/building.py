"""Builds programs: passes through models, loops with habits, and what hosts do between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from benchmarks.unseen.names import Kernel, draw_kernels, is_eager
from benchmarks.unseen.steps import (
    BACKWARD,
    COPY_STREAM,
    MAIN,
    Call,
    Close,
    Copy,
    Join,
    Launch,
    Mark,
    Open,
    Shown,
    Step,
    Sync,
    Work,
)
from benchmarks.unseen.vocabulary import ALLOCATION, DATA_LOADING, OTHER_THREAD

__all__ = ["LOADERS", "Habit", "Maker", "Model", "flatten", "launch_cost", "total"]

LOADERS = {
    "pytorch": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "amd": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "compiled": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "xla": "next_batch",
    "tensorflow": "IteratorGetNext",
    "native": "load_batch",
}
PAGEABLE, PINNED, WITHIN = 5.5, 24.0, 900.0  # bytes per nanosecond
OPTIMIZERS = ("Optimizer.step#AdamW.step", "Optimizer.step#SGD.step")


@dataclass(frozen=True)
class Model:
    """What one step runs; an inference model has a forward pass alone."""

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...] = ()
    update: tuple[Kernel, ...] = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All of them."""
        return self.forward + self.backward + self.update

    def scaled(self, factor: float) -> Model:
        """Return the model on other sizes."""
        scaled = [tuple(k._replace(ns=max(1_200, round(k.ns * factor))) for k in part) for part in self.phases]
        return Model(*scaled)

    @property
    def phases(self) -> tuple[tuple[Kernel, ...], ...]:
        """Its phases."""
        return self.forward, self.backward, self.update


def total(model: Model) -> int:
    """Return how long a device computes a step."""
    return sum(kernel.ns for kernel in model.kernels)


@dataclass(frozen=True)
class Habit:
    """What a program does in every iteration besides its model; times in nanoseconds, 0 for what it does not do.

    `read` is how it waits for results: "", "item" (a blocking copy) or "sync"; it may load its input `aside`, on a
    stream for that, and mark the phases of the model (`phased`).
    """

    loader_ns: float = 0
    loader_shown: Shown = "loader"
    host_ns: float = 0
    host_shown: Shown = "nothing"
    host_name: str = ""
    input_nbytes: int = 400_000
    pinned: bool = True
    read: str = ""
    output_nbytes: int = 0
    within_nbytes: int = 0
    allocations: int = 0
    allocation_ns: float = 0
    slow_ns: float = 0
    late_ns: float = 0
    late_each: int = 40
    reads_each: int = 0
    lock_ns: float = 0
    marker: Callable[[int], str | None] | None = None
    aside: bool = False
    phased: bool = False


@dataclass(frozen=True)
class Maker:
    """Makes steps for a framework; `pace` multiplies what a launch costs, `noise` is how much times vary."""

    random: Random
    flavour: str
    pace: float = 1.0
    noise: float = 0.04

    def vary(self, ns: float, share: float | None = None) -> int:
        """Return about `ns`."""
        share = self.noise if share is None else share
        return max(1, round(ns * (1 + share * (2 * self.random.random() - 1))))

    def draw_model(self, kernels: int, mean_ns: float, *, training: bool) -> Model:
        """Return a model of about this many kernels, of which none belong to layers that repeat."""
        shares = (0.35, 0.5, 0.15) if training else (1.0, 0.0, 0.0)
        counts = [max(1, round(kernels * share)) if share else 0 for share in shares]
        phases = zip(("forward", "backward", "update"), counts, strict=True)
        parts = [tuple(draw_kernels(self.random, self.flavour, phase, n, mean_ns)) for phase, n in phases]
        return Model(*parts)

    def launch(self, kernel: Kernel, thread: int = MAIN) -> Launch:
        """Return a launch; an eager framework's lasts longer, and sometimes much longer."""
        before, call, after = (5_000, 4_200, 1_200) if is_eager(self.flavour) else (600, 3_200, 300)
        odd = 1 if self.random.random() > 0.01 else 3
        first, second, third = (self.vary(cost * self.pace * odd, 0.3) for cost in (before, call, after))
        return Launch(kernel.name, self.vary(kernel.ns), kernel.op, first, second, third, thread=thread)

    def launches(self, kernels: Iterable[Kernel], thread: int = MAIN) -> list[Step]:
        """Return launches of kernels in order."""
        if thread != BACKWARD:
            return [self.launch(kernel, thread) for kernel in kernels]
        return [step for kernel in kernels for step in self.evaluate(kernel)]

    def evaluate(self, kernel: Kernel) -> list[Step]:
        """Return a backward launch inside the operator of the autograd engine."""
        name = kernel.op.removeprefix("aten::").removesuffix("_backward").title().replace("_", "")
        opened = Open(f"autograd::engine::evaluate_function: {name}Backward0", operator=True, thread=BACKWARD)
        return [opened, self.launch(kernel, BACKWARD), Close(BACKWARD)]

    def copy(
        self, direction: str, nbytes: int, *, pinned: bool = True, blocking: bool = False, op: bool = True
    ) -> Copy:
        """Return a copy of this many bytes."""
        rate = WITHIN if direction == "DtoD" else PINNED if pinned else PAGEABLE
        name = "aten::copy_" if is_eager(self.flavour) else ""
        return Copy(direction, nbytes, self.vary(1_300 + nbytes / rate), pinned, blocking, name, self.vary(6_000))

    def load(self, ns: float, shown: Shown = "loader") -> list[Step]:
        """Return a wait for data."""
        name = LOADERS[self.flavour]
        known = "operator" if shown == "loader" and self.flavour == "tensorflow" else shown
        return [Work(self.vary(ns), name, known, DATA_LOADING)] if ns else []

    def steps(self, model: Model, habit: Habit, number: int) -> list[Step]:
        """Return one iteration."""
        marker = habit.marker(number) if habit.marker else None
        inside = [
            *self.load(habit.loader_ns, habit.loader_shown),
            *self.before(habit),
            *self.through(model, habit),
            *self.after(habit),
        ]
        return [Mark(), *([Open(marker), *inside, Close()] if marker else inside)]

    def before(self, habit: Habit) -> list[Step]:
        """Return what comes before the model."""
        work = Work(self.vary(habit.host_ns), habit.host_name, habit.host_shown) if habit.host_ns else None
        lock = Work(self.vary(habit.lock_ns), "pthread_mutex_lock", "system", OTHER_THREAD, holder="serialize_metrics")
        steps: list[Step] = [*([work] if work else []), *([lock] if habit.lock_ns else [])]
        calls = [Call("cudaMalloc", self.vary(habit.allocation_ns, 0.3), ALLOCATION) for _ in range(habit.allocations)]
        steps += calls
        if habit.input_nbytes:
            steps += self.send(habit)
        return steps

    def send(self, habit: Habit) -> list[Step]:
        """Return the copy of the input, for which the model waits."""
        copy = self.copy("HtoD", habit.input_nbytes, pinned=habit.pinned)
        aside = habit.aside and habit.pinned
        return [replace(copy, stream=COPY_STREAM), Join(awaited=COPY_STREAM)] if aside else [copy]

    def through(self, model: Model, habit: Habit) -> list[Step]:
        """Return the passes through the model, with what delays their launches."""
        eager = self.flavour in ("pytorch", "amd")
        forward = self.launches(model.forward)
        backward = self.launches(model.backward, BACKWARD if eager else MAIN)
        update = self.launches(model.update)
        update = [Open(OPTIMIZERS[0]), *update, Close()] if update and eager else update
        phases = {"forward": forward, "backward": backward, "optimizer": update}
        steps = flatten([phase(name, steps) if habit.phased else steps for name, steps in phases.items()])
        delayed = self.delay(steps, habit)
        traced = self.flavour == "xla"
        return [Open("PjitFunction(train_step)", operator=True), *delayed, Close()] if traced else delayed

    def delay(self, steps: Sequence[Step], habit: Habit) -> list[Step]:
        """Return the steps with launches whose call is slow, or that are handed over late."""
        places = [number for number, step in enumerate(steps) if isinstance(step, Launch)]
        late = set(places[:: habit.late_each]) if habit.late_ns else set()
        slow = {places[len(places) // 3]} if habit.slow_ns and places else set()
        delayed = [self.delay_one(step, habit, n in late, n in slow) for n, step in enumerate(steps)]
        if not habit.reads_each:
            return delayed
        looks = set(places[habit.reads_each - 1 :: habit.reads_each])
        return [each for n, step in enumerate(delayed) for each in (step, *([self.look()] if n in looks else []))]

    def look(self) -> Step:
        """Return a read of one value, for which the host waits."""
        return self.copy("DtoH", 4, blocking=True)

    def delay_one(self, step: Step, habit: Habit, late: bool, slow: bool) -> Step:
        """Return one step so."""
        if not isinstance(step, Launch):
            return step
        return replace(
            step,
            late_ns=self.vary(habit.late_ns, 0.3) if late else 0,
            slow_ns=self.vary(habit.slow_ns, 0.2) if slow else 0,
        )

    def after(self, habit: Habit) -> list[Step]:
        """Return what comes after the model."""
        steps: list[Step] = []
        if habit.within_nbytes:
            steps.append(self.copy("DtoD", habit.within_nbytes))
        if habit.output_nbytes:
            steps.append(self.copy("DtoH", habit.output_nbytes, pinned=habit.pinned))
        if habit.read == "item":
            steps.append(self.copy("DtoH", 4, blocking=True))
        if habit.read == "sync":
            steps.append(Sync(self.random.choice(("cudaStreamSynchronize", "cudaDeviceSynchronize"))))
        return steps

    def loop(self, model: Model, habit: Habit, count: int) -> list[list[Step]]:
        """Return this many iterations."""
        return [self.steps(model, habit, number) for number in range(count)]


def launch_cost(maker: Maker) -> float:
    """Return what a launch costs the host, in nanoseconds."""
    return maker.pace * (10_400 if is_eager(maker.flavour) else 4_100)


def phase(name: str, steps: Sequence[Step]) -> list[Step]:
    """Return steps inside a range."""
    return [Open(name), *steps, Close()] if steps else []


def flatten(parts: Sequence[Sequence[Step]]) -> tuple[Step, ...]:
    """Return the steps of parts in order."""
    return tuple(step for part in parts for step in part)
