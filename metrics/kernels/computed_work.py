"""What a device computes: its computing time by category, precision and unit.

Where several kernels run at once, each has an equal part of that time, so that all rows add up to the time in which any
of them runs (`metrics.kernels.running`). Collectives have the time in which nothing computes, so that the rows add up
to `compute_ns` and `exposed_communication_ns` of the table of parts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.reprs import in_milliseconds, one_line
from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace, empty_table
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.kinds import KERNEL_KINDS, PRODUCTS
from deepprof.metrics.kernels.running import OUTSIDE, list_running
from deepprof.plurals import counted

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
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


class Work(Struct, frozen=True, eq=False):
    """What a device computes in a mean iteration, a marked step or a recording.

    `table` has the schema `WORK`, `kernels` has `WORK_OF_KERNELS` (no rows where another machine examined the trace).
    `graph_ns` is the time in launches of whole graphs, of which no kernel was recorded.
    """

    table: pl.DataFrame
    kernels: pl.DataFrame
    graph_ns: float = 0.0

    def __repr__(self) -> str:
        rows, names = counted(self.table.height, "row"), counted(self.kernels.height, "kernel")
        return one_line(self, rows, names, in_milliseconds(self.time_ns))

    def without_kernels(self) -> Work:
        """Return the same without the rows of kernels, of which there are as many as a trace has names."""
        return replace(self, kernels=empty_table(WORK_OF_KERNELS))

    @property
    def time_ns(self) -> float:
        """The time in which any kernel runs."""
        return float(self.table["time_ns"].sum())

    @property
    def matrix_unit_ratio(self) -> float | None:
        """The share of the products' time on matrix units; None without products of known unit."""
        return find_matrix_unit_ratio(self.table)


def find_matrix_unit_ratio(table: pl.DataFrame) -> float | None:
    """Return the share of the products' time on matrix units in a table `WORK`; None without products of known unit."""
    products = table.filter(pl.col("category").is_in(PRODUCTS) & pl.col("unit").is_not_null())
    whole = float(products["time_ns"].sum())
    on_matrix_units = products.filter(pl.col("unit") == "tensor_core")
    return float(on_matrix_units["time_ns"].sum()) / whole if whole > 0 else None


def round_parts(values: Floats, whole: float) -> list[int]:
    """Return the values as integers that add up to the rounded `whole`: the largest fractions are rounded up."""
    parts = np.floor(values).astype(np.int64)
    order = np.argsort(parts - values, kind="stable")
    parts[order[: max(0, round(whole) - int(parts.sum()))]] += 1
    return [int(part) for part in parts]


def measure_work(trace: Trace, kinds: KernelKinds, device: int, windows: tuple[Int64s, Int64s] | None = None) -> Work:
    """Return what the kernels of a device compute, means over the windows, in which they start or run on into them.

    `windows` are starts and ends, sorted and without overlap; None: all that was recorded, as one.
    """
    running = list_running_kinds(trace, kinds, device, windows)
    rows = _sum_by_kind(running, kinds, 1 if windows is None else max(1, len(windows[0])))
    share = (pl.col("time_ns") / (rows["time_ns"].sum() or 1.0)).alias("share_ratio")
    keys = list(KERNEL_KINDS)[:3]
    ordered = rows.with_columns(share).sort("time_ns", "kind", descending=[True, False])
    grouped = ordered.group_by(*keys, maintain_order=True).agg(
        pl.col("kernels", "time_ns").sum(),
        sure_ratio=pl.col("time_ns").filter("sure").sum() / pl.col("time_ns").sum(),
    )
    table = grouped.with_columns(share).sort("time_ns", *keys, descending=[True] + [False] * 3)
    graphs = float(ordered.filter(pl.col("kind") < 0)["time_ns"].sum())
    return Work(_as(table, WORK), _as(ordered, WORK_OF_KERNELS), graphs)


def _sum_by_kind(running: pl.DataFrame, kinds: KernelKinds, count: int) -> pl.DataFrame:
    """Return a row per row of the table of kinds that runs, with sums over `count` windows, and what it computes."""
    of_rows = running["kind"].to_numpy() + 1
    sums = {
        "kernels": (running["window"] != OUTSIDE).cast(F64),
        "time_ns": running["part_ns"],
        "collectives": running["collective"].cast(F64),
        "length_ns": running["ns"].cast(F64),
    }
    size = kinds.table.height + 1
    totals = {name: np.bincount(of_rows, weights=each.to_numpy(), minlength=size) for name, each in sums.items()}
    number = np.bincount(of_rows, minlength=size)
    rows = pl.DataFrame({"kind": np.arange(-1, size - 1), "number": number, **totals}).filter(pl.col("number") > 0)
    known = kinds.table.with_row_index("kind").cast({"kind": I64})
    named = rows.join(known, on="kind", how="left", maintain_order="left")
    return named.with_columns(
        pl.col("kernels", "time_ns") / count,
        *_fill_kinds(),
        mean_ns=pl.col("length_ns") / pl.col("number"),
    )


def _fill_kinds() -> list[pl.Expr]:
    """Return the kinds, `unknown` for launches of graphs, communication for what the table of parts takes for it."""
    collective = pl.col("collectives") > 0
    return [
        pl.when(collective)
        .then(pl.lit("communication"))
        .otherwise(pl.col("category").cast(TEXT).fill_null("unknown"))
        .cast(KERNEL_KINDS["category"])
        .alias("category"),
        pl.when(~collective).then(pl.col("precision")),
        pl.when(~collective).then(pl.col("unit")),
        pl.col("sure").fill_null(value=False),
    ]


def _as(rows: pl.DataFrame, schema: TableSchema) -> pl.DataFrame:
    return rows.with_columns(pl.col(F64).fill_nan(None)).select(schema.names()).cast(dict(schema))  # type: ignore[arg-type]


def list_running_kinds(
    trace: Trace, kinds: KernelKinds, device: int, windows: tuple[Int64s, Int64s] | None = None
) -> pl.DataFrame:
    """Return the kernels that run in one of the windows as `list_running` does, with `kind` as in `WORK_OF_KERNELS`."""
    running = list_running(trace, device, windows)
    return running.with_columns(kind=pl.Series(kinds.of_events[running["event"].to_numpy()], dtype=I64))


def list_kernels(
    trace: Trace, kinds: KernelKinds, device: int, windows: tuple[Int64s, Int64s] | None = None
) -> pl.DataFrame:
    """Return the kernels of a device that start in one of the windows, in the order of time.

    A row has the columns of `list_running`, and `kind` as in `WORK_OF_KERNELS`.
    """
    return list_running_kinds(trace, kinds, device, windows).filter(pl.col("window") != OUTSIDE)
