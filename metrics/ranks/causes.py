"""Why one rank needs longer than others: which part of its iteration is longer, and which of its kernels are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.metrics.breakdown.parts import COPY_PARTS
from deepprof.metrics.loop import Loop

Kind = Literal["compute", "work", "input", "host", "copy", "unknown"]

PARTS: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {
        "compute": ("compute_ns",),
        "input": ("idle_input_ns",),
        "host": (
            *("idle_launch_ns", "idle_sync_ns", "idle_allocator_ns"),
            *("idle_host_ns", "idle_first_use_ns", "idle_blocked_ns"),
        ),
        "copy": (*COPY_PARTS.values(), "exposed_memset_ns"),
    }
)
EXPLAINED = 0.5  # of the delay: a part that grew by less is not the reason
MORE_KERNELS = 1.02  # times as many as the others run: this rank has other work, not slower work
EVEN = 0.5  # of the slowdown of all kernels: kernels with nine tenths of the time slow down by at least as much


class LateCause(Struct, frozen=True):
    """The kind of time that makes a rank late, and by how much it exceeds the other ranks' (ns per iteration)."""

    kind: Kind
    extra_ns: int


class SlowerKernels(Struct, frozen=True):
    """Kernels that two ranks have in common: `ratio` is the time of all on one over that on the other.

    `even`: nearly all are slower by about as much, as they are on a slower device; `name` is the kernel with
    most of the extra time.
    """

    ratio: float
    even: bool
    name: str


def find_cause(loop: Loop, others: Sequence[Loop], late_ns: float) -> LateCause:
    """Return which kind of time explains that a rank is late by `late_ns`; `unknown` where none does."""
    extra = {kind: _usual(loop, parts) - _typical(others, parts) for kind, parts in PARTS.items()}
    kind = max(extra, key=lambda each: extra[each])
    if late_ns <= 0 or extra[kind] < EXPLAINED * late_ns:
        return LateCause("unknown", 0)
    if kind == "compute" and _usual(loop, ("kernels",)) > MORE_KERNELS * _typical(others, ("kernels",)):
        return LateCause("work", round(extra[kind]))
    return LateCause(kind, round(extra[kind]))


def _usual(loop: Loop, columns: Sequence[str]) -> float:
    """Return the median over usual iterations of the sum of `columns`."""
    sums = loop.usual.select(pl.sum_horizontal(columns)).to_series()
    return float(np.median(sums.to_numpy())) if len(sums) else 0.0


def _typical(loops: Sequence[Loop], columns: Sequence[str]) -> float:
    """Return the median of `_usual` over several ranks."""
    return float(np.median([_usual(loop, columns) for loop in loops])) if loops else 0.0


def compare_kernels(kernels: pl.DataFrame, others: pl.DataFrame) -> SlowerKernels | None:
    """Return how much longer the kernels of one rank take than the same ones of another; None without common ones.

    Both have the schema `facts.KERNEL_TIMES`.
    """
    both = kernels.join(others, on="name", suffix="_other", maintain_order="left")
    both = both.filter(pl.col("mean_ns_other") > 0).with_columns(ratio=pl.col("mean_ns") / pl.col("mean_ns_other"))
    if both.is_empty():
        return None
    cost = (pl.col("mean_ns_other") * pl.col("count_other")).alias("cost")
    rows = both.with_columns(cost, extra=(pl.col("mean_ns") - pl.col("mean_ns_other")) * pl.col("count_other"))
    ratio = 1 + float(rows["extra"].sum()) / float(rows["cost"].sum())
    ordered = rows.sort("ratio", "name").with_columns(share=pl.col("cost").cum_sum() / pl.col("cost").sum())
    tenth = float(ordered.filter(pl.col("share") >= 0.1)["ratio"][0])
    most = rows.sort("extra", "name", descending=[True, False])["name"][0]
    return SlowerKernels(round(ratio, 4), tenth - 1 >= EVEN * (ratio - 1) > 0, str(most))
