"""Which lines leave memory in use, iteration after iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import polars as pl
from msgspec import Meta

from deepprof.metrics.memory.leaks import GROWTH, list_growth
from deepprof.plurals import counted
from deepprof.render.units import format_bytes
from deepprof.tools.builtin.memory import PLACE, memories_of, put_in_place
from deepprof.tools.tool import Report, Tool

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

NO_ITERATIONS = "no iteration was found, so that nothing is known to be left by each"


class Leaks(Tool):
    """List the lines whose allocations iterations do not release: those of nearly all iterations first.

    `is_steady` lines leave something in at least nine of ten of six or more iterations; the others fill a cache, or
    hold the last few of something. What the last two iterations leave is not counted.
    """

    details: ClassVar[bool | None] = True

    rows: Annotated[int, Meta(ge=0, description="lines in the table, 0 for all")] = 20

    def begin(self) -> None:
        """Begin with no line."""
        self.lines = pl.DataFrame(schema={**PLACE, **GROWTH})
        self.has_iterations = False

    def on_analysis(self, analysis: Analysis) -> None:
        """Look for lines on every device."""
        found = (put_in_place(list_growth(memory), rank, memory.device) for rank, memory in memories_of(analysis))
        self.lines = pl.concat([self.lines, *found])
        self.has_iterations = bool(analysis.loops)

    def report(self) -> Report:
        """Return the lines, and what the steady ones leave per iteration."""
        steady = self.lines.filter("is_steady")
        left = float(steady["nbytes"].sum())
        said = "no line leaves memory in nearly all iterations" if self.has_iterations else NO_ITERATIONS
        if steady.height:
            said = f"{format_bytes(left)} of each iteration are never released, from {counted(steady.height, 'line')}"
        return {
            "summary": said,
            "nbytes_per_iteration": left,
            "lines": self.lines.head(self.rows) if self.rows else self.lines,
        }
