"""Random jobs: all knobs drawn together, most jobs with modest noise, some with heavy.

The seeds are fixed: the first block is what the miner may be tuned with, the second one is not examined for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.accuracy.jobs import Job
from benchmarks.accuracy.layout import make_job
from benchmarks.accuracy.looks import Case
from benchmarks.accuracy.truth import Made

BLOCKS = {"random": range(120), "unseen": range(1000, 1120)}
LONGEST_ITERATION, MIN_DRAWN_ITERATIONS, MAX_DRAWN_ITERATIONS = 12_000, 3, 1500
TYPICAL = 300  # kernels of an iteration; insertions and deletions are drawn for it
SYMBOLS = (4_000, 80_000)  # of a job, log-uniform; more where few iterations are that long

Rng = np.random.Generator
Knobs = dict[str, Any]


def cases(block: str) -> Iterator[Case]:
    """Yield the jobs of a block of seeds."""
    for seed in BLOCKS[block]:
        yield Case(block, kind_of(seed), seed, partial(make_random, seed), str(draw_job(seed)))


def make_random(seed: int) -> Made:
    """Return the job of that seed, made."""
    return make_job(draw_job(seed))


def kind_of(seed: int) -> str:
    """Return the name of the kind of job that the seed gives."""
    return draw_kind(np.random.default_rng([seed, 3])).__name__.replace("_", " ")


def draw_kind(rng: Rng) -> Callable[[Rng], Knobs]:
    """Return what draws the model."""
    return KINDS[int(rng.choice(len(KINDS), p=SHARES))]


def draw_job(seed: int) -> Job:
    """Return the job of that seed."""
    rng = np.random.default_rng([seed, 3])
    kind = draw_kind(rng)
    job = replace(Job(seed=seed), **kind(rng), **draw_noise(rng), **draw_edges(rng), **draw_pauses(rng))
    job = replace(job, **draw_micro(rng, job))
    job = replace(job, iterations=draw_iterations(rng, job))
    return scaled(replace(job, **draw_events(rng, job)))


def between(rng: Rng, low: float, high: float) -> int:
    """Return an integer from `low` to `high`, small ones as likely as large ones in proportion."""
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def at_times(rng: Rng, probability: float, value: float) -> float:
    """Return `value` with that probability, else 0."""
    return value if rng.random() < probability else 0.0


def draw_sizes(rng: Rng) -> Knobs:
    """Return the sizes that all kinds of models have in common."""
    return {
        "pre": between(rng, 1, 15),
        "head": between(rng, 3, 20),
        "optimizer": between(rng, 1, 14),
        "optimizer_repeats": between(rng, 1, 40),
        "alphabet": between(rng, 10, 80),
        "own": float(rng.uniform(0.2, 0.8)),
    }


def transformer(rng: Rng) -> Knobs:
    """Return equal layers."""
    forward = between(rng, 5, 30)
    backward = round(forward * rng.uniform(1.2, 2.5))
    return draw_sizes(rng) | {"layers": between(rng, 2, 48), "forward": forward, "backward": backward}


def convolutional(rng: Rng) -> Knobs:
    """Return layers in stages, hardly two of them alike in some."""
    layers = between(rng, 4, 40)
    sizes = {"layers": layers, "forward": between(rng, 2, 12), "backward": between(rng, 4, 20)}
    return draw_sizes(rng) | sizes | {"stages": int(rng.integers(1, layers + 1))}


def tiny(rng: Rng) -> Knobs:
    """Return a model of a few small layers."""
    sizes = {"layers": int(rng.integers(2, 6)), "forward": int(rng.integers(1, 5)), "backward": int(rng.integers(2, 7))}
    return draw_sizes(rng) | sizes | {"pre": 2, "head": 3, "optimizer_repeats": int(rng.integers(1, 5))}


def of_experts(rng: Rng) -> Knobs:
    """Return layers with an inner loop."""
    experts = {"experts": between(rng, 4, 32), "expert": int(rng.integers(2, 7)), "layers": between(rng, 2, 24)}
    return draw_sizes(rng) | experts | {"forward": between(rng, 8, 20), "backward": between(rng, 12, 40)}


def decoding(rng: Rng) -> Knobs:
    """Return forward passes only."""
    sizes = {"layers": between(rng, 12, 80), "forward": between(rng, 5, 16), "backward": 0}
    return draw_sizes(rng) | sizes | {"optimizer_repeats": 0}


def adversarial(rng: Rng) -> Knobs:
    """Return two models that train each other."""
    return convolutional(rng) | {"layers": between(rng, 3, 10), "stages": 1, "critic": int(rng.choice([1, 1, 2, 5]))}


def in_turns(rng: Rng) -> Knobs:
    """Return two models, one after the other or for long sections in turn."""
    return transformer(rng) | {"stretches": int(rng.choice([2, 2, 4, 7])), "similar": bool(rng.random() < 0.4)}


KINDS: tuple[Callable[[Rng], Knobs], ...] = (
    transformer,
    convolutional,
    tiny,
    of_experts,
    decoding,
    adversarial,
    in_turns,
)
SHARES = (0.42, 0.18, 0.09, 0.09, 0.09, 0.05, 0.08)


def draw_noise(rng: Rng) -> Knobs:
    """Return noise: none to speak of in a third of the jobs, heavy in a sixth."""
    level = float(rng.choice([0.0, 1.0, 5.0], p=[0.35, 0.48, 0.17]))
    return {
        "insertions": level * float(rng.uniform(0, 0.3)),
        "deletions": level * at_times(rng, 0.6, float(rng.uniform(0, 0.15))),
        "substitutions": level * at_times(rng, 0.6, float(rng.uniform(0, 0.003))),
        "autotuned": int(at_times(rng, 0.15, int(rng.choice([1, 1, 2])))),
        "autotuned_share": float(rng.uniform(0.05, 0.3)),
        "retuned": at_times(rng, 0.15, float(rng.uniform(0.1, 0.8))),
        "buckets": int(at_times(rng, 0.15, between(rng, 2, 12))) or 1,
        "bucket_share": float(rng.uniform(0.05, 0.5)),
    }


def draw_edges(rng: Rng) -> Knobs:
    """Return how the capture begins and ends."""
    return {
        "prologue": int(at_times(rng, 0.7, between(rng, 10, 5000))),
        "epilogue": int(at_times(rng, 0.4, between(rng, 10, 2000))),
        "cut_start": at_times(rng, 0.3, float(rng.uniform(0.05, 0.95))),
        "cut_end": at_times(rng, 0.4, float(rng.uniform(0.05, 0.95))),
    }


def draw_pauses(rng: Rng) -> Knobs:
    """Return the host's pauses: half of the jobs load their data late, many wait elsewhere."""
    start = at_times(rng, 0.5, between(rng, 20, 2000))
    return {
        "start_gap_us": start,
        "micro_gap_us": at_times(rng, 0.5, start),
        "other_gap_us": at_times(rng, 0.4, between(rng, 20, 2000)),
    }


def draw_micro(rng: Rng, job: Job) -> Knobs:
    """Return how many micro-batches, as far as the iteration does not get too long."""
    wanted = int(at_times(rng, 0.2, int(rng.choice([2, 4, 8, 16])))) or 1
    trains = job.backward > 0 and not job.critic
    return {"micro": max(1, min(wanted, LONGEST_ITERATION // job.size)) if trains else 1}


def draw_iterations(rng: Rng, job: Job) -> int:
    """Return how many iterations: three whole ones at least, more after autotuning, eight for every section of many."""
    fewest = MIN_DRAWN_ITERATIONS + (job.cut_start > 0) + (job.cut_end > 0) + 3 * job.autotuned
    fewest = max(fewest, 8 * job.stretches if job.stretches > 1 else 0)
    return min(MAX_DRAWN_ITERATIONS, max(fewest, round(between(rng, *SYMBOLS) / job.size)))


def draw_events(rng: Rng, job: Job) -> Knobs:
    """Return what happens now and then: evaluation takes no longer than training, and no graph grows by a quarter."""
    trains = job.backward > 0
    every = between(rng, 5, 50)
    longest = max(1, every * job.size // job.forward_size)
    slowest = max(1, 4 * job.iterations // job.size)
    return {
        "eval_every": every if trains and rng.random() < 0.25 else 0,
        "eval_passes": min(longest, between(rng, 1, 30)),
        "checkpoint_every": int(at_times(rng, 0.15, between(rng, 5, 50))),
        "checkpoint": between(rng, 5, 100),
        "statistics_every": int(at_times(rng, 0.2, between(rng, 3, 20))),
        "statistics": max(1, min(between(rng, 2, 40), job.size // 4)),
        "growth_every": int(at_times(rng, 0.06, max(slowest, between(rng, 1, 10)))),
    }


def scaled(job: Job) -> Job:
    """Return the job with fewer kernels inserted and deleted where an iteration has only few."""
    part = min(1.0, job.size / TYPICAL)
    return replace(job, insertions=job.insertions * part, deletions=job.deletions * part)
