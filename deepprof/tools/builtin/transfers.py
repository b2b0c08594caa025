"""Copies that come again in every iteration, and what is copied there and back."""

from __future__ import annotations

import polars as pl

from deepprof.analysis import Analysis, Loop
from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.memory.transfers import (
    DIRECTIONS,
    REPEATED_TRANSFERS,
    ROUND_TRIPS,
    SMALL_NBYTES,
    find_repeated_transfers,
    find_round_trips,
    read_copies,
    sum_directions,
)
from deepprof.plurals import counted
from deepprof.render.units import format_bytes
from deepprof.tools.tool import Report, Tool

I64 = pl.Int64()
PLACE = {"rank": I64, "loop": I64}
FIRST = ("copy_kind", "nbytes", "candidate", "doubt", "operator", "line")  # columns that come first


class Transfers(Tool):
    """Find copies between host and device that come again in every iteration, and data copied there and back.

    What copies carry is not recorded. A candidate to keep on the device is a copy of one size, direction and line that
    comes in nearly each iteration and is not likely the batch; each row states what is doubtful.
    """

    def begin(self) -> None:
        """Begin with no copy."""
        self.directions, self.repeated, self.round_trips = map(_empty, (DIRECTIONS, REPEATED_TRANSFERS, ROUND_TRIPS))
        self.loops = 0

    def on_analysis(self, analysis: Analysis) -> None:
        """Measure each loop."""
        self.loops = len(analysis.loops)
        for number, loop in enumerate(analysis.loops if analysis.traces else ()):
            copies = read_copies(loop, analysis.find_trace(loop.rank), analysis.annotated.get(loop.rank))
            self.directions = _append(self.directions, sum_directions(loop, copies), number, loop)
            self.repeated = _append(self.repeated, find_repeated_transfers(loop, copies), number, loop)
            self.round_trips = _append(self.round_trips, find_round_trips(loop, copies), number, loop)

    def report(self) -> Report:
        """Return copies by direction, those that repeat, and round trips, each of usual iterations."""
        return {
            "summary": self._summarise(),
            "repeated": self.repeated.select(*FIRST, pl.exclude(*FIRST)),
            "round_trips": self.round_trips,
            "directions": self.directions,
        }

    def _summarise(self) -> str:
        if not self.loops:
            return "no iteration was found, so that nothing is known to come again"
        candidates = self.repeated.filter("candidate")
        size = format_bytes(int(candidates["nbytes"].sum()))
        again = counted(self.repeated.height, "copy", "copies")
        least = f"of at least {format_bytes(SMALL_NBYTES)}"
        kept = f"{counted(candidates.height, 'candidate')} to keep on the device ({size})"
        return f"{again} {least} in nearly every iteration, {kept}; what they carry is not recorded"


def _empty(schema: TableSchema) -> pl.DataFrame:
    """Return a table without rows, with the places of loops; the direction, an enumeration, is a text."""
    return pl.DataFrame(schema={**PLACE, **schema}).with_columns(pl.selectors.enum().cast(pl.String))


def _append(rows: pl.DataFrame, more: pl.DataFrame, number: int, loop: Loop) -> pl.DataFrame:
    place = {"rank": pl.lit(loop.rank, I64), "loop": pl.lit(number, I64)}
    return pl.concat([rows, more.with_columns(pl.selectors.enum().cast(pl.String), **place).select(rows.columns)])
