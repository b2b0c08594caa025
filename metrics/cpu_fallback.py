"""CPU fallback for traces without a device: the operators count as kernels, so that all upper layers can use them.

PyTorch on a machine without a GPU computes inside its operators, one after the other on the training thread. Taken as
the kernels of one stream they repeat as kernels do, and what is between them is the thread's own time. There is no
fallback if a device was in use and only its events are missing: operators then last only as long as a launch takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.importers.silence import OF_GPU_JOB
from deepprof.collectors.trace import OPERANDS, Trace
from deepprof.metrics.operators import (
    ATEN,
    MIN_OPERATORS,
    WITHOUT_KERNELS,
    Marks,
    Place,
    describe,
    find_operators,
    foreign_ranges,
    mark_names,
    marked,
    move_rows,
    on_thread,
    outermost,
    thread_times,
    untouched,
)
from deepprof.metrics.selection.selected_trace import SelectedTrace


def stand_ins(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Return the ranks of one job, with the CPU fallback if none of them recorded work of a device.

    Operators are not kernels: ranks with operators are not comparable with ranks with kernels.
    """
    found = [stand_in(trace) for trace in traces]
    if any(trace.device_events.height for trace in traces):
        return tuple(traces)
    return tuple(made or trace for made, trace in zip(found, traces, strict=True))


def stand_in(trace: Trace) -> Trace | None:
    """Return the trace with the training thread's outermost operators as kernels of device 0, or None.

    The stream is the thread's id. Ranges of collectives are collectives on the stream of their thread. Rows move: a row
    that becomes a kernel is no host event any more, so that the accounting still counts every record once. None if a
    device was in use, or too few operators ran. Of a part of such a trace any are enough, on the thread of the whole.
    """
    if _used_device(trace):
        return None
    marks = mark_names(trace.names)
    operators = find_operators(trace.host_events, marks)
    if not marked(marks, operators, ATEN).any():
        return None
    thread = trace.thread if isinstance(trace, SelectedTrace) else None
    main = _training_thread(thread_times(outermost(operators), marks), thread)
    spans = on_thread(foreign_ranges(trace.host_events, trace.annotations, marks), main)
    chosen = outermost(untouched(on_thread(operators, main), spans))
    return _move(trace, chosen, marks, main) if chosen.height >= (MIN_OPERATORS if thread is None else 1) else None


def _used_device(trace: Trace) -> bool:
    """Return whether anything shows that a device was, or could have been, in use.

    A GPU that is only listed counts: programs that use a GPU but record only the CPU are common.
    """
    return bool(
        trace.device_events.height
        or trace.devices.height
        or trace.accounting.dropped.get("other-device")
        or (trace.host_events["category"] == "runtime").any()
        or (trace.memory_events["device"] >= 0).any()
        or trace.names.str.contains(OF_GPU_JOB).any()
    )


def _training_thread(times: pl.DataFrame, known: int | None = None) -> Place:
    """Return process and thread with the most operator time, among those that train if any does.

    A thread that prepares batches may compute more than the one that waits for them. The thread that is `known` goes
    before all others.
    """
    order = times.with_columns(known=pl.col("thread").fill_null(0).eq_missing(pl.lit(known, pl.Int64)))
    process, thread, *_ = order.sort("known", "trains", "spent", descending=True, maintain_order=True).row(0)
    return process, thread


def _move(trace: Trace, chosen: pl.DataFrame, marks: Marks, main: Place) -> Trace:
    """Return the trace with the `chosen` host rows and all collectives as device events, and a note on that."""
    moved = move_rows(trace.host_events, trace.annotations, chosen, marks)
    return replace(
        trace,
        device_events=moved.device_events,
        event_instructions=trace.event_instructions.clear(),  # of events that are replaced
        annotations=moved.annotations,
        host_events=moved.host_events,
        operands=_renumber(trace.operands, moved.remaining),
        notes=(*(note for note in trace.notes if not note.startswith(WITHOUT_KERNELS)), describe(main)),
    )


def _renumber(operands: pl.DataFrame, remaining: pl.Series) -> pl.DataFrame:
    """Return the details of the host rows that remain, under their new row numbers."""
    places = remaining.cum_sum().cast(pl.Int64) - 1
    kept = operands.filter(remaining.gather(operands["event"]))
    return kept.with_columns(event=places.gather(kept["event"])).cast(dict(OPERANDS))  # type: ignore[arg-type]
