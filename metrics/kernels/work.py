"""What a device computes: its computing time by category, precision and unit.

Where several kernels run at once, each has an equal part of that time, so that all rows add up to the time in which any
of them runs. Collectives have the time in which nothing computes, as in the table of parts: all rows without
`communication` add up to its `compute_ns`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.reprs import in_milliseconds, one_line
from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.kinds import KERNEL_KINDS, PRODUCTS
from deepprof.metrics.names import are_named
from deepprof.metrics.spans import divide
from deepprof.metrics.streams import COLLECTIVE
from deepprof.plurals import counted

Int64s = npt.NDArray[np.int64]
F64, I64, TEXT = pl.Float64(), pl.Int64(), pl.String()

AMOUNTS = {
    "kernels": (F64, "kernels; in a loop per iteration"),
    "time_ns": (F64, "their part of the computing time; in a loop per iteration"),
    "share_ratio": (F64, "that time over that of all rows"),
}
WORK = TableSchema.of(
    "The kernels of one category, precision and unit; the row that takes most time first.",
    {
        **{name: (KERNEL_KINDS[name], KERNEL_KINDS.meanings[name]) for name in ("category", "precision", "unit")},
        **AMOUNTS,
        "sure_ratio": (F64, "the share of its time whose kind follows from names without doubt"),
    },
)
WORK_OF_KERNELS = TableSchema.of(
    "The kernels of one name, launched by one operator; the row that takes most time first.",
    {
        "kind": (I64, "its row in the table of kinds; -1: a launch of a whole graph"),
        "name": (TEXT, "the full name"),
        "operator": (TEXT, "the operator that launched it; null: not known"),
        **{name: (dtype, KERNEL_KINDS.meanings[name]) for name, dtype in KERNEL_KINDS.items()},
        **AMOUNTS,
        "mean_ns": (F64, "the mean length of one kernel"),
    },
)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What a device computes in a mean iteration, a marked step or a recording.

    `table` has the schema `WORK`, `kernels` has `WORK_OF_KERNELS`.
    """

    table: pl.DataFrame
    kernels: pl.DataFrame

    def __repr__(self) -> str:
        rows, names = counted(self.table.height, "row"), counted(self.kernels.height, "kernel")
        return one_line(self, rows, names, in_milliseconds(self.time_ns))

    @property
    def time_ns(self) -> float:
        """The time in which any kernel runs."""
        return float(self.table["time_ns"].sum())

    @property
    def matrix_unit_ratio(self) -> float | None:
        """The share of the products' time on matrix units; None without products of known unit."""
        products = self.table.filter(pl.col("category").is_in(PRODUCTS) & pl.col("unit").is_not_null())
        whole = float(products["time_ns"].sum())
        on_matrix_units = products.filter(pl.col("unit") == "tensor_core")
        return float(on_matrix_units["time_ns"].sum()) / whole if whole > 0 else None


def measure_work(trace: Trace, kinds: KernelKinds, device: int, windows: tuple[Int64s, Int64s] | None = None) -> Work:
    """Return what the kernels of a device compute, means over the windows in which they start.

    `windows` are starts and ends, sorted and without overlap; None: all that was recorded, as one.
    """
    events = list_kernels(trace, kinds, device, windows)
    count = 1 if windows is None else max(1, len(windows[0]))
    keys = list(KERNEL_KINDS)
    sums = events.group_by("kind").agg(
        kernels=pl.len() / count, time_ns=pl.col("part_ns").sum() / count, mean_ns=pl.col("ns").mean()
    )
    known = kinds.table.with_row_index("kind").cast({"kind": I64})
    rows = sums.join(known, on="kind", how="left").with_columns(
        pl.col("category").fill_null("unknown"), pl.col("sure").fill_null(value=False)
    )
    whole = rows["time_ns"].sum() or 1.0
    share = (pl.col("time_ns") / whole).alias("share_ratio")
    ordered = rows.with_columns(share).sort("time_ns", "kind", descending=[True, False])
    grouped = ordered.group_by(*keys[:3], maintain_order=True).agg(
        pl.col("kernels", "time_ns").sum(),
        sure_ratio=pl.col("time_ns").filter("sure").sum() / pl.col("time_ns").sum(),
    )
    table = grouped.with_columns(share).sort("time_ns", *keys[:3], descending=[True] + [False] * 3)
    return Work(_as(table, WORK), _as(ordered, WORK_OF_KERNELS))


def _as(rows: pl.DataFrame, schema: TableSchema) -> pl.DataFrame:
    """Return the columns of a schema, with its types."""
    return rows.with_columns(pl.col(F64).fill_nan(None)).select(schema.names()).cast(dict(schema))  # type: ignore[arg-type]


def list_kernels(
    trace: Trace, kinds: KernelKinds, device: int, windows: tuple[Int64s, Int64s] | None = None
) -> pl.DataFrame:
    """Return the kernels of a device that start in one of the windows, in the order of time.

    A row has `event` (the row of the device events), `window` (the number of it), `stream`, `start_ns`, `end_ns`,
    `name_id`, `kind` (as in `WORK_OF_KERNELS`), `ns` (its length) and `part_ns` (its part of the computing time).
    """
    events = trace.device_events.select("start_ns", "end_ns", "device", "stream", "activity", "name_id")
    events = events.with_columns(kind=pl.Series(kinds.of_events, dtype=I64)).with_row_index("event")
    rows = events.filter((pl.col("device") == device) & pl.col("activity").is_in(["kernel", "graph"]))
    begin, until = _span_all(rows) if windows is None else windows
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    window = np.searchsorted(begin, start, side="right") - 1
    inside = (window >= 0) & (start < np.append(until, 0)[window])
    rows = rows.with_columns(window=pl.Series(window, dtype=I64)).filter(pl.Series(inside, dtype=pl.Boolean))
    behind = are_named(trace.names, rows["name_id"], COLLECTIVE)
    parts = divide(start[inside], end[inside], behind=behind)
    return rows.select(pl.exclude("device", "activity"), ns=pl.col("end_ns") - pl.col("start_ns"), part_ns=parts)


def _span_all(rows: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return one window around all rows, none around nothing."""
    first, last = rows["start_ns"].min(), rows["start_ns"].max()
    known = [] if first is None or last is None else [(first, last)]
    return np.array([a for a, _ in known], np.int64), np.array([b for _, b in known], np.int64) + 1
