"""A drawn recording through the library, as `deepprof diagnose` does, and the verdict on what it states."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from benchmarks.unseen.drawing import Drawn, draw, record
from benchmarks.unseen.judging import PLAINLY_RIGHT, LoopVerdict, Said, judge, judge_loops
from benchmarks.unseen.saying import read_said
from benchmarks.unseen.truth import Truth
from deepprof.analysis import Analysis, analyze

__all__ = ["Answer", "Task", "answer", "describe", "tell_truth"]

Task = tuple[str, int]
"""A block's seed and a number in it."""


@dataclass(frozen=True)
class Answer:
    """The verdict on one recording; `told` is a line about it, "" where it is plainly right."""

    family: str
    kind: str
    verdict: str
    confidence: float
    loops: LoopVerdict
    has_loop: bool
    told: str


def answer(task: Task) -> Answer:
    """Return the verdict on a recording of a block."""
    drawn = draw(*task)
    said = read_said(examine(drawn))
    verdict = judge(drawn.truth, said)
    told = "" if verdict == PLAINLY_RIGHT else f"{verdict}: {describe(drawn)}; said {describe_said(said)}"
    loops = judge_loops(drawn.truth, said)
    has_loop = drawn.truth.loops > 0
    return Answer(drawn.family, drawn.truth.kind, verdict, said.confidence, loops, has_loop, told)


def examine(drawn: Drawn) -> Analysis:
    """Return the analysis of a recording, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return analyze(record(drawn))


def tell_truth(task: Task) -> str:
    """Return a line about a recording of a block, without an analysis."""
    return describe(draw(*task))


def describe(drawn: Drawn) -> str:
    """Return a line about a recording and its truth."""
    truth, recorder = drawn.truth, drawn.sketch.recorder
    lost = [
        name for name in ("host", "operators", "ranges", "calls", "correlated", "sizes") if not getattr(recorder, name)
    ]
    recorded = f"{recorder.style}{' without ' + ', '.join(lost) if lost else ''}"
    twin = "disturbed" if drawn.disturbed else "healthy"
    return f"{drawn.number} {drawn.sketch.variant}, {twin}, {recorded}: {describe_truth(truth)}"


def describe_truth(truth: Truth) -> str:
    """Return the truth in one line."""
    view = truth.views[0]
    parts, causes = (
        " ".join(f"{name} {share:.1%}" for name, share in shares.items() if share > 0.01)
        for shares in (view.parts, view.causes)
    )
    also = "/".join(sorted(truth.acceptable))
    return f"{truth.kind}, iterations {truth.counts}, of the {view.base} [{parts}], causes [{causes}], or {also or '-'}"


def describe_said(said: Said) -> str:
    """Return what was stated in one line."""
    cause = f"{said.cause or 'no cause'} {said.cause_share:.1%}"
    return f"{said.kind}, {said.loops} iterations, {said.part} {said.part_share:.1%}, {cause} at {said.confidence:.2f}"
