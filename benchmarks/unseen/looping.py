"""Loops: plain ones, with stalls, with odd markers, that wait for results, under all frameworks' names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from benchmarks.unseen.building import LOADERS, flatten, launch_cost, total
from benchmarks.unseen.habits import MISTAKES, Job, disturb, draw_job, draw_recorder, kind_of
from benchmarks.unseen.names import FLAVOURS
from benchmarks.unseen.sketch import FULL, Recorder, Sketch
from benchmarks.unseen.steps import Close, Mark, Open, Program, Replay, Shown, Step, Sync, Work
from benchmarks.unseen.vocabulary import (
    BENCHMARK,
    COPY_TO_DEVICE,
    COPY_TO_HOST,
    DATA_LOADING,
    HOST_WORK,
    LAUNCHING,
    LOOP,
    NOTHING,
    STALL,
    SYNCHRONIZATION,
)

__all__ = [
    "copies_only",
    "frameworks",
    "graph_decode",
    "half_marked",
    "micro_batches",
    "one_marker",
    "plain",
    "stalled",
    "waiting",
]

STALLS: tuple[tuple[Shown, str], ...] = (
    ("nothing", ""),
    ("range", "save checkpoint"),
    ("system", "fsync"),
    ("loader", "{loader}"),
)
MOST_KERNELS = 3_000
EDGES = ("nothing", "loading", "decoder", "profiler")


def as_loop(variant: str, job: Job, recorder: Recorder, parts: list[list[Step]], *counts: int) -> Sketch:
    """Return the sketch of a loop."""
    kind, also = kind_of(job, recorder)
    return Sketch(variant, kind, (Program(flatten(parts)),), recorder, counts, "iteration", also)


def with_edges(random: Random, job: Job, parts: list[list[Step]]) -> list[list[Step]]:
    """Return the iterations with what a capture takes in before the first one and after the last one."""
    first, last = random.choice(EDGES), random.choice(EDGES)
    maker, whole = job.maker, total(job.model)
    before: list[Step] = maker.load(whole * random.uniform(2, 30)) if first == "loading" else []
    after: list[Step] = []
    if last == "decoder":
        after = maker.launches(maker.draw_model(random.randint(5, 30), launch_cost(maker) * 3, training=False).forward)
    if last == "profiler":
        after = [
            Sync("cudaDeviceSynchronize"),
            Work(round(whole * random.uniform(0.5, 4)), "prof.py(7): stop", "frame"),
        ]
    tail = parts[-1][: len(parts[-1]) // 2] if random.random() < 0.4 and not has_marker(parts[-1]) else []
    return [before, *parts, tail, [Mark()], after]


def has_marker(steps: list[Step]) -> bool:
    """Return whether an iteration opens ranges, which cannot be cut in two."""
    return any(isinstance(step, Open) for step in steps)


def plain(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop of many short iterations, in which nothing repeats."""
    job = draw_job(random, (10, 60))
    recorder = draw_recorder(random, job.maker.flavour)
    count = random.randint(20, max(24, 2_400 // len(job.model.kernels)))
    job = disturb(random, job, random.choice(MISTAKES)) if disturbed else job
    parts = with_edges(random, job, job.maker.loop(job.model, job.habit, count))
    share = random.uniform(0.1, 0.9) if random.random() < 0.4 else 0.0
    return replace(as_loop("plain loop", job, recorder, parts, count), cut=share)


def copies_only(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop that only copies, in and out; the host of its twin prepares each copy while the device waits."""
    job = draw_job(random, (10, 11), flavour=random.choice(("native", "pytorch")))
    recorder = draw_recorder(random, job.maker.flavour, ())
    count, nbytes = random.randint(10, 60), random.randint(2_000_000, 60_000_000)
    pinned, back, slowness = random.random() < 0.6, random.choice((1, 2, 3)), random.uniform(0.05, 0.15)
    parts: list[list[Step]] = []
    for _ in range(count):
        first = job.maker.copy("HtoD", nbytes, pinned=pinned)
        second = job.maker.copy("DtoH", nbytes // back, pinned=pinned)
        pack: list[Step] = [Sync(), Work(job.maker.vary(nbytes * slowness), "pack", "range")]
        parts.append([Mark(), *(pack if disturbed else []), first, second])
    sketch = as_loop("copies only", job, recorder, parts, count)
    spoken = (COPY_TO_DEVICE, COPY_TO_HOST) if disturbed else (NOTHING, COPY_TO_DEVICE, COPY_TO_HOST)
    return replace(sketch, kind=LOOP, also=(BENCHMARK,), spoken=spoken)


def stalled(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop with one long stall or three, which may have another small mistake."""
    job = draw_job(random, (24, 70), training=True)
    job = replace(job, model=job.model.scaled(random.uniform(1, 15)))
    recorder = draw_recorder(random, job.maker.flavour)
    count = random.randint(20, 60)
    if random.random() < 0.4:
        job = disturb(random, job, random.choice((DATA_LOADING, HOST_WORK, SYNCHRONIZATION)))
    parts = job.maker.loop(job.model, job.habit, count)
    places = random.sample(range(3, count - 1), random.choice((1, 1, 3))) if disturbed else []
    shown, name = random.choice(STALLS)
    name = name.format(loader=LOADERS[job.maker.flavour])
    for place in places:
        parts[place].insert(1, Work(random.randint(500_000_000, 5_000_000_000) // len(places), name, shown, STALL))
    sketch = as_loop("stall", job, recorder, parts, count)
    return replace(sketch, spoken=(DATA_LOADING if shown == "loader" else HOST_WORK,) if disturbed else ())


def waiting(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop that waits for a result in every iteration; its twin launches too slowly as well."""
    job = draw_job(random, (20, 90))
    recorder = draw_recorder(random, job.maker.flavour)
    habit = replace(job.habit, read=random.choice(("item", "sync")))
    after = total(job.model) * random.choice((0.02, 0.3, 0.6))
    job = replace(job, habit=replace(habit, host_ns=after, host_shown="nothing", host_name=""))
    count = random.randint(15, 40)
    job = disturb(random, job, LAUNCHING) if disturbed else job
    parts = job.maker.loop(job.model, job.habit, count)
    return as_loop("waits for results", job, recorder, parts, count)


def graph_decode(random: Random, disturbed: bool) -> Sketch:
    """Draw the decoding of tokens: a graph of layers, a few kernels that sample, a read; its twin's host lasts long."""
    job = draw_job(random, (7, 14), training=False, flavour=random.choice(("pytorch", "compiled", "amd")))
    recorder = draw_recorder(random, job.maker.flavour)
    layers, count = random.randint(4, 24), random.randint(12, 40)
    host = total(job.model) * layers * (random.uniform(0.3, 1.2) if disturbed else 0.005)
    sampling = job.maker.draw_model(random.randint(4, 9), 8_000, training=False).forward
    parts: list[list[Step]] = []
    for number in range(count):
        replay = Replay(tuple((k.name, job.maker.vary(k.ns)) for _ in range(layers) for k in job.model.forward))
        after = [job.maker.look(), Work(job.maker.vary(host), "scheduler.py(412): schedule", "frame")]
        inside: list[Step] = [replay, *job.maker.launches(sampling), *after]
        marked = job.habit.host_ns > 0
        parts.append([Mark(), *([Open(f"execute_decode_{number}"), *inside, Close()] if marked else inside)])
    return as_loop("graph of layers", job, recorder, parts, count)


def frameworks(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop under the names of some framework, with layers that repeat or none, and some records missing."""
    flavour = random.choice(sorted(set(FLAVOURS)))
    job = draw_job(random, (30, 150), flavour=flavour)
    recorder = draw_recorder(random, flavour)
    marked = random.random() < 0.4
    names: Callable[[int], str] = {
        "xla": lambda n: f"step[train]#{n}",
        "tensorflow": lambda n: f"step[train]#{n}",
        "native": lambda n: f"iteration {n}",
    }.get(flavour, lambda n: f"ProfilerStep#{n}")
    job = replace(job, habit=replace(job.habit, marker=names if marked else None))
    if random.random() < 0.4:
        copies = random.randint(2, 6)
        layers = replace(job.model, forward=job.model.forward * copies, backward=job.model.backward * copies)
        job = replace(job, model=layers)
    count = random.randint(6, max(7, min(24, MOST_KERNELS // len(job.model.kernels))))
    job = disturb(random, job, random.choice(MISTAKES)) if disturbed else job
    parts = job.maker.loop(job.model, job.habit, count)
    share = random.uniform(0.1, 0.9) if random.random() < 0.4 else 0.0
    return replace(as_loop(f"{flavour} names", job, recorder, parts, count), cut=share)


def one_marker(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop of which the file marks one step only, or all but some."""
    job = draw_job(random, (30, 90), training=True, flavour=random.choice(("pytorch", "amd", "compiled")))
    recorder = draw_recorder(random, job.maker.flavour, ("calls", "operators"))
    count = random.randint(10, 30)
    marked = {random.randrange(count)} if random.random() < 0.5 else set(random.sample(range(count), count // 2))
    again = random.choice((count, count, 5))  # numbers of steps can begin again
    marker: Callable[[int], str | None] = lambda n: f"ProfilerStep#{n % again + 3}" if n in marked else None  # noqa: E731
    job = replace(job, habit=replace(job.habit, marker=marker))
    job = disturb(random, job, random.choice(MISTAKES)) if disturbed else job
    parts = job.maker.loop(job.model, job.habit, count)
    return as_loop("some steps marked", job, replace(recorder, ranges=True), parts, count)


def half_marked(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop whose markers cover half a step each: one for the passes, one for the update."""
    job = draw_job(random, (40, 100), training=True, flavour="pytorch")
    job = replace(job, habit=replace(job.habit, phased=False))
    count = random.randint(8, 24)
    job = disturb(random, job, random.choice(MISTAKES)) if disturbed else job
    parts = []
    for number in range(count):
        steps = job.maker.steps(job.model, job.habit, number)
        middle = next(n for n, step in enumerate(steps) if isinstance(step, Open) and step.name.startswith("Optimizer"))
        first, second = (Open(f"ProfilerStep#{2 * number + half}") for half in (0, 1))
        parts.append([steps[0], first, *steps[1:middle], Close(), second, *steps[middle:], Close()])
    return as_loop("half steps marked", job, FULL, parts, count, 2 * count)


def micro_batches(random: Random, disturbed: bool) -> Sketch:
    """Draw training with accumulation, whose markers are at micro-batches."""
    job = draw_job(random, (30, 70), training=True, flavour=random.choice(("pytorch", "compiled")))
    count, micro = random.randint(6, 14), random.randint(2, 6)
    job = disturb(random, job, random.choice((DATA_LOADING, HOST_WORK, LAUNCHING))) if disturbed else job
    small = replace(job.model, update=())
    parts: list[list[Step]] = []
    for number in range(count):
        inner = [job.maker.steps(small, job.habit, n)[1:] for n in range(micro)]
        marks = [[Open(f"micro batch {number * micro + n}"), *steps, Close()] for n, steps in enumerate(inner)]
        parts.append([Mark(), *flatten(marks), *job.maker.launches(job.model.update)])
    return as_loop("micro-batches marked", job, FULL, parts, count, count * micro)
