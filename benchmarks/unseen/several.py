"""Several processes, ranks or devices in one recording: late starts, stragglers, devices that do nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from benchmarks.unseen.building import flatten, total
from benchmarks.unseen.habits import Job, draw_job, draw_recorder, kind_of
from benchmarks.unseen.looping import as_loop
from benchmarks.unseen.passing import with_host
from benchmarks.unseen.sketch import Recorder, Sketch
from benchmarks.unseen.steps import Copy, Join, Launch, Meet, Program, Step, Work
from benchmarks.unseen.vocabulary import HOST_WORK, LATE_RANK

__all__ = ["idle_device", "late_start", "slow_network", "straggler"]


@dataclass(frozen=True)
class Pair:
    """A job of two ranks; `separate` ones have a file each."""

    job: Job
    recorder: Recorder
    separate: bool
    count: int
    reduce_ns: float


def draw_pair(random: Random) -> Pair:
    """Return a job of two ranks, whose collectives take little."""
    job = draw_job(random, (30, 80), training=True, flavour=random.choice(("pytorch", "amd", "compiled")))
    recorder = with_host(draw_recorder(random, job.maker.flavour, ("operators", "ranges")))
    separate = recorder.style == "kineto" or random.random() < 0.4
    return Pair(job, recorder, separate, random.randint(6, 20), total(job.model) * random.uniform(0.01, 0.04))


def rank(pair: Pair, late_ns: float = 0) -> tuple[Step, ...]:
    """Return what one rank does: in every iteration it meets the other one before the update."""
    maker = pair.job.maker
    parts: list[list[Step]] = []
    for number in range(pair.count):
        steps = maker.steps(pair.job.model, pair.job.habit, number)
        place = last_launch(steps, len(pair.job.model.update))
        late: list[Step] = [Work(maker.vary(late_ns), cause=LATE_RANK)] if late_ns else []
        meeting: list[Step] = [Meet(maker.vary(pair.reduce_ns, 0.01)), Join()]
        parts.append([steps[0], *late, *steps[1:place], *meeting, *steps[place:]])
    return flatten(parts)


def last_launch(steps: list[Step], after: int) -> int:
    """Return the place behind the launch after which this many follow."""
    places = [number for number, step in enumerate(steps) if isinstance(step, Launch)]
    return places[len(places) - after - 1] + 1


def together(variant: str, pair: Pair, programs: tuple[Program, ...]) -> Sketch:
    """Return the sketch of two ranks."""
    kind, also = kind_of(pair.job, pair.recorder)
    counts = (pair.count,)
    return Sketch(variant, kind, programs, pair.recorder, counts, "iteration", also, separate=pair.separate)


def late_start(random: Random, disturbed: bool) -> Sketch:
    """Draw ranks of which one starts late: the others wait in their first collective."""
    pair = draw_pair(random)
    late = round(total(pair.job.model) * pair.count * random.uniform(0.3, 3))
    ranks = random.choice((2, 2, 3, 4))
    others = tuple(Program(rank(pair), device=number) for number in range(ranks - 1))
    last = Program(rank(pair), device=ranks - 1, start_ns=late if disturbed else 0, late=True)
    programs = (*others, last)
    return together("late start", pair, programs)


def straggler(random: Random, disturbed: bool) -> Sketch:
    """Draw two ranks of which one is late in every iteration."""
    pair = draw_pair(random)
    late = total(pair.job.model) * random.uniform(1.1, 3)
    programs = (Program(rank(pair)), Program(rank(pair, late if disturbed else 0), device=1))
    return replace(together("straggler", pair, programs), spoken=(HOST_WORK,) if disturbed else ())


def slow_network(random: Random, disturbed: bool) -> Sketch:
    """Draw two ranks whose collectives last long."""
    pair = draw_pair(random)
    longer = total(pair.job.model) * random.uniform(0.4, 2.5)
    pair = replace(pair, reduce_ns=longer) if disturbed else pair
    return together("slow network", pair, (Program(rank(pair)), Program(rank(pair), device=1)))


def idle_device(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop on one device beside another one that gets some copies and does nothing; its twin shares the work."""
    job = draw_job(random, (30, 80))
    recorder = draw_recorder(random, job.maker.flavour)
    count = random.randint(10, 25)
    parts = job.maker.loop(job.model, job.habit, count)
    if not disturbed:
        return as_loop("two devices", job, recorder, [share(steps) for steps in parts], count)
    sent: list[Step] = [
        replace(job.maker.copy("HtoD", random.choice((4, 112, 65_536))), device=1) for _ in range(random.randint(1, 9))
    ]
    return as_loop("idle device", job, recorder, [sent, *parts], count)


def share(steps: list[Step]) -> list[Step]:
    """Return the steps with every launch and copy made on a second device as well."""
    return [each for step in steps for each in (step, *second(step))]


def second(step: Step) -> list[Step]:
    """Return the same work for the second device."""
    if isinstance(step, Launch):
        return [replace(step, device=1, before_ns=300, call_ns=1_200, after_ns=200)]
    return [replace(step, device=1, blocking=False, call_ns=1_500)] if isinstance(step, Copy) else []
