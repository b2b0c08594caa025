"""A profile of XLA's profiler as loose columns, the same for both of its formats.

`planes` and `viewer` fill a `Profile`; `rules` classifies its events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from deepprof.collectors.importers.value_columns import NameTable, integers, texts

Int64s = npt.NDArray[np.int64]

# The named values of events that are read, the column that each becomes, and its type.
STATS: dict[str, tuple[str, Callable[[Sequence[Any]], pl.Series]]] = {
    "correlation_id": ("correlation", integers),
    "context_id": ("context", integers),  # "$$1"
    "cuda_graph_exec_id": ("graph", integers),
    "cuda_graph_node_id": ("graph_node", integers),
    "memcpy_details": ("copy_details", texts),
    "memset_details": ("set_details", texts),
    "Memset_details": ("set_details", texts),
    "memalloc_details": ("memory_details", texts),
    "MemFree_details": ("memory_details", texts),
    "MemoryResidency_details": ("memory_details", texts),
    "step_num": ("step", integers),
    "step_name": ("step_name", texts),
    "allocation_bytes": ("allocation", integers),
    "bytes_allocated": ("allocated", integers),
    "bytes_reserved": ("reserved", integers),
    "addr": ("address", integers),
    "allocator_name": ("allocator", texts),
}
# Which operation of which compiled program it is.
OPERATION_STATS: dict[str, tuple[str, Callable[[Sequence[Any]], pl.Series]]] = {
    "hlo_op": ("hlo_op", texts),
    "hlo_module": ("hlo_module", texts),
    "program_id": ("program", integers),
}
CONVERT = dict([*STATS.values(), *OPERATION_STATS.values()])
LINES = {"plane": pl.String(), "label": pl.String(), "thread": pl.Int64(), "process": pl.Int64()}
EVENTS = {
    "line": pl.UInt32(),
    "name_id": pl.UInt32(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "stack_id": pl.UInt32(),
    "instruction": pl.UInt32(),
    **{column: convert([]).dtype for column, convert in STATS.values()},
}


class Profile(Struct, eq=False):
    """Lines, which are rows of a timeline, and the events on them.

    `lines` has one (plane, label, thread, process) per line, by number. Each batch has some of the columns EVENTS, with
    `start_ns` and `end_ns` null if the file has no valid time. `read` counts every event in the file.
    """

    lines: list[tuple[str, str, int | None, int | None]] = field(default_factory=list)
    batches: list[pl.DataFrame] = field(default_factory=list)
    names: NameTable = field(default_factory=NameTable)
    read: int = 0

    def add_line(self, plane: str, label: str, thread: int | None, process: int | None) -> int:
        """Return the number of a new line."""
        self.lines.append((plane, label, thread, process))
        return len(self.lines) - 1

    def add(
        self, line: Sequence[int] | Int64s, names: Sequence[int], times: pl.DataFrame, stats: Mapping[str, list[Any]]
    ) -> None:
        """Add events: their lines, name ids, times (`start_ns`, `end_ns`) and, by column, stats with None for none."""
        columns = [pl.Series(column, CONVERT[column](values)) for column, values in stats.items()]
        place = [pl.Series("line", line, pl.UInt32), pl.Series("name_id", names, pl.UInt32)]
        self.batches.append(pl.DataFrame([*place, times["start_ns"], times["end_ns"], *columns]))

    def line_table(self) -> pl.DataFrame:
        """Return one row per line: `line` and LINES."""
        rows = pl.DataFrame(self.lines, schema=LINES, orient="row")
        return rows.with_row_index("line")

    def events(self) -> pl.DataFrame:
        """Return all events with all columns EVENTS, and drop the batches."""
        batches, self.batches = self.batches, []
        known = pl.DataFrame(schema={column: EVENTS[column] for column in ("line", "name_id", "start_ns", "end_ns")})
        rows = pl.concat([known, *batches], how="diagonal")
        del batches
        absent = [pl.lit(None, kind).alias(column) for column, kind in EVENTS.items() if column not in rows.columns]
        return rows.with_columns(absent)  # one stored value each, for any number of rows


def nanoseconds(base_ns: Int64s, offset_ps: Int64s, duration_ps: Int64s) -> pl.DataFrame:
    """Return `start_ns` and `end_ns` of events that begin `offset_ps` after `base_ns`.

    Both ends are rounded down, so that the order of two times is never reversed. Null for offsets beyond 53 days,
    for times beyond the year 2116, and for negative durations.
    """
    far = 2**62
    sound = (np.abs(base_ns) < far) & (np.abs(offset_ps) < far) & (duration_ps >= 0) & (duration_ps < far)
    with np.errstate(over="ignore"):
        start, end = (base_ns + ps // 1000 for ps in (offset_ps, offset_ps + duration_ps))
    times = pl.DataFrame({"start_ns": start, "end_ns": end, "sound": sound})
    return times.select(pl.when("sound").then(column).alias(column) for column in ("start_ns", "end_ns"))
