"""Real iterations repeated with noise: the kernels of one iteration of a real trace, and the truth all the same.

Which kernels these are is taken from the trace's own markers, or from how often it is known to repeat; never from the
miner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

import deepprof
from benchmarks.accuracy.jobs import Job
from benchmarks.accuracy.kernels import KERNEL, NONE, Ints, Kernels, Names
from benchmarks.accuracy.layout import lay_out
from benchmarks.accuracy.looks import Case
from benchmarks.accuracy.models import Program
from benchmarks.accuracy.real import TRACES, files, main_sequences
from benchmarks.accuracy.truth import Made
from deepprof.metrics.evidence import gather_evidence
from deepprof.metrics.names import coarse_ids
from deepprof.metrics.sequence import Sequence
from deepprof.mining import Evidence

EVALUATED = 0.35  # of the iteration: what an evaluation runs of it, roughly the forward pass

# Where an iteration is: between two ranges of that name, or an equal part of a stream known to hold this many.
ITERATIONS: dict[str, str | int] = {
    "tb-resnet50-nw0": "ProfilerStep",
    "tb-resnet50-nw4-d": "ProfilerStep",
    "tb-resnet50-autograd-nw0": "enumerate(DataLoader)#",
    "hta-nccl-parser": "ProfilerStep",
    "hta-negqueue": "ProfilerStep",
    "tl-resnet-ckpt": "ProfilerStep",
    "cs336-zx-base": 4,
    "cs336-zx-2_7B-clean": 10,
}

PLAIN = Job(iterations=20, prologue=0)
SETTINGS = {
    "repeated": PLAIN,
    "three, cut at both ends": replace(PLAIN, iterations=5, cut_start=0.4, cut_end=0.3),
    "insertions and deletions": replace(PLAIN, insertions=0.5, deletions=0.3, cut_start=0.3, cut_end=0.6),
    "substitutions": replace(PLAIN, substitutions=0.003, cut_start=0.7),
    "a part of it five times every 4": replace(PLAIN, iterations=24, eval_every=4, eval_passes=5, cut_end=0.2),
    "warm-up and some of all": replace(
        PLAIN,
        iterations=40,
        prologue=2000,
        autotuned=1,
        insertions=0.3,
        deletions=0.2,
        substitutions=0.001,
        eval_every=8,
        eval_passes=3,
    ),
}


@dataclass(frozen=True)
class Taken:
    """One iteration of a real trace, and the coarse symbols of all of the trace's names."""

    kernels: Kernels
    coarse: Ints


def cases(traces: Path = TRACES) -> Iterator[Case]:
    """Yield all settings for every trace."""
    for trace in ITERATIONS:
        for seed, setting in enumerate(SETTINGS):
            yield Case("semireal", f"{trace}: {setting}", seed, partial(make_case, traces, trace, setting, seed))


def make_case(traces: Path, trace: str, setting: str, seed: int) -> Made:
    """Return the trace's iteration repeated in that setting."""
    taken = take_iteration(traces, trace)
    job = replace(SETTINGS[setting], seed=seed)
    return lay_out(job, make_program(taken.kernels), Names(taken.coarse.tolist()))


def make_program(iteration: Kernels) -> Program:
    """Return a program that repeats a real iteration."""
    evaluation = iteration[: max(1, round(EVALUATED * len(iteration)))]
    return Program((iteration,), ((1, 1),), evaluation, checkpoint=NONE, statistics=NONE, grown=NONE)


@cache
def take_iteration(traces: Path, name: str) -> Taken:
    """Return one iteration of a real trace, with the times it had."""
    trace = deepprof.read(traces / next(file for file in files(traces) if Path(file).parent.name == name))
    sequence = main_sequences(trace)[0]
    known = ITERATIONS[name]
    count = len(sequence.symbols)
    first, end = (
        (0, count // known) if isinstance(known, int) else between_ranges(gather_evidence(trace, sequence), known)
    )
    return Taken(kernels_between(sequence, first, end), coarse_ids(trace.names).to_numpy().astype(np.int64))


def between_ranges(evidence: Evidence, name: str) -> tuple[int, int]:
    """Return the symbols from the second range of a name to the third: the first iteration may be odd."""
    positions = next(f.positions for f in evidence.families if f.name.startswith(name))
    return int(positions[1]), int(positions[2])


def kernels_between(sequence: Sequence, first: int, end: int) -> Kernels:
    """Return a part of a real stream."""
    kernels = np.zeros(end - first, KERNEL)
    kernels["symbol"] = sequence.symbols[first:end]
    kernels["duration_us"] = (sequence.end_ns - sequence.start_ns)[first:end] / 1000
    kernels["gap_us"] = sequence.gap_ns[first:end] / 1000
    return kernels
