"""Simulated jobs whose stages are known: plain ones, and those in which the stages are hard to distinguish.

A kernel's stage is told by a range of the main thread that is taken out of the recording (`§forward`); what the thread
of the backward pass launches is the backward pass, forward kernels that it runs once more too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.importers.kineto import Kineto
from deepprof.collectors.trace import Trace
from deepprof.simulation.capture import record
from deepprof.simulation.document import FileOrigin, make_document
from deepprof.simulation.machine import Machine
from deepprof.simulation.models import SimulatedModel, draw_model
from deepprof.simulation.plan import RankPlan
from deepprof.simulation.steps import Close, Copy, Open, Pause, Step

ITERATIONS = 16
SEEDS, UNSEEN = range(3), range(100, 103)
MICRO_BATCHES, EVALUATED_EVERY, EVALUATION_BATCHES = 4, 4, 3
MARK = "§"
RECOMPUTED = "autograd::engine::evaluate_function: CheckpointFunctionBackward"
Build = Callable[[SimulatedModel, SimulatedModel, int], Iterable[Step]]


@dataclass(frozen=True, slots=True)
class StagedJob:
    """A recording without marks, and the true stage of every row of its device events, null for what has none."""

    trace: Trace
    truth: pl.Series


def make_jobs() -> Iterator[tuple[str, StagedJob]]:
    """Yield the jobs of every kind with the kind's name."""
    for name, build in KINDS.items():
        for seed in SEEDS:
            yield name, make_staged(name, build, seed)


def make_staged(name: str, build: Build, seed: int) -> StagedJob:
    """Return a job of one kind; the seed draws its models and how long everything takes."""
    random = Random(f"stages {name} {seed}")
    models = draw_model(random), draw_model(random)
    machine = Machine(random, 1_000_000)
    record([machine], [RankPlan(build=partial(build, *models))], ITERATIONS, annotate=False)
    return _hide(read_document(make_document(machine, FileOrigin())))


def _marked(stage: str, steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps within the range that shows their stage."""
    yield Open(f"{MARK}{stage}")
    yield from steps
    yield Close()


def _load(model: SimulatedModel) -> Iterator[Step]:
    """Yield the steps that load a batch."""
    yield Pause(400_000)
    yield Copy("HtoD", model.batch_nbytes, pinned=True)


def _train(model: SimulatedModel, *, micro: int = 1, recompute: bool = False) -> Iterator[Step]:
    """Yield one iteration of a model."""
    for _ in range(micro):
        yield from _marked("data loading", _load(model))
        yield from _marked("forward", model.forward)
        yield from _go_back(model) if recompute else model.backward
    yield from _marked("optimizer", model.optimizer)


def _go_back(model: SimulatedModel) -> Iterator[Step]:
    """Yield a backward pass that runs each block's forward pass once more before going back through it."""
    yield from model.head_backward
    for block, backward in zip(reversed(model.blocks), model.blocks_backward, strict=True):
        yield from (replace(launch, op=RECOMPUTED, backward=True) for launch in block)
        yield from backward
    yield from model.stem_backward


def _accumulate(model: SimulatedModel, _: SimulatedModel, __: int) -> Iterator[Step]:
    """Yield an iteration whose gradients are of several batches."""
    yield from _train(model, micro=MICRO_BATCHES)


def _recompute(model: SimulatedModel, _: SimulatedModel, __: int) -> Iterator[Step]:
    """Yield an iteration that keeps no activations."""
    yield from _train(model, recompute=True)


def _alternate(critic: SimulatedModel, generator: SimulatedModel, _: int) -> Iterator[Step]:
    """Yield a step of a critic, which judges what a generator made, then one of the generator."""
    yield from _marked("data loading", _load(critic))
    yield from _marked("forward", (*generator.forward, *critic.forward))
    yield from critic.backward
    yield from _marked("optimizer", critic.optimizer)
    yield from _marked("forward", (*generator.forward, *critic.forward))
    yield from (*critic.backward, *generator.backward)
    yield from _marked("optimizer", generator.optimizer)


def _evaluate(model: SimulatedModel, _: SimulatedModel, index: int) -> Iterator[Step]:
    """Yield an iteration, and now and then an evaluation after it."""
    yield from _train(model)
    if index % EVALUATED_EVERY == EVALUATED_EVERY - 1:
        for _batch in range(EVALUATION_BATCHES):
            yield from _marked("evaluation", (*_load(model), *model.forward))


KINDS: dict[str, Build] = {
    "plain": lambda model, _, __: _train(model),
    f"{MICRO_BATCHES} micro-batches": _accumulate,
    "recomputation": _recompute,
    "two models": _alternate,
    f"evaluation every {EVALUATED_EVERY}": _evaluate,
}


def read_document(document: object) -> Trace:
    """Return a recording as it is read from its file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.pt.trace.json"
        path.write_bytes(msgspec.json.encode(document))
        return Kineto().read(path)


def _hide(trace: Trace) -> StagedJob:
    """Return a recording without marks, and the stage of every device event by the mark around its launch."""
    names = trace.names.gather(trace.annotations["name_id"])
    marks = trace.annotations.filter(names.str.starts_with(MARK)).with_columns(
        stage=names.filter(names.str.starts_with(MARK)).str.strip_prefix(MARK)
    )
    calls = trace.host_events.filter(pl.col("correlation").is_not_null()).unique("correlation", keep="first")
    main = marks["thread"][0]
    launched = trace.device_events.select("correlation").join(
        calls.select("correlation", "start_ns", "thread"), on="correlation", how="left", maintain_order="left"
    )
    placed = (
        launched.with_row_index("row")
        .sort("start_ns")
        .join_asof(marks.select("start_ns", "end_ns", "stage").sort("start_ns"), on="start_ns")
        .sort("row")
    )
    inside = (pl.col("thread") == main) & (pl.col("start_ns") < pl.col("end_ns"))
    truth = placed.select(
        pl.when(pl.col("thread") != main).then(pl.lit("backward")).when(inside).then("stage")
    ).to_series()
    kept = trace.annotations.filter(~names.str.starts_with(MARK))
    return StagedJob(without(trace, annotations=kept), truth)


def without(trace: Trace, **tables: pl.DataFrame) -> Trace:
    """Return a recording with other tables of records in its own place, and the accounting that fits."""
    less = sum(getattr(trace, name).height - table.height for name, table in tables.items())
    accounting = replace(trace.accounting, read=trace.accounting.read - less, kept=trace.accounting.kept - less)
    return replace(trace, **tables, accounting=accounting)  # type: ignore[arg-type]
