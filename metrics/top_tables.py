"""The tables of top kernels and copies, one row per name or kind, the one that takes most time first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

__all__ = ["TOP_COPIES", "TOP_KERNELS", "TopWork"]

# `name` is short, as people say it; `variants` counts the full names that it stands for. `calls` and `time_ns` are per
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
# `direction` is one of `COPY_KINDS`, null where the recorder does not say; `memory` what kind of host memory it is from
# or to. `nbytes` is null where no copy has a size, rounded up so that a copy
# in some iterations only does not read as none; the rate is that of a copy.
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

    `over` says of what it is the mean: of `iterations` iterations, or of one marked step or recording; `mean_ns` is
    how long they take.
    """

    over: Literal["iterations", "marked step", "recording"]
    iterations: int
    mean_ns: float
    kernels: pl.DataFrame
    copies: pl.DataFrame
