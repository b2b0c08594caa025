"""Requests that a service answers in bursts of chunks: what repeats most covers a part of the capture only."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from benchmarks.unseen.building import Model, flatten, total
from benchmarks.unseen.habits import Job, draw_job, draw_recorder
from benchmarks.unseen.passing import with_host
from benchmarks.unseen.sketch import Sketch
from benchmarks.unseen.steps import Close, Mark, Open, Program, Shown, Step, Work
from benchmarks.unseen.vocabulary import LOOP, SINGLE_PASS

__all__ = ["chunked_requests"]

MOST_KERNELS = 240  # of the passes between bursts
IDLE: tuple[tuple[Shown, str], ...] = (("nothing", ""), ("system", "epoll_wait"), ("frame", "queue.py(171): get"))


def chunked_requests(random: Random, disturbed: bool) -> Sketch:
    """Draw requests of several chunks each, with other passes between them; its twin waits for requests as well."""
    job = draw_job(random, (8, 30), training=False)
    recorder = with_host(draw_recorder(random, job.maker.flavour, ("operators", "ranges")))
    bursts, chunks = random.randint(2, 5), random.randint(4, 10)
    covered = random.uniform(0.1, 0.6)
    inside = total(job.model) * chunks
    rest = inside * (1 - covered) / covered
    share = random.uniform(0.3, 0.8) if disturbed else 0
    parts = [burst(random, job, chunks, rest * (1 - share)) for _ in range(bursts)]
    shown, name = random.choice(IDLE)
    gaps: list[list[Step]] = [[Work(job.maker.vary(rest * share, 0.3), name, shown)] if share else [] for _ in parts]
    steps = flatten([each for pair in zip(gaps, parts, strict=True) for each in pair])
    sketch = Sketch("chunked requests", LOOP, (Program(steps),), recorder, (bursts, 0))
    return replace(sketch, also=(SINGLE_PASS,))


def burst(random: Random, job: Job, chunks: int, other_ns: float) -> list[Step]:
    """Return one request: its chunks, then passes in which nothing repeats, and a read of the answer."""
    maker = job.maker
    steps: list[Step] = [Mark()]
    for _ in range(chunks):
        steps += maker.launches(job.model.forward)
    mean = total(job.model) / len(job.model.kernels)
    count = min(MOST_KERNELS, round(other_ns / mean))
    other = maker.draw_model(count, other_ns / count, training=False) if count else Model(())
    named = random.random() < 0.3
    steps = [*steps, *maker.launches(other.forward), maker.look()]
    return [Open("request"), *steps, Close()] if named else steps
