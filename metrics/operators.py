"""Operators of the CPU as kernels: which rows these are, by their names, and how they become device events.

`cpu_fallback` does it for a whole trace, the agent for a stream of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import DEVICE_EVENTS, Trace
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


def is_stand_in(trace: Trace) -> bool:
    """Return whether the trace's device events are CPU operators."""
    return any(note.startswith(NOTE) for note in trace.notes)


def mark_names(names: pl.Series) -> Marks:
    """Return for every name the sum of its marks."""
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
    """Return for every `process` and `thread` whether it `trains`, its `operators`, the time `spent` in them, `end_ns`.

    A thread trains if it runs backward passes; the end is that of its last operator.
    """
    trains = marked(marks, operators, BACKWARD).alias("trains")
    threads = operators.with_columns(trains).group_by("process", "thread", maintain_order=True)
    spent = (pl.col("end_ns") - pl.col("start_ns")).sum()
    return threads.agg(pl.col("trains").any(), pl.col("end_ns").max(), spent=spent, operators=pl.len())


def on_thread(rows: pl.DataFrame, place: Place) -> pl.DataFrame:
    """Return the rows of one process and thread."""
    return rows.filter(pl.col("process").eq_missing(place[0]), pl.col("thread").eq_missing(place[1]))


def foreign_ranges(host_events: pl.DataFrame, annotations: pl.DataFrame, marks: Marks) -> pl.DataFrame:
    """Return `process`, `thread`, `start_ns`, `end_ns` of the ranges in which a thread loaded data or compiled."""
    loading = (host_events["category"] == "dataloader") | marked(marks, host_events, FOREIGN)
    found = [host_events.filter(loading), annotations.filter(marked(marks, annotations, FOREIGN))]
    return pl.concat([rows.select(*PLACE, "start_ns", "end_ns") for rows in found]).drop_nulls("end_ns")


def untouched(operators: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the operators that are neither inside nor around any of the ranges of their thread.

    A backward pass that compiles is not compute.
    """
    spans = union(ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy())
    start, end = operators["start_ns"].to_numpy(), operators["end_ns"].to_numpy()
    shared: npt.NDArray[np.int64] = covered(spans, start, np.maximum(end, start + 1))  # gives an empty operator a place
    return operators.filter(pl.Series(shared == 0, dtype=pl.Boolean))


def describe(place: Place) -> str:
    """Return the note of a trace whose kernels are operators of that thread."""
    return f"{NOTE}{place[1]}"


class _MovedOperators(Struct, frozen=True, eq=False):
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
