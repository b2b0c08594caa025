"""A drawn job or pass through the library, as `deepprof diagnose` does, and what it states."""

from __future__ import annotations

import warnings

from benchmarks.cases.case import HEALTHY
from benchmarks.sealed.drawing import Drawn, draw
from benchmarks.sealed.recording import record, whole_iterations
from benchmarks.sealed.scoring import Answer
from benchmarks.sealed.single import draw_pass, record_pass
from deepprof.analysis import Analysis, analyze
from deepprof.collectors.trace import Trace

__all__ = ["Task", "answer", "look"]

Task = tuple[str, int, bool]
"""A block's seed, a number in it, and whether it is a single pass."""

SLACK = 0.02  # of iterations and of kernels


def answer(task: Task) -> Answer:
    """Return what is stated of one job or pass of a block."""
    seed, number, single = task
    return judge_pass(seed, number) if single else judge_job(draw(seed, number))


def look(task: Task) -> tuple[Answer, str]:
    """Return the same with a line that shows all about it, for blocks that are open to examine."""
    seed, number, single = task
    if single:
        one = draw_pass(seed, number)
        told = f"{one.flavour}, {len(one.model.blocks)} blocks, marked {one.marked}, host {one.host}"
        return answer(task), f"pass {number}: {one.kind}, {told}"
    job = draw(seed, number)
    shares = " ".join(f"{name} {share:.0%}" for name, share in job.truth.shares.items())
    told = f"{job.flavour}, marked {job.marked}, lacks {job.missing}, {job.job.machine.__name__}, cut {job.cut}"
    made = judge_job(job)
    asked = "/".join((str(made.label), *made.also))
    return made, f"job {number}: {job.kind} [{shares}]: {asked}; said {made.headline} at {made.confidence:.2f}; {told}"


def judge_job(drawn: Drawn) -> Answer:
    """Return what is stated of a job."""
    trace = record(drawn)
    found = examine(trace)
    said = found.headline
    headline, confidence = (said.rule, said.confidence) if said else (HEALTHY, 0.0)
    right = is_counted(found, drawn, trace)
    truth = drawn.truth
    return Answer(drawn.kind, truth.label, truth.also, headline, confidence, said is None, len(found.loops), right)


def judge_pass(seed: str, number: int) -> Answer:
    """Return what is stated of a single pass."""
    drawn = draw_pass(seed, number)
    found = examine(record_pass(drawn))
    said = found.headline
    headline, confidence = (said.rule, said.confidence) if said else (HEALTHY, 0.0)
    return Answer(drawn.kind, None, (), headline, confidence, said is None, len(found.loops), counted=not found.loops)


def examine(trace: Trace) -> Analysis:
    """Return the analysis of a trace, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return analyze(trace)


def is_counted(found: Analysis, drawn: Drawn, trace: Trace) -> bool:
    """Return whether the largest loop has the job's iterations: as long, and as many of them."""
    if not found.loops:
        return False
    loop = max(found.loops, key=lambda each: each.period * each.iterations.height)
    wanted, complete = whole_iterations(drawn, trace), int(loop.iterations["complete"].sum())
    as_long = abs(loop.period - drawn.truth.kernels) <= max(1, SLACK * drawn.truth.kernels)
    return as_long and abs(complete - wanted) <= max(1, SLACK * wanted)
