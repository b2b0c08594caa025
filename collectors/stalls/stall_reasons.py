"""Which share of the time of a kernel's warps has which reason, from metrics of Nsight Compute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.stalls.ncu_export import read_metrics

# Ways to measure the same, the best one first: cycles between two instructions, and samples of where warps are.
FAMILIES = (
    r"^smsp__average_warps?_issue_stalled_([a-z0-9_]{1,64}?)_per_issue_active(?:\.ratio)?$",
    r"^smsp__average_warp_latency_issue_stalled_([a-z0-9_]{1,64})(?:\.ratio)?$",
    r"^smsp__warps?_issue_stalled_([a-z0-9_]{1,64}?)_per_warp_active(?:\.avg|\.pct)?$",
    r"^smsp__pcsamp_warps?_issue_stalled_([a-z0-9_]{1,64})(?:\.[a-z]+)?$",
)
NOT_ISSUED = "_not_issued"  # the same once more, only over cycles in which nothing was issued
NOT_STALLED = ("selected", "not_selected")  # it issued, or could have but another warp did
COLLECT = "collect them: ncu --section WarpStateStats --section SourceCounters --csv --page raw"


@dataclass(frozen=True, slots=True, eq=False)
class StallExport:
    """The stall reasons in the export at `path`, of which `unreadable` values are no numbers.

    `table` has a row per `kernel` (its name there) and `reason`, with its `share_ratio` of all that the kernel's warps
    did: the shares of a kernel add up to 1.
    """

    path: Path
    table: pl.DataFrame
    unreadable: int


def read_stalls(path: Path) -> StallExport:
    """Return the stall reasons of the kernels in an export of Nsight Compute, their launches added up.

    Raises `TraceError` when the file cannot be read, is no such export, or has no such metric.
    """
    values = read_metrics(path, "|".join(FAMILIES))
    counted = values.drop_nulls("value")
    named = _name_reasons(counted)
    shares = _share(named)
    if shares.is_empty():
        raise TraceError(path, "has no stall reasons of any kernel (smsp__…_issue_stalled_…)", COLLECT)
    return StallExport(path, shares, values.height - counted.height)


def _name_reasons(values: pl.DataFrame) -> pl.DataFrame:
    """Return values with their `reason` and the number of their `family`; one of each launch, reason and family."""
    reasons = [pl.col("metric").str.extract(pattern, 1) for pattern in FAMILIES]
    family = pl.coalesce(pl.when(each.is_not_null()).then(pl.lit(number)) for number, each in enumerate(reasons))
    named = values.with_columns(reason=pl.coalesce(reasons), family=family).drop_nulls("reason")
    once = named.sort("metric").unique(["launch", "kernel", "reason", "family"], keep="first", maintain_order=True)
    return once.filter(~pl.col("reason").str.ends_with(NOT_ISSUED))


def _share(named: pl.DataFrame) -> pl.DataFrame:
    """Return the share of each reason of each kernel, by the first family that has anything of it."""
    added = named.group_by("kernel", "family", "reason").agg(pl.col("value").sum())
    whole = pl.col("value").sum()
    some = added.filter(whole.over("kernel", "family") > 0)
    best = some.filter(pl.col("family") == pl.col("family").min().over("kernel"))
    shares = best.select("kernel", "reason", share_ratio=pl.col("value") / whole.over("kernel"))
    return shares.sort("kernel", "reason")
