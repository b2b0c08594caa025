"""The tables of top kernels and copies, one row per name or kind, the one that uses most time first."""

from __future__ import annotations

from typing import Literal

import polars as pl
from msgspec import Struct

from deepprof.collectors.reprs import in_milliseconds, one_line
from deepprof.collectors.table_schema import TableSchema
from deepprof.plurals import counted

I64, F64, TEXT = pl.Int64(), pl.Float64(), pl.String()

TOP_KERNELS = TableSchema.of(
    "The kernels of one short name that compute the same, means per iteration; those that take most time first.",
    {
        "name": (
            TEXT,
            "the short, usual name; in parentheses its function, or what else tells it apart",
        ),
        "variants": (I64, "how many full names it covers"),
        "calls": (F64, "calls per iteration"),
        "time_ns": (
            I64,
            "their part of the time in which kernels run, per iteration; equal parts where they overlap",
        ),
        "share_ratio": (F64, "that time over the mean iteration's"),
        "mean_ns": (I64, "the mean length of one call"),
        "max_ns": (I64, "the length of the longest call"),
    },
)
TOP_COPIES = TableSchema.of(
    "The copies of one direction and memory, means per iteration; those that take most time first.",
    {
        "direction": (TEXT, "HtoD, DtoH, DtoD, PtoP or HtoH; null: not recorded"),
        "memory": (TEXT, "of the host: pageable, pinned or managed; null: not recorded, or none"),
        "calls": (F64, "copies per iteration"),
        "nbytes": (I64, "what they copy per iteration, rounded up; null: no size recorded"),
        "time_ns": (I64, "time per iteration in which any of them runs"),
        "share_ratio": (F64, "that time over the mean iteration's"),
        "gigabytes_per_s": (F64, "10⁹ bytes per second of a single copy, on average"),
    },
)


class TopWork(Struct, frozen=True, eq=False):
    """What uses the time of a mean iteration: tables `TOP_KERNELS` and `TOP_COPIES`.

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
