"""How many kernels are given the stage that they are part of, where that is known and hidden.

The truth of a real trace is what its own ranges, modules and functions state of a kernel's launch. Three looks: `all`
hides nothing (and is the truth of real traces), `operators` hides ranges, modules and functions, `kernels` hides all
that the host recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

import deepprof
from benchmarks.accuracy import real
from benchmarks.accuracy.stage_jobs import KINDS, SEEDS, UNSEEN, make_staged, without
from benchmarks.accuracy.tables import Better, Table
from benchmarks.accuracy.workers import each
from deepprof.collectors.errors import DeepProfError
from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.event_stages import RECORDED, find_stages
from deepprof.metrics.annotation.stage_names import STAGES
from deepprof.metrics.contexts.slices import has_code
from deepprof.metrics.contexts.tree import ContextTree, build_tree
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in

LOOKS = ("operators", "kernels")
KNOWN = 0.5  # of the kernels of a trace, for its truth to be told
FEWEST = 50  # kernels

Stages = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class StageScore:
    """Of how many kernels the stage is known, and the shares that each of `LOOKS` gets right."""

    name: str
    kernels: int
    shares: tuple[float, ...]


def real_scores(traces: Path = real.TRACES, workers: int = 0) -> list[StageScore]:
    """Return the scores of the real traces whose truth can be told."""
    folders = [traces, traces.parent / "more_traces"]
    files = [folder / file for folder in folders if (folder / "manifest.csv").exists() for file in real.files(folder)]
    return [score for score in each(score_file, files, workers) if score is not None]


def score_file(path: Path) -> StageScore | None:
    """Return the score of one trace, None where its truth cannot be told, or nothing repeats."""
    try:
        analysis = deepprof.analyze(deepprof.read(path))
    except DeepProfError:
        return None
    trace, known = analysis.traces[0], analysis.annotated.get(analysis.traces[0].rank or 0)
    if known is None or known.tree is None or is_stand_in(trace) or not analysis.loops:
        return None
    inside = in_iterations(trace, analysis.loops)
    told = inside & (known.stages.evidence == RECORDED)
    if told.sum() < max(FEWEST, KNOWN * inside.sum()) or len(set(known.stages.stage[told])) < len(LOOKS):
        return None
    return score(path.parent.name, trace, analysis.loops, known.stages.stage, told)


def made_scores(seeds: Sequence[int], workers: int = 0) -> list[StageScore]:
    """Return the mean scores of simulated jobs by kind."""
    tasks = [(kind, seed) for kind in KINDS for seed in seeds]
    found = each(score_made, tasks, workers)
    return [
        _mean(kind, [score for (name, _), score in zip(tasks, found, strict=True) if name == kind]) for kind in KINDS
    ]


def score_made(task: tuple[str, int]) -> StageScore:
    """Return the score of one simulated job, by its kind and seed."""
    kind, seed = task
    job = make_staged(kind, KINDS[kind], seed)
    loops = deepprof.analyze(job.trace).loops
    numbers = {stage: number for number, stage in enumerate(STAGES)}
    truth = job.truth.replace_strict(numbers, default=-1, return_dtype=pl.Int8).to_numpy()
    return score(kind, job.trace, loops, truth, in_iterations(job.trace, loops) & (truth >= 0))


def _mean(name: str, scores: Sequence[StageScore]) -> StageScore:
    """Return the mean of scores, each kernel of which counts alike."""
    kernels = sum(score.kernels for score in scores)
    shares = (sum(s.kernels * s.shares[k] for s in scores) / max(1, kernels) for k in range(len(LOOKS)))
    return StageScore(name, kernels, tuple(shares))


def in_iterations(trace: Trace, loops: Sequence[Loop]) -> Bools:
    """Return which device events are kernels that begin in an iteration of a loop on their device."""
    inside = np.zeros(trace.device_events.height, np.bool_)
    kernel = trace.device_events["activity"].is_in(["kernel", "graph"]).to_numpy()
    start, device = trace.device_events["start_ns"].to_numpy(), trace.device_events["device"].to_numpy()
    for loop in loops:
        begin = loop.table["start_ns"].to_numpy()
        until = begin + (loop.table["busy_ns"] + loop.table["idle_ns"]).to_numpy()
        at = np.searchsorted(begin, start, side="right") - 1
        inside |= kernel & (device == loop.device) & (at >= 0) & (start < np.append(until, 0)[at])
    return inside


def score(name: str, trace: Trace, loops: Sequence[Loop], truth: Stages, told: Bools) -> StageScore:
    """Return the share of the kernels that are `told` whose stage each look gets right."""
    hidden = hide_code(trace)
    trees = {"operators": build_tree(hidden) if has_code(hidden) else None, "kernels": None}
    shares = tuple(_share(partial(find_stages, trace, loops), trees[look], truth, told) for look in LOOKS)
    return StageScore(name, int(told.sum()), shares)


def _share(find: partial, tree: ContextTree | None, truth: Stages, told: Bools) -> float:  # type: ignore[type-arg]
    """Return the share of kernels that one look gets right; what it calls unknown is not."""
    return float((find(tree).stage == truth)[told].mean()) if told.any() else 0.0


def hide_code(trace: Trace) -> Trace:
    """Return a recording of which only operators and calls are left of the host."""
    kept = trace.host_events.filter(~pl.col("category").is_in(["python", "dataloader"]))
    empty = {name: getattr(trace, name).clear() for name in ("operands", "stacks", "event_stacks")}
    return without(replace(trace, **empty), host_events=kept, annotations=trace.annotations.clear())


def stage_tables(traces: Path = real.TRACES, workers: int = 0) -> list[Table]:
    """Return the tables of real traces and of simulated jobs."""
    looks: dict[str, Better] = {"known": "about", **dict.fromkeys(LOOKS, "more")}
    note = (
        "Shares of the kernels in iterations that are given the right stage. The truth is what ranges, modules and\n"
        "functions say, of the kernels `known` so; `operators` hides these, `kernels` everything of the host.\n"
        "Traces of which fewer than half of the kernels are known are left out."
    )
    again = f"Means of {len(SEEDS)} jobs; kernels that run a forward pass once more are part of the backward pass."
    found = real_scores(traces, workers)
    rows = [_cells(each) for each in (*found, _mean("all", found))]
    jobs: dict[str, Better] = {"job": "key", **looks}
    return [
        Table("Stages of real traces", note, {"trace": "key", **looks}, rows),
        Table("Stages of simulated jobs", again, jobs, [_cells(each) for each in made_scores(SEEDS, workers)]),
        Table(
            "Stages of simulated jobs that nobody looked at",
            "The same of jobs drawn when all else was done. No real trace was scored that nobody had looked at.",
            jobs,
            [_cells(each) for each in made_scores(UNSEEN, workers)],
        ),
    ]


def _cells(score: StageScore) -> list[str]:
    """Return the cells of a row."""
    return [score.name, str(score.kernels), *(f"{share:.3f}" for share in score.shares)]
