"""The scenarios: what real jobs do to the sequence of their kernels, one thing at a time and then several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.accuracy.jobs import Job
from benchmarks.accuracy.layout import make_job
from benchmarks.accuracy.looks import Case

GAP_US = 300.0  # loading a batch; about what one layer needs

# Each scenario is captured three times, where it does not state itself how: from before the loop on, from its first
# kernel on, and from within an iteration to within another.
CAPTURES: tuple[dict[str, Any], ...] = ({}, {"prologue": 0}, {"cut_start": 0.4, "cut_end": 0.5})

BASE = Job(start_gap_us=GAP_US, other_gap_us=60.0)
TINY = replace(BASE, layers=5, forward=3, backward=5, pre=2, head=3, optimizer=2, optimizer_repeats=4, iterations=400)
EXPERTS = replace(BASE, layers=6, experts=16, expert=5, forward=14, backward=26, iterations=20)
DECODE = replace(BASE, layers=80, forward=9, backward=0, optimizer_repeats=0, head=12, iterations=40)
MODEST = replace(BASE, insertions=0.2, deletions=0.1, substitutions=0.001)
HEAVY = replace(BASE, insertions=1.0, deletions=0.5, substitutions=0.01)

SCENARIOS = {
    "clean": BASE,
    "no pause anywhere": replace(BASE, start_gap_us=0.0, other_gap_us=0.0),
    "longest pause elsewhere": replace(BASE, start_gap_us=100.0, other_gap_us=400.0),
    "three iterations": replace(BASE, iterations=3),
    "five iterations, cut at both ends": replace(BASE, iterations=5, prologue=0, cut_start=0.6, cut_end=0.3),
    "cut at both ends": replace(BASE, cut_start=0.4, cut_end=0.5),
    "long prologue and epilogue": replace(BASE, prologue=30_000, epilogue=5_000),
    "large (5,700 kernels)": replace(BASE, layers=60, forward=30, backward=60, optimizer_repeats=50, iterations=12),
    "eight kinds of layers": replace(BASE, layers=16, stages=8, iterations=40),
    "no two layers alike": replace(BASE, layers=16, stages=16, iterations=40),
    "one fused optimizer kernel": replace(BASE, optimizer=1, optimizer_repeats=1),
    "optimizer loop of half the iteration": replace(BASE, optimizer_repeats=70),
    "experts in each layer": EXPERTS,
    "tiny iterations": TINY,
    "tiny iterations, modest noise": replace(TINY, insertions=0.05, deletions=0.03, substitutions=0.001),
    "decoding, 80 layers": DECODE,
    "decoding, four buckets": replace(DECODE, buckets=4, bucket_share=0.3),
    "few insertions": replace(BASE, insertions=0.3),
    "insertions in most iterations": replace(BASE, insertions=1.5),
    "deletions": replace(BASE, deletions=0.5),
    "substitutions, 0.2 %": replace(BASE, substitutions=0.002),
    "substitutions, 2 %": replace(BASE, substitutions=0.02),
    "modest noise": MODEST,
    "heavy noise": HEAVY,
    "heavy noise, few iterations": replace(HEAVY, iterations=8, cut_start=0.5, cut_end=0.5),
    "autotuned at first": replace(BASE, autotuned=2, iterations=20),
    "variants for whole iterations": replace(BASE, retuned=0.6),
    "four shape buckets": replace(BASE, buckets=4, bucket_share=0.2),
    "twelve shape buckets, half of the kernels": replace(BASE, buckets=12, bucket_share=0.5),
    "2 micro-batches": replace(BASE, micro=2, micro_gap_us=GAP_US),
    "4 micro-batches": replace(BASE, micro=4, iterations=30),
    "16 micro-batches": replace(BASE, micro=16, iterations=10),
    "evaluation every 5": replace(BASE, eval_every=5, eval_passes=4),
    "evaluation longer than training": replace(BASE, eval_every=20, eval_passes=80, iterations=60),
    "checkpoint every 10": replace(BASE, checkpoint_every=10, iterations=60),
    "statistics every 4": replace(BASE, statistics_every=4),
    "evaluation, checkpoint, statistics": replace(
        MODEST, eval_every=10, checkpoint_every=20, statistics_every=4, iterations=80
    ),
    "one kernel more every 3": replace(BASE, growth_every=3, iterations=60),
    "one kernel more each time": replace(BASE, growth_every=1),
    "critic and generator, 1:1": replace(BASE, critic=1, layers=6, iterations=30),
    "critic and generator, 5:1": replace(BASE, critic=5, layers=6, iterations=12),
    "two loops taking turns": replace(BASE, stretches=6, iterations=120),
    "one model, then another": replace(BASE, stretches=2, iterations=60),
    "one model, then half of it frozen": replace(BASE, stretches=2, similar=True, iterations=60),
}


def cases() -> Iterator[Case]:
    """Yield the captures of every scenario, each of its own job."""
    for name, job in SCENARIOS.items():
        for seed, capture in enumerate(CAPTURES):
            taken = replace(job, seed=seed, **chosen(job, capture))
            yield Case("scenarios", name, seed, partial(make_job, taken), str(taken))


def chosen(job: Job, capture: dict[str, Any]) -> dict[str, Any]:
    """Return how a job is captured: as given, unless it is about its beginning or its end, or too short to be cut."""
    is_own = job.prologue != BASE.prologue or job.cut_start > 0 or job.iterations <= 3
    return {} if is_own else capture
