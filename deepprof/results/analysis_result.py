"""The result of an analysis: the one object that all interfaces share, and what it contains of every rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Literal

import msgspec
import polars as pl
from msgspec import Struct, field

from deepprof.collectors.reprs import one_line, shorten_path
from deepprof.collectors.trace import WORK_ACTIVITIES, Accounting, Trace, empty_table
from deepprof.diagnosis.answer import RecordingAnswer, find_answer
from deepprof.diagnosis.coverage import UnnamedPart, find_unnamed
from deepprof.diagnosis.diagnosed_job import DiagnosedJob, WorkWithoutLoop
from deepprof.diagnosis.host_ranges import HostRanges, read_host_ranges
from deepprof.diagnosis.unexamined import explain_missing_lines, find_unexamined
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation, place_events
from deepprof.metrics.annotation.typical import box_typical
from deepprof.metrics.attribution import attribute_events
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.kernel_shapes import measure_shapes
from deepprof.metrics.contexts.measures import measure_contexts
from deepprof.metrics.contexts.per_iteration import measure_iterations, summarize_iterations
from deepprof.metrics.contexts.tree import ContextTree, build_tree
from deepprof.metrics.kernels.computed_work import find_matrix_unit_ratio
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import with_names
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.sharing.devices import SharedDevice
from deepprof.metrics.states import measure_state_changes, measure_states
from deepprof.metrics.top_tables import TopWork
from deepprof.plurals import counted
from deepprof.results.analysis_tables import (
    CONTEXTS_IN_ITERATIONS,
    CONTEXTS_IN_LOOPS,
    EVENTS,
    METRICS,
    PLACE,
    PLACED_BOXES,
    PLACED_CONTEXTS,
    PLACED_COPIES,
    PLACED_ITERATIONS,
    PLACED_KERNELS,
    PLACED_LAYERS,
    PLACED_SHAPES,
    PLACED_STAGE_TIMES,
    PLACED_STAGES,
    PLACED_STATE_CHANGES,
    PLACED_STATES,
    PLACED_WORK,
)


class Recording(Struct, frozen=True, kw_only=True):
    """What a report states about one rank's trace: its source, its record counts, the devices that it names.

    `on_cpu`: operators of the CPU take the place of kernels. `unexamined`: what could not be searched for, and why.
    `without_lines`: how functions are recorded, which findings could name, where none were. `host_ranges` is what the
    host's ranges show where no device has any work.
    """

    path: str
    format: str
    clock: Literal["unix", "session"]
    rank: int | None
    accounting: Accounting
    notes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # the names of models
    on_cpu: bool = False
    unexamined: tuple[str, ...] = ()
    without_lines: str | None = None
    host_ranges: HostRanges | None = None

    def __repr__(self) -> str:
        rank = "" if self.rank is None else f"rank {self.rank}"
        return one_line(self, shorten_path(self.path), self.format, rank, counted(self.accounting.kept, "record"))


def describe_recording(trace: Trace) -> Recording:
    """Return what a report states about `trace`."""
    return Recording(
        path=trace.path,
        format=trace.format,
        clock=trace.clock,
        rank=trace.rank,
        accounting=trace.accounting,
        notes=trace.notes,
        devices=tuple(name for name in trace.devices["name"].to_list() if name),
        on_cpu=is_stand_in(trace),
        unexamined=tuple(find_unexamined(trace)),
        without_lines=explain_missing_lines(trace),
        host_ranges=None if trace.device_events["activity"].is_in(WORK_ACTIVITIES).any() else read_host_ranges(trace),
    )


class AnswerBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in the first lines of the report.

    `kind` is what was recorded, `part` what the device does most of the time, `part_share` its share; `cause` is the
    rule of the largest avoidable loss, `share` and `confidence` its own. Null: there is none, or it is unknown.
    `text` has the lines, `summary` what was recorded and the loss without advice.
    """

    kind: str
    part: str | None
    part_share: float | None
    cause: str | None
    share: float | None
    confidence: float | None
    summary: str
    text: list[str]


class AnalysisResult(DiagnosedJob, frozen=True, kw_only=True, eq=False, dict=True):
    """What an analysis found, for renderers; `Analysis`, which describes the fields, adds the ways to write it."""

    traces: tuple[Trace, ...]
    recordings: tuple[Recording, ...]  # one per rank
    streams: pl.DataFrame  # PLACED_STREAMS
    no_loop_reason: str | None
    missing: tuple[str, ...] = ()
    timelines: Mapping[tuple[int, int], Timeline] = field(default_factory=dict)  # by rank and device
    work_of_recordings: tuple[pl.DataFrame, ...] = ()  # PLACED_WORK without loops, by rank
    sharing: tuple[SharedDevice, ...] = ()  # devices that several of the ranks have work on
    trees: Mapping[int, ContextTree] = field(default_factory=dict)  # of the ranks whose host recorded code
    annotated: Mapping[int, TraceAnnotation] = field(default_factory=dict)  # stages and layers, by rank
    recorded: Mapping[int, Trace] = field(default_factory=dict)  # before operators became kernels, if read with details

    def __repr__(self) -> str:
        head = self.headline
        counts = ((self.recordings, "rank"), (self.loops, "loop"), (self.findings, "finding"))
        return one_line(
            self, *(counted(len(each), noun) for each, noun in counts), f"headline {head.rule}" if head else ""
        )

    @cached_property
    def answer(self) -> RecordingAnswer:
        """What the recording is, what uses most of its time, and the largest loss that can be avoided."""
        return find_answer(self)

    @cached_property
    def unnamed(self) -> tuple[UnnamedPart, ...]:
        """The large parts of the loops' time that no finding names, with the reason."""
        return tuple(find_unnamed(self.loops, self.findings))

    @property
    def without_lines(self) -> str | None:
        """How the recorder records functions, which findings name with their lines, where some rank has none."""
        return next((each.without_lines for each in self.recordings if each.without_lines), None)

    @property
    def unexamined(self) -> tuple[str, ...]:
        """What could not be searched for in the loops of some rank, with the reason and how to record it."""
        told = (sentence for recording in self.recordings for sentence in recording.unexamined)
        return tuple(dict.fromkeys(told)) if self.loops else ()

    @cached_property
    def events(self) -> pl.DataFrame:
        """Device events of all ranks, with the schema `EVENTS`: the columns of `DEVICE_EVENTS`, `name` and `rank`."""
        named = ((trace, with_names(trace.device_events, trace.names)) for trace in self.traces)
        rows = (table.with_columns(rank=pl.lit(trace.rank or 0, pl.Int64)) for trace, table in named)
        placed = (
            table.hstack(place_events(self.annotated.get(trace.rank or 0), table.height))
            for trace, table in zip(self.traces, rows, strict=True)
        )
        return pl.concat([empty_table(EVENTS), *placed])

    @cached_property
    def events_in_iterations(self) -> pl.DataFrame:
        """The rows of `events`, with the `loop` and the `iteration` in which each starts; null outside of all.

        An iteration runs until the next one starts, or to its own end where none follows directly. It has the events of
        every stream of its device, waits (`sync`) among them, which `events` in the table of iterations does not count.
        """
        return attribute_events(self.events, self.iterations)

    @cached_property
    def context_trees(self) -> Mapping[int, ContextTree]:
        """The calling contexts of every rank, by its number."""
        numbers = {trace.rank or 0: trace for trace in self.traces}
        return {number: self.trees.get(number) or build_tree(trace) for number, trace in numbers.items()}

    @cached_property
    def contexts(self) -> pl.DataFrame:
        """Calling contexts of all ranks and what they needed: `rank`, and the columns of `CONTEXTS` and `MEASURES`."""
        trees = ((trace, self.context_trees[trace.rank or 0]) for trace in self.traces)
        tables = (
            (_numbered(trace), tree.contexts.hstack(measure_contexts(trace, tree, self._timelines_of(trace))))
            for trace, tree in trees
        )
        return _put_in_places(PLACED_CONTEXTS, tables)

    @cached_property
    def contexts_in_iterations(self) -> pl.DataFrame:
        """What contexts needed in every iteration of every loop: `loop`, `rank`, and the columns of `IN_ITERATIONS`."""
        traces = {trace.rank or 0: trace for trace in self.traces}
        known = ((number, loop, traces[loop.rank]) for number, loop in enumerate(self.loops if traces else ()))
        tables = (
            (
                {"loop": number, "rank": loop.rank},
                measure_iterations(trace, self.context_trees[loop.rank], loop, self._timelines_of(trace)),
            )
            for number, loop, trace in known
        )
        return _put_in_places(CONTEXTS_IN_ITERATIONS, tables)

    @cached_property
    def contexts_in_loops(self) -> pl.DataFrame:
        """What contexts take in a usual iteration of every loop: `loop`, `rank`, and the columns of `IN_LOOPS`."""
        taken = self.contexts_in_iterations.partition_by("loop", as_dict=True)
        tables = (
            ({"loop": number, "rank": loop.rank}, summarize_iterations(taken[number,], loop))
            for number, loop in enumerate(self.loops)
            if (number,) in taken
        )
        return _put_in_places(CONTEXTS_IN_LOOPS, tables)

    @cached_property
    def context_shapes(self) -> pl.DataFrame:
        """How the kernels of contexts were launched: `rank`, and the columns of `CONTEXT_SHAPES`; read with details."""
        trees = ((trace, self.context_trees[trace.rank or 0]) for trace in self.traces)
        return _put_in_places(PLACED_SHAPES, ((_numbered(trace), measure_shapes(trace, tree)) for trace, tree in trees))

    def find_trace(self, rank: int) -> Trace:
        """Return the trace of a rank; raises `LookupError` where the analysis has none of it."""
        found = next((trace for trace in self.traces if (trace.rank or 0) == rank), None)
        if found is None:
            raise LookupError(f"there is no trace of rank {rank}")
        return found

    def _timelines_of(self, trace: Trace) -> list[Timeline]:
        return [each for (rank, _), each in self.timelines.items() if rank == (trace.rank or 0)]

    @cached_property
    def stages(self) -> pl.DataFrame:
        """The stages of every loop's usual iterations: `loop`, rank, device, stream, and those of `STAGES_IN_LOOP`."""
        known = ((_located(k, loop), loop.anatomy) for k, loop in enumerate(self.loops))
        return _put_in_places(PLACED_STAGES, ((place, each.stages) for place, each in known if each is not None))

    @cached_property
    def stages_in_iterations(self) -> pl.DataFrame:
        """What each stage needed of every iteration of every loop: `loop`, `rank`, and the columns of `STAGE_TIMES`."""
        known = (({"loop": k, "rank": loop.rank}, loop.anatomy) for k, loop in enumerate(self.loops))
        tables = ((place, each.in_iterations) for place, each in known if each is not None)
        return _put_in_places(PLACED_STAGE_TIMES, tables)

    @cached_property
    def states(self) -> pl.DataFrame:
        """The states of every loop's mean iteration: `loop`, rank, device, stream, and the columns of `STATES`."""
        tables = ((_located(k, loop), measure_states(loop)) for k, loop in enumerate(self.loops))
        return _put_in_places(PLACED_STATES, tables)

    @cached_property
    def state_changes(self) -> pl.DataFrame:
        """Which states follow which in every loop: `loop`, `rank`, and the columns of `STATE_CHANGES`."""
        tables = (({"loop": k, "rank": loop.rank}, measure_state_changes(loop)) for k, loop in enumerate(self.loops))
        return _put_in_places(PLACED_STATE_CHANGES, tables)

    @cached_property
    def layers(self) -> pl.DataFrame:
        """The model's layers in every loop: `loop`, rank, device, stream, and the columns of `LAYER_TIMES`."""
        known = ((_located(k, loop), loop.anatomy) for k, loop in enumerate(self.loops))
        return _put_in_places(PLACED_LAYERS, ((place, each.layers) for place, each in known if each is not None))

    @cached_property
    def annotations(self) -> pl.DataFrame:
        """The typical iteration of every loop as boxes within boxes: `loop`, `rank`, and the columns of `BOXES`.

        First as the device ran it, then as the host did, where it recorded code. Box numbers are of one loop.
        """
        tables = (
            ({"loop": k, "rank": loop.rank}, box_typical(self.annotated[loop.rank], loop, timeline))
            for k, loop in enumerate(self.loops)
            if (timeline := self.timelines.get((loop.rank, loop.device))) is not None and loop.rank in self.annotated
        )
        return _put_in_places(PLACED_BOXES, tables)

    @cached_property
    def iterations(self) -> pl.DataFrame:
        """Iterations of all loops: `loop` (its number), rank, device, stream, and the columns of `Loop.table`."""
        tables = ((_located(number, loop), loop.table) for number, loop in enumerate(self.loops))
        return _put_in_places(PLACED_ITERATIONS, tables)

    @cached_property
    def top_work(self) -> tuple[tuple[Mapping[str, int | None], TopWork], ...]:
        """What uses the time of every loop, or device without one, with its place: `loop`, rank, device, stream."""
        loops = ((_located(k, loop), loop.top) for k, loop in enumerate(self.loops))
        known = [(place, top) for place, top in loops if top is not None]
        return (*known, *((_locate_stretch(each), each.top) for each in self.stretches))

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Which kernels use the time of a mean iteration: `loop`, rank, device, stream, and those of `TOP_KERNELS`.

        `loop` is null where a device has none: then the figures are those of one marked step, or of the recording.
        """
        return _put_in_places(PLACED_KERNELS, ((place, top.kernels) for place, top in self.top_work))

    @cached_property
    def copies(self) -> pl.DataFrame:
        """Which copies need that time: `loop`, rank, device, stream, and the columns of `TOP_COPIES`."""
        return _put_in_places(PLACED_COPIES, ((place, top.copies) for place, top in self.top_work))

    @cached_property
    def work(self) -> pl.DataFrame:
        """What devices compute, by category, precision and unit, with the schema `PLACED_WORK`.

        First of every loop, per iteration; then, with `loop` null, of the whole recording.
        """
        known = (
            ({"loop": k, "rank": loop.rank, "device": loop.device}, loop.work) for k, loop in enumerate(self.loops)
        )
        of_loops = _put_in_places(PLACED_WORK, ((place, each.table) for place, each in known if each is not None))
        return pl.concat([of_loops, *self.work_of_recordings])

    @property
    def matrix_unit_ratio(self) -> float | None:
        """The share of the products' time on matrix units in all recordings; None without products of known unit."""
        return find_matrix_unit_ratio(self.work.filter(pl.col("loop").is_null()))

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """Table III, one row per loop, with the schema `METRICS`."""
        rows = []
        for number, loop in enumerate(self.loops):
            figures = asdict(loop.metrics) | {"period": loop.period, "confidence": loop.confidence}
            median = loop.metrics.iteration_ns.median if loop.metrics.iteration_ns else None
            rows.append(_located(number, loop) | figures | {"median_iteration_ns": median})
        return pl.DataFrame([{key: row[key] for key in METRICS} for row in rows], schema=METRICS)


def _numbered(trace: Trace) -> dict[str, int | None]:
    """Return the column that identifies the rank of a row."""
    return {"rank": trace.rank or 0}


def _located(number: int, loop: Loop) -> dict[str, int | None]:
    return {"loop": number, "rank": loop.rank, "device": loop.device, "stream": loop.stream}


def _locate_stretch(stretch: WorkWithoutLoop) -> dict[str, int | None]:
    """Return the same columns for work without a loop."""
    return {"loop": None, "rank": stretch.rank, "device": stretch.device, "stream": stretch.stream}


def _put_in_places(schema: pl.Schema, tables: Iterable[tuple[Mapping[str, int | None], pl.DataFrame]]) -> pl.DataFrame:
    """Return the tables as one with `schema`, each with the columns of its place before its own."""
    placed = (
        table.select(*(pl.lit(value, PLACE[key]).alias(key) for key, value in place.items()), pl.all())
        for place, table in tables
    )
    return pl.concat([empty_table(schema), *placed])
