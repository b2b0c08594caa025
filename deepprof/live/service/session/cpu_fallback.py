"""The CPU fallback: records of a rank without a device, held until its end; operators then count as kernels.

It works as in metrics.operators. Whether a device is in use is known only at the end, so no iterations are given out
before; and a long recording is not kept completely. Then its iterations come from the analysis of the whole recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from deepprof.collectors.trace import ANNOTATIONS, Accounting, Trace, empty_table
from deepprof.metrics.operators import stand_in

__all__ = ["CpuFallback"]


@dataclass(slots=True)
class CpuFallback:
    """Host rows in the order of arrival; `over` once a device was seen, or there are more rows than `most`."""

    most: int
    host_events: list[pl.DataFrame] = field(default_factory=list)
    annotations: list[pl.DataFrame] = field(default_factory=list)
    rows: int = 0
    over: bool = False

    def take(self, host_events: pl.DataFrame | None, annotations: pl.DataFrame | None) -> None:
        """Keep rows."""
        if self.over:
            return
        for kept, rows in ((self.host_events, host_events), (self.annotations, annotations)):
            if rows is not None:
                kept.append(rows)
                self.rows += rows.height
        if self.rows > self.most:
            self.give_up()

    def give_up(self) -> None:
        """Remove all rows and keep no more: a device is in use, records are missing, or there are too many."""
        self.over, self.host_events, self.annotations = True, [], []

    def device_events(self, texts: Sequence[str]) -> Trace | None:
        """Return a trace whose device events are the operators, None where operators cannot replace kernels."""
        if self.over or not self.host_events:
            return None
        host = pl.concat(self.host_events).sort("start_ns", maintain_order=True)
        ranges = pl.concat([empty_table(ANNOTATIONS), *self.annotations]).sort("start_ns", maintain_order=True)
        read = host.height + ranges.height
        return stand_in(
            Trace(
                path="",
                format="",
                names=pl.Series("names", list(texts), dtype=pl.String),
                accounting=Accounting(read=read, kept=read),
                host_events=host,
                annotations=ranges,
            )
        )
