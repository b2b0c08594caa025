"""Hosts that are blocked: in one call, by a late hand-over to the device, by another thread, by a lock."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from benchmarks.unseen.building import launch_cost, total
from benchmarks.unseen.habits import Job, draw_job, draw_recorder
from benchmarks.unseen.looping import as_loop
from benchmarks.unseen.passing import pass_of, single, with_host
from benchmarks.unseen.sketch import Recorder, Sketch
from benchmarks.unseen.steps import Copy, Sync
from benchmarks.unseen.vocabulary import HOST_WORK, LAUNCHING, OTHER_THREAD, SINGLE_PASS

__all__ = ["autograd_thread", "late_hand_over", "lock_held", "long_copy_call", "slow_launch"]

ENOUGH_NS = 2_500_000  # of computing in an iteration, against which some milliseconds of blocking count


def draw_blocked(random: Random, *, training: bool, flavour: str | None = None) -> tuple[Job, Recorder]:
    """Return a job with iterations of some milliseconds, and a recorder that sees its host."""
    job = draw_job(random, (40, 120), training=training, flavour=flavour)
    factor = max(1.0, ENOUGH_NS * random.uniform(1, 3) / total(job.model))
    recorder = with_host(draw_recorder(random, job.maker.flavour, ("operators", "ranges", "calls")))
    return replace(job, model=job.model.scaled(factor)), recorder


def long_copy_call(random: Random, disturbed: bool) -> Sketch:
    """Draw a pass in which one call that copies uses 40 to 500 ms, though the copy itself is short."""
    job, recorder = draw_blocked(random, training=random.random() < 0.5)
    steps = pass_of(job)
    place = next(number for number, step in enumerate(steps) if isinstance(step, Copy))
    copy = steps[place]
    if disturbed and isinstance(copy, Copy):
        steps[place] = replace(copy, slow_ns=random.randint(40_000_000, 500_000_000))
    warm = job.maker.launches(job.maker.draw_model(random.randint(5, 30), 40_000, training=False).forward)
    return single("long copy call", SINGLE_PASS, [*warm, *steps, Sync()], recorder)


def slow_launch(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop in which one launch call of every iteration needs milliseconds."""
    job, recorder = draw_blocked(random, training=random.random() < 0.7)
    slow = total(job.model) * random.uniform(1.1, 3.5)
    count = random.randint(8, 25)
    job = replace(job, habit=replace(job.habit, slow_ns=slow)) if disturbed else job
    return as_loop("slow launch call", job, recorder, job.maker.loop(job.model, job.habit, count), count)


def late_hand_over(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop whose work is handed to the device 1 to 3 ms late, as under Windows; it reads a value each time."""
    job, recorder = draw_blocked(random, training=random.random() < 0.6)
    late = random.uniform(1_000_000, 3_000_000)
    each = random.choice((1_000, len(job.model.kernels) // 2))
    habit = replace(job.habit, read="item", late_each=max(10, each))
    job = replace(job, habit=replace(habit, late_ns=late) if disturbed else habit)
    count = random.randint(8, 25)
    return as_loop("late hand-over", job, recorder, job.maker.loop(job.model, job.habit, count), count)


def autograd_thread(random: Random, disturbed: bool) -> Sketch:
    """Draw training whose main thread waits while autograd's thread launches; its twin's kernels are short for that."""
    job = draw_job(random, (40, 120), training=True, flavour=random.choice(("pytorch", "amd")))
    recorder = with_host(draw_recorder(random, job.maker.flavour, ("operators", "ranges", "calls")))
    count = random.randint(8, 20)
    if disturbed:
        mean = total(job.model) / len(job.model.kernels)
        short = job.model.scaled(launch_cost(job.maker) * random.uniform(0.25, 0.6) / mean)
        forward = job.model.scaled(launch_cost(job.maker) / mean).forward
        job = replace(job, model=replace(short, forward=forward, backward=short.backward * 3))
    sketch = as_loop("autograd's thread", job, recorder, job.maker.loop(job.model, job.habit, count), count)
    return replace(sketch, spoken=(OTHER_THREAD, LAUNCHING) if disturbed else ())


def lock_held(random: Random, disturbed: bool) -> Sketch:
    """Draw a loop whose main thread waits for a lock that another thread holds in every iteration."""
    job, recorder = draw_blocked(random, training=random.random() < 0.6)
    held = total(job.model) * random.uniform(1.1, 3.5)
    job = replace(job, habit=replace(job.habit, lock_ns=held)) if disturbed else job
    count = random.randint(8, 25)
    sketch = as_loop("lock", job, recorder, job.maker.loop(job.model, job.habit, count), count)
    return replace(sketch, spoken=(OTHER_THREAD, HOST_WORK) if disturbed else ())
