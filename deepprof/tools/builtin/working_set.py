"""What the kernel that needs most memory needs (PASTA, Table V).

By its accesses where a recording counted them (`deepprof accesses`), else by the operands of its operator.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import polars as pl
from msgspec import Meta

from deepprof.analysis import Analysis
from deepprof.metrics.memory.access_footprints import (
    ACCESS_FOOTPRINTS,
    ACCESS_WORKING_SETS,
    measure_access_footprints,
    measure_access_working_sets,
)
from deepprof.metrics.memory.operand_footprints import (
    FOOTPRINTS,
    WORKING_SETS,
    measure_footprints,
    measure_working_sets,
)
from deepprof.plurals import counted
from deepprof.render.units import format_bytes
from deepprof.tools.tool import Report, Tool

# The columns of both tables that come first, and those that come last.
FIRST = ("rank", "device", "operator")
LAST = ("kernels", "operand_nbytes", "result_nbytes", "unknown_kernels", "dims", "dtypes", "kernel")


class WorkingSet(Tool):
    """Measure the operand footprint of every kernel, and the working set: the largest one.

    A recording of `deepprof accesses` has counted what kernels access: there it is the blocks that a kernel touches.
    The operand footprint is what the operands of the kernel's operator hold and what it writes: by recorded shapes, not
    by accesses. Without a device the operators that do the work count. Next to the working set is the footprint of
    the program: the most memory in use.
    """

    details: ClassVar[bool | None] = True

    rows: Annotated[int, Meta(ge=0, description="kernels in the table of footprints, 0 for all")] = 20

    def begin(self) -> None:
        """Begin with no kernel."""
        self.touched, self.touched_sets = (
            _rank(pl.DataFrame(schema=each), 0) for each in (ACCESS_FOOTPRINTS, ACCESS_WORKING_SETS)
        )
        self.footprints, self.sets = (_place(pl.DataFrame(schema=each), 0) for each in (FOOTPRINTS, WORKING_SETS))

    def on_analysis(self, analysis: Analysis) -> None:
        """Measure each rank."""
        for trace in analysis.traces:
            rank = trace.rank or 0
            if trace.accesses.height:
                self.touched = pl.concat([self.touched, _rank(measure_access_footprints(trace), rank)])
                self.touched_sets = pl.concat([self.touched_sets, _rank(measure_access_working_sets(trace), rank)])
                continue
            found = measure_footprints(trace, analysis.recorded.get(rank))
            self.footprints = pl.concat([self.footprints, _place(found, rank)])
            self.sets = pl.concat([self.sets, _place(measure_working_sets(found, trace), rank)])

    def report(self) -> Report:
        """Return the working set of every device, and the kernels with the largest footprints."""
        if self.touched_sets.height:
            order = self.touched.sort("touched_nbytes", descending=True, maintain_order=True)
            return {
                "summary": _summarise_accesses(self.touched_sets, int(self.touched["unplaced_nbytes"].sum())),
                "working_sets": self.touched_sets,
                "access_footprints": order.head(self.rows) if self.rows else order,
            }
        order = self.footprints.sort("footprint_nbytes", descending=True, nulls_last=True, maintain_order=True)
        return {
            "summary": _summarise(self.sets),
            "working_sets": self.sets,
            "operand_footprints": order.head(self.rows) if self.rows else order,
        }


def _place(rows: pl.DataFrame, rank: int) -> pl.DataFrame:
    """Return the rows of a rank, what identifies them first, and shapes on one line."""
    dims = pl.col("dims").str.replace_all(r"\s+", " ")
    ranked = rows.with_columns(dims, rank=pl.lit(rank, pl.Int64()))
    return ranked.select(*FIRST, pl.exclude(*FIRST, *LAST), *(name for name in LAST if name in rows.columns))


def _rank(rows: pl.DataFrame, rank: int) -> pl.DataFrame:
    return rows.select(pl.lit(rank, pl.Int64()).alias("rank"), pl.all())


def _summarise_accesses(sets: pl.DataFrame, unplaced_nbytes: int) -> str:
    """Return the result by counted accesses in a sentence, of the device with the largest working set."""
    row = sets.sort("working_set_nbytes", descending=True, maintain_order=True).row(0, named=True)
    whole = ""
    if row["footprint_nbytes"] is not None:
        whole = f", of {format_bytes(row['footprint_nbytes'])} taken from the driver at most"
    rest = f"; of {format_bytes(unplaced_nbytes)} it is not known where" if unplaced_nbytes else ""
    size, block = format_bytes(row["working_set_nbytes"]), format_bytes(row["block_nbytes"])
    return f"working set by counted accesses, in blocks of {block}: {size} ({row['kernel']}){whole}{rest}"


def _summarise(sets: pl.DataFrame) -> str:
    """Return the result in a sentence, of the device with the largest working set."""
    known = sets.drop_nulls("working_set_nbytes").sort("working_set_nbytes", descending=True, maintain_order=True)
    if known.is_empty():
        return (
            "no operand footprint is known: no shapes and types of operands are recorded "
            "(torch.profiler: record_shapes=True; a running job sends none)"
        )
    row = known.row(0, named=True)
    size, unknown = format_bytes(row["working_set_nbytes"]), row["unknown_kernels"]
    whole = ""
    if row["footprint_nbytes"] is not None:
        whole = f", of {format_bytes(row['footprint_nbytes'])} in use at most"
    rest = f"; of {counted(unknown, 'kernel')} it is not known" if unknown else ""
    return f"working set by operand footprint: {size} ({row['operator']}){whole}{rest}"
