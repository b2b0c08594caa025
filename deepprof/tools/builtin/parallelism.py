"""How the ranks of a job share the work, by their memory and what they exchange."""

from __future__ import annotations

from typing import Annotated

import polars as pl
from msgspec import Meta

from deepprof.analysis import Analysis
from deepprof.metrics.memory.parallelism import PARALLEL_RANKS, ParallelKind, find_parallel_kind
from deepprof.tools.tool import Report, Tool


class Parallelism(Tool):
    """Tell by what ranks exchange and by the shape of their memory how they share the work: data, tensor, pipeline.

    Memory alone does not distinguish data from tensor parallelism: both have equal ranks. With the peak of another run
    as a reference the ranks' peaks are compared with it (half of it is usual for two tensor-parallel ranks).
    """

    reference_peak_nbytes: Annotated[int, Meta(ge=1, description="peak of one rank of another run")] | None = None

    def begin(self) -> None:
        """Begin with no rank."""
        self.found = ParallelKind(None, 0.0, "no rank was analysed", pl.DataFrame(schema=PARALLEL_RANKS))

    def on_analysis(self, analysis: Analysis) -> None:
        """Compare the ranks."""
        self.found = find_parallel_kind(analysis.loops, analysis.traces, self.reference_peak_nbytes)

    def report(self) -> Report:
        """Return the kind, how sure it is, why, and the figures of every rank."""
        found = self.found
        return {
            "summary": f"{found.kind or 'not told'}: {found.reason}",
            "kind": found.kind,
            "confidence": found.confidence,
            "ranks": found.ranks,
        }
