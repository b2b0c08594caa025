"""Traces without a device: the CPU's operators stand for kernels, so that everything above can look at them.

PyTorch on a machine without a GPU computes inside its operators, one after the other on the training thread. Taken as
the kernels of one stream they repeat as kernels do, and what lies between them is the thread's own time. Nothing
stands in where a device was in use and only its events are missing: operators then last as long as a launch takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import DEVICE_EVENTS, OPERANDS, Trace
from deepprof.metrics.spans import Spans, covered, union
from deepprof.metrics.streams import COLLECTIVE_RANGE

__all__ = ["COMPILER_RANGE", "INPUT_RANGE", "is_stand_in", "stand_in", "stand_ins"]

NOTE = "no GPU kernel was recorded: the CPU operators of thread "
# PyTorch's dispatcher names operators namespace::name; Python wrappers and hand-written ranges of older recorders,
# which have the same category, are not. Compiled code is the exception: nothing inside it need be an operator.
OPERATOR = r"::|^## Call CompiledFxGraph"
ATEN = r"^aten::"  # every PyTorch program has some; other frameworks' functions of C++ have colons too
BACKWARD = r"^autograd::engine::evaluate_function"
INPUT_RANGE = r"^enumerate\(DataLoader\)#"
# What torch.compile writes around compiling, from the outside in. The operators that it traces there do not compute.
COMPILER_RANGE = r"^dynamo$|^entire_(?:frame|backward)_compile$|^backward_compile$|\(dynamo_timed\)$"
FEWEST = 12  # operators: three iterations, the fewest that make a loop, of a forward, a backward and a step or two


def stand_ins(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Return the ranks of one job, with stand-ins if not one of them recorded work of a device.

    Operators are not kernels: ranks that show the one are not comparable with ranks that show the other.
    """
    found = [stand_in(trace) for trace in traces]
    if any(trace.device_events.height for trace in traces):
        return tuple(traces)
    return tuple(made or trace for made, trace in zip(found, traces, strict=True))


def is_stand_in(trace: Trace) -> bool:
    """Return whether the trace's device events are CPU operators."""
    return any(note.startswith(NOTE) for note in trace.notes)


def stand_in(trace: Trace) -> Trace | None:
    """Return the trace with the training thread's outermost operators as kernels of device 0, or None.

    The stream is the thread's id. Ranges of collectives are collectives on the stream of their thread. Rows move: what
    is a kernel is no host event any more, so that the accounting still counts every record once. None where a device
    was in use, or too few operators ran.
    """
    if used_device(trace):
        return None
    operators = find_operators(trace)
    if not names_like(trace, operators, ATEN).any():
        return None
    main = training_thread(trace, outermost(operators))
    own = on_thread(operators, main)
    chosen = outermost(own.filter(~touched(own, foreign_spans(trace, main))))
    return move(trace, chosen, main) if chosen.height >= FEWEST else None


def used_device(trace: Trace) -> bool:
    """Return whether anything says that a device was, or could have been, in use.

    A GPU that is only listed counts: programs that use it and record the CPU alone are common.
    """
    return bool(
        trace.device_events.height
        or trace.devices.height
        or trace.accounting.dropped.get("other-device")
        or (trace.host_events["category"] == "runtime").any()
        or (trace.memory_events["device"] >= 0).any()
    )


def names_like(trace: Trace, rows: pl.DataFrame, pattern: str) -> pl.Series:
    """Return which rows have a name that contains `pattern`; names are looked at once each."""
    return trace.names.str.contains(pattern).fill_null(value=False).gather(rows["name_id"])


def find_operators(trace: Trace) -> pl.DataFrame:
    """Return the operators with their `row` in the host table, by thread and start, the outer of two first."""
    rows = trace.host_events.with_row_index("row").filter(pl.col("category") == "op", pl.col("end_ns").is_not_null())
    rows = rows.filter(names_like(trace, rows, OPERATOR))
    return rows.sort("process", "thread", "start_ns", "end_ns", "row", descending=[False, False, False, True, False])


def outermost(operators: pl.DataFrame) -> pl.DataFrame:
    """Return the operators that begin in no other one of their thread; sorted as `find_operators` sorts."""
    reach = pl.col("end_ns").cum_max().shift(1).over("process", "thread")
    return operators.filter((pl.col("start_ns") >= reach).fill_null(value=True))


def training_thread(trace: Trace, operators: pl.DataFrame) -> tuple[int | None, int | None]:
    """Return process and thread with the most operator time, among those that run backward passes if any does.

    A thread that prepares batches may compute more than the one that waits for them.
    """
    trains = names_like(trace, operators, BACKWARD).alias("trains")
    threads = operators.with_columns(trains).group_by("process", "thread", maintain_order=True)
    times = threads.agg(pl.col("trains").any(), spent=(pl.col("end_ns") - pl.col("start_ns")).sum())
    process, thread, *_ = times.sort("trains", "spent", descending=True, maintain_order=True).row(0)
    return process, thread


def on_thread(rows: pl.DataFrame, place: tuple[int | None, int | None]) -> pl.DataFrame:
    """Return the rows of one process and thread."""
    return rows.filter(pl.col("process").eq_missing(place[0]), pl.col("thread").eq_missing(place[1]))


def foreign_spans(trace: Trace, place: tuple[int | None, int | None]) -> Spans:
    """Return when the thread loaded data or compiled."""
    closed = [on_thread(rows, place).drop_nulls("end_ns") for rows in (trace.host_events, trace.annotations)]
    pattern = f"{INPUT_RANGE}|{COMPILER_RANGE}"
    found = [rows.filter(names_like(trace, rows, pattern)).select("start_ns", "end_ns") for rows in closed]
    found.append(closed[0].filter(pl.col("category") == "dataloader").select("start_ns", "end_ns"))
    spans = pl.concat(found)
    return union(spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy())


def touched(operators: pl.DataFrame, spans: Spans) -> pl.Series:
    """Return which operators lie in one of the spans, or around one: a backward pass that compiles is not compute."""
    start, end = operators["start_ns"].to_numpy(), operators["end_ns"].to_numpy()
    shared: npt.NDArray[np.int64] = covered(spans, start, np.maximum(end, start + 1))  # an empty operator has a place
    return pl.Series(shared > 0, dtype=pl.Boolean)


def move(trace: Trace, chosen: pl.DataFrame, main: tuple[int | None, int | None]) -> Trace:
    """Return the trace with the `chosen` host rows and all collectives as device events, and a note that says so."""
    stays = pl.int_range(pl.len(), dtype=pl.UInt32).is_in(chosen["row"].implode()).not_()
    remaining = trace.host_events.select(stays=stays)["stays"]
    ranges = trace.annotations
    waits = names_like(trace, ranges, COLLECTIVE_RANGE) & (ranges["side"] == "host") & ranges["end_ns"].is_not_null()
    rows = pl.concat([as_kernels(chosen), as_kernels(ranges.filter(waits))])
    return replace(
        trace,
        device_events=rows.sort("start_ns", maintain_order=True),
        annotations=ranges.filter(~waits),
        host_events=trace.host_events.filter(remaining),
        operands=renumber(trace.operands, remaining),
        notes=(*trace.notes, f"{NOTE}{main[1]} stand for kernels"),
    )


def as_kernels(rows: pl.DataFrame) -> pl.DataFrame:
    """Return host rows as kernels of device 0 on the stream of their thread."""
    given = {"device": pl.lit(0), "stream": pl.col("thread").fill_null(0), "activity": pl.lit("kernel")}
    taken = ("start_ns", "end_ns", "name_id", *({"external_id"} & set(rows.columns)))
    known = rows.select(*taken, **given)
    absent = [pl.lit(None).alias(column) for column in DEVICE_EVENTS if column not in known.columns]
    return known.with_columns(absent).select(list(DEVICE_EVENTS)).cast(dict(DEVICE_EVENTS))  # type: ignore[arg-type]


def renumber(operands: pl.DataFrame, remaining: pl.Series) -> pl.DataFrame:
    """Return the details of the host rows that remain, under their new row numbers."""
    places = remaining.cum_sum().cast(pl.Int64) - 1
    kept = operands.filter(remaining.gather(operands["event"]))
    return kept.with_columns(event=places.gather(kept["event"])).cast(dict(OPERANDS))  # type: ignore[arg-type]
