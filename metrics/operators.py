"""CPU fallback for traces without a device: the operators count as kernels, so that all upper layers can use them.

PyTorch on a machine without a GPU computes inside its operators, one after the other on the training thread. Taken as
the kernels of one stream they repeat as kernels do, and what lies between them is the thread's own time. There is no
fallback if a device was in use and only its events are missing: operators then last only as long as a launch takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.importers.silence import OF_GPU_JOB
from deepprof.collectors.trace import DEVICE_EVENTS, OPERANDS, Trace
from deepprof.metrics.selection.selected_trace import SelectedTrace
from deepprof.metrics.spans import covered, union
from deepprof.metrics.streams import COLLECTIVE_RANGE

NOTE = "recorded on the CPU only: iterations are counted in operators of thread "
WITHOUT_KERNELS = "holds no kernel"  # how importers begin the note that this one replaces
INPUT_RANGE = r"^enumerate\(DataLoader\)#"
# Ranges of torch.compile around compiling, from the outside in. The operators that it traces there do not compute.
COMPILER_RANGE = r"^dynamo$|^entire_(?:frame|backward)_compile$|^backward_compile$|\(dynamo_timed\)$"
# Properties of a name, as marks that add up.
OPERATOR, ATEN, BACKWARD, FOREIGN, WAITING = 1, 2, 4, 8, 16
PATTERNS: Mapping[int, str] = MappingProxyType(
    {
        # PyTorch's dispatcher names operators namespace::name; Python wrappers and hand-written ranges of older
        # recorders, which have the same category, are not named so. Compiled code is the exception: it need not contain
        # an operator.
        OPERATOR: r"::|^## Call CompiledFxGraph",
        ATEN: r"^aten::",  # every PyTorch program has some; C++ functions of other frameworks have colons too
        BACKWARD: r"^autograd::engine::evaluate_function",
        FOREIGN: f"{INPUT_RANGE}|{COMPILER_RANGE}",
        WAITING: COLLECTIVE_RANGE,
    }
)
MIN_OPERATORS = (
    12  # operators: three iterations, the fewest that make a loop, of a forward, a backward and an update or two
)
PLACE = ("process", "thread")
Place = tuple[int | None, int | None]
"""Process and thread."""
Marks = npt.NDArray[np.uint8]
"""The marks of each name, by its id."""


def stand_ins(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Return the ranks of one job, with the CPU fallback if none of them recorded work of a device.

    Operators are not kernels: ranks with operators are not comparable with ranks with kernels.
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


def mark_names(names: pl.Series) -> Marks:
    """Return for each name the sum of its marks."""
    found = np.zeros(len(names), np.uint8)
    for mark, pattern in PATTERNS.items():
        found |= names.str.contains(pattern).fill_null(value=False).to_numpy().astype(np.uint8) * np.uint8(mark)
    return found


def marked(marks: Marks, rows: pl.DataFrame, mark: int) -> pl.Series:
    """Return which rows have a name with `mark`."""
    return pl.Series("marked", (marks[rows["name_id"].to_numpy()] & mark) != 0, dtype=pl.Boolean)


def find_operators(host_events: pl.DataFrame, marks: Marks) -> pl.DataFrame:
    """Return the operators with their `row` in the host table, sorted by thread and start, outer before inner."""
    rows = host_events.with_row_index("row").filter(pl.col("category") == "op", pl.col("end_ns").is_not_null())
    rows = rows.filter(marked(marks, rows, OPERATOR))
    return rows.sort("process", "thread", "start_ns", "end_ns", "row", descending=[False, False, False, True, False])


def outermost(operators: pl.DataFrame, reach_ns: int | None = None) -> pl.DataFrame:
    """Return the operators that begin inside no other one of their thread; sorted as `find_operators` sorts.

    `reach_ns` is the end of earlier operators that are not in the table.
    """
    reach = pl.max_horizontal(pl.col("end_ns").cum_max().shift(1).over("process", "thread"), pl.lit(reach_ns, pl.Int64))
    return operators.filter((pl.col("start_ns") >= reach).fill_null(value=True))


def thread_times(operators: pl.DataFrame, marks: Marks) -> pl.DataFrame:
    """Return for each `process` and `thread` whether it `trains`, its `operators`, the time `spent` in them, `end_ns`.

    A thread trains if it runs backward passes; the end is that of its last operator.
    """
    trains = marked(marks, operators, BACKWARD).alias("trains")
    threads = operators.with_columns(trains).group_by("process", "thread", maintain_order=True)
    spent = (pl.col("end_ns") - pl.col("start_ns")).sum()
    return threads.agg(pl.col("trains").any(), pl.col("end_ns").max(), spent=spent, operators=pl.len())


def _training_thread(times: pl.DataFrame, known: int | None = None) -> Place:
    """Return process and thread with the most operator time, among those that train if any does.

    A thread that prepares batches may compute more than the one that waits for them. The thread that is `known` goes
    before all others.
    """
    order = times.with_columns(known=pl.col("thread").fill_null(0).eq_missing(pl.lit(known, pl.Int64)))
    process, thread, *_ = order.sort("known", "trains", "spent", descending=True, maintain_order=True).row(0)
    return process, thread


def on_thread(rows: pl.DataFrame, place: Place) -> pl.DataFrame:
    """Return the rows of one process and thread."""
    return rows.filter(pl.col("process").eq_missing(place[0]), pl.col("thread").eq_missing(place[1]))


def foreign_ranges(host_events: pl.DataFrame, annotations: pl.DataFrame, marks: Marks) -> pl.DataFrame:
    """Return `process`, `thread`, `start_ns`, `end_ns` of the ranges in which a thread loaded data or compiled."""
    loading = (host_events["category"] == "dataloader") | marked(marks, host_events, FOREIGN)
    found = [host_events.filter(loading), annotations.filter(marked(marks, annotations, FOREIGN))]
    return pl.concat([rows.select(*PLACE, "start_ns", "end_ns") for rows in found]).drop_nulls("end_ns")


def untouched(operators: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the operators that lie neither inside nor around any of the ranges of their thread.

    A backward pass that compiles is not compute.
    """
    spans = union(ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy())
    start, end = operators["start_ns"].to_numpy(), operators["end_ns"].to_numpy()
    shared: npt.NDArray[np.int64] = covered(spans, start, np.maximum(end, start + 1))  # gives an empty operator a place
    return operators.filter(pl.Series(shared == 0, dtype=pl.Boolean))


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


def describe(place: Place) -> str:
    """Return the note of a trace whose kernels are operators of that thread."""
    return f"{NOTE}{place[1]}"


@dataclass(frozen=True, slots=True, eq=False)
class _MovedOperators:
    """Rows of a trace after some have become device events; `remaining` marks the host rows that have not."""

    device_events: pl.DataFrame
    host_events: pl.DataFrame
    annotations: pl.DataFrame
    remaining: pl.Series


def move_rows(
    host_events: pl.DataFrame, annotations: pl.DataFrame, chosen: pl.DataFrame, marks: Marks
) -> _MovedOperators:
    """Return the rows with the `chosen` ones of the host, by their `row`, and all collectives as device events."""
    stays = np.ones(host_events.height, np.bool_)
    stays[chosen["row"].to_numpy()] = False
    waits = marked(marks, annotations, WAITING) & (annotations["side"] == "host") & annotations["end_ns"].is_not_null()
    rows = pl.concat([_as_kernels(chosen), _as_kernels(annotations.filter(waits))])
    remaining = pl.Series("stays", stays, dtype=pl.Boolean)
    return _MovedOperators(
        rows.sort("start_ns", maintain_order=True),
        host_events.filter(remaining),
        annotations.filter(~waits),
        remaining,
    )


def _as_kernels(rows: pl.DataFrame) -> pl.DataFrame:
    """Return host rows as kernels of device 0 on the stream of their thread."""
    given = {"device": pl.lit(0), "stream": pl.col("thread").fill_null(0), "activity": pl.lit("kernel")}
    taken = ("start_ns", "end_ns", "name_id", *({"external_id"} & set(rows.columns)))
    known = rows.select(*taken, **given)
    absent = [pl.lit(None).alias(column) for column in DEVICE_EVENTS if column not in known.columns]
    return known.with_columns(absent).select(list(DEVICE_EVENTS)).cast(dict(DEVICE_EVENTS))  # type: ignore[arg-type]


def _renumber(operands: pl.DataFrame, remaining: pl.Series) -> pl.DataFrame:
    """Return the details of the host rows that remain, under their new row numbers."""
    places = remaining.cum_sum().cast(pl.Int64) - 1
    kept = operands.filter(remaining.gather(operands["event"]))
    return kept.with_columns(event=places.gather(kept["event"])).cast(dict(OPERANDS))  # type: ignore[arg-type]
