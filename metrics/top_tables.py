"""The tables of top kernels and copies, one row per name or kind, the one that takes most time first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from deepprof.collectors.reprs import in_milliseconds, one_line
from deepprof.plurals import counted

__all__ = ["TOP_COPIES", "TOP_KERNELS", "TopWork"]

# `name` is the short, usual name; `variants` counts the full names that it covers. `calls` and `time_ns` are per
# iteration (calls that overlap count once), `share_ratio` is of the mean iteration's time. `mean_ns` and `max_ns` are
# of a single call.
TOP_KERNELS = pl.Schema(
    {
        "name": pl.String(),
        "variants": pl.Int64(),
        "calls": pl.Float64(),
        "time_ns": pl.Int64(),
        "share_ratio": pl.Float64(),
        "mean_ns": pl.Int64(),
        "max_ns": pl.Int64(),
    }
)
# `direction` is one of `COPY_KINDS`, null if not recorded; `memory` is the kind of host memory that the copy reads
# or writes. `nbytes` is null if no copy has a size, and rounded up so that a copy in only some iterations does not read
# as none; the rate is that of a copy.
TOP_COPIES = pl.Schema(
    {
        "direction": pl.String(),
        "memory": pl.String(),  # pageable, pinned or managed; null: not recorded, or no host memory
        "calls": pl.Float64(),
        "nbytes": pl.Int64(),
        "time_ns": pl.Int64(),
        "share_ratio": pl.Float64(),
        "gigabytes_per_s": pl.Float64(),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class TopWork:
    """What takes the time of a mean iteration: tables `TOP_KERNELS` and `TOP_COPIES`.

    `over` is what the mean is over: `iterations` iterations, or one marked step or recording; `mean_ns` is how long
    these take on average.
    """

    over: Literal["iterations", "marked step", "recording"]
    iterations: int
    mean_ns: float
    kernels: pl.DataFrame
    copies: pl.DataFrame

    def __repr__(self) -> str:
        kernels, copies = (
            counted(self.kernels.height, "kernel"),
            counted(self.copies.height, "kind of copies", "kinds of copies"),
        )
        over = counted(self.iterations, "iteration") if self.over == "iterations" else f"one {self.over}"
        return one_line(self, over, f"mean {in_milliseconds(self.mean_ns)}", kernels, copies)
