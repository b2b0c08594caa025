"""What to prefetch, to pin and to let go of where a program uses managed memory, and at which level.

After PASTA's study of prefetching: while everything fits, whole objects are prefetched ahead and all kernels gain;
where a program needs more than the device has, whole objects push each other out, and only the tensors that the next
kernel needs should be prefetched. So the level follows from the factor: what is in use over what the device has.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.memory.address_bands import BAND_NBYTES
from deepprof.metrics.names import rows_named

I64, TEXT = pl.Int64(), pl.String()
ACTIONS = ("prefetch once", "prefetch before each call", "leave to migration", "pin", "evict first")
PREFETCHES = TableSchema.of(
    "One advice on managed memory.",
    {
        "action": (pl.Enum(ACTIONS), "what to do"),
        "operator": (TEXT, "whose operands; of stretches of memory, who allocated most of the first one"),
        "dims": (TEXT, "the shapes of its operands, as JSON; null for stretches of memory"),
        "calls": (I64, "kernels of that operator with these operands; null for stretches of memory"),
        "address": (
            pl.UInt64(),
            "where a stretch of memory begins; null for operands, whose addresses are not recorded",
        ),
        "nbytes": (I64, "how much"),
        "reason": (TEXT, "why"),
    },
)
MANAGED_CALL = r"(?:Malloc|MemAlloc)Managed|Mem(?:Prefetch|Advise)"  # of CUDA's and HIP's runtime and driver
MIGRATION = r"(?i)unified|managed"  # copies that the driver makes
NOT_MANAGED = "no managed memory: no call allocates or prefetches it, and no migration is recorded"


class PrefetchPlan(Struct, frozen=True, eq=False):
    """`level` is `object` or `tensor`, None where there is no plan; `reason` states why.

    `factor` is what is in use over what the device has, None where that is unknown; `rows` is a table `PREFETCHES`.
    """

    level: str | None
    factor: float | None
    reason: str
    rows: pl.DataFrame


def plan_prefetch(trace: Trace, device: int, footprints: pl.DataFrame, bands: pl.DataFrame) -> PrefetchPlan:
    """Return what to prefetch on a device, from the tables `FOOTPRINTS` and `ADDRESS_BANDS` of the trace.

    There is a plan only for a program that shows that it uses managed memory, and a device whose memory is known.
    """
    capacity, in_use = _find_capacity(trace, device), _find_use(trace, device)
    factor = None if not capacity or in_use is None else in_use / capacity
    nothing = pl.DataFrame(schema=PREFETCHES)
    if not _uses_managed_memory(trace):
        return PrefetchPlan(None, factor, NOT_MANAGED, nothing)
    if capacity is None or factor is None:
        missing = "how much memory the device has" if capacity is None else "how much memory is in use"
        return PrefetchPlan(None, None, f"{missing} is not recorded: whether objects fit is not known", nothing)
    own, runs = footprints.filter(device=device), _join_bands(bands.filter(device=device))
    if factor <= 1:
        reason = f"all that is in use fits ({factor:.2f} of the device's memory): whole objects can be prefetched ahead"
        return PrefetchPlan("object", factor, reason, _shape(_list_objects(runs)))
    reason = f"{factor:.2f} times the device's memory is in use: whole objects would push each other out"
    rows = pl.concat([_list_tensors(own, capacity), _list_runs(runs)], how="diagonal_relaxed")
    return PrefetchPlan("tensor", factor, reason, _shape(rows))


def _uses_managed_memory(trace: Trace) -> bool:
    """Return whether a call requests managed memory, or the driver migrates it."""
    calls = trace.host_events.filter(pl.col("category") == "runtime")
    copies = trace.device_events.filter(pl.col("activity") == "memcpy")
    return bool(
        rows_named(calls, trace.names, MANAGED_CALL).height or rows_named(copies, trace.names, MIGRATION).height
    )


def _find_capacity(trace: Trace, device: int) -> int | None:
    """Return the memory of a device, None where it is not recorded."""
    sizes = trace.devices.filter(pl.col("device") == device)["memory_nbytes"].drop_nulls()
    return int(sizes[0]) if len(sizes) and sizes[0] else None


def _find_use(trace: Trace, device: int) -> int | None:
    """Return the most memory in use on a device, None where the recording has no totals."""
    most = trace.memory_events.filter(pl.col("device") == device)["allocated_nbytes"].max()
    return None if most is None else int(str(most))


def _join_bands(bands: pl.DataFrame) -> pl.DataFrame:
    """Return `lifetime`, `address`, `nbytes` and `operator` of adjacent sections of 2 MiB of one class."""
    ordered = bands.sort("address")
    apart = pl.col("address") - pl.col("address").shift(1) != BAND_NBYTES
    other = pl.col("lifetime") != pl.col("lifetime").shift(1)
    run = (apart | other).fill_null(value=True).cum_sum()
    return ordered.group_by(run.alias("run"), maintain_order=True).agg(
        pl.col("lifetime", "address", "operator").first(), nbytes=pl.len().cast(I64) * BAND_NBYTES
    )


def _list_objects(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the advice on every section of memory where all fits: its lifetime decides when it is worth it."""
    long = pl.col("lifetime") != "burst"
    action = pl.when(long).then(pl.lit("prefetch once")).otherwise(pl.lit("leave to migration"))
    reason = pl.when(long).then(pl.lit("it is allocated for long")).otherwise(pl.lit("it is allocated only in bursts"))
    return runs.with_columns(action=action, reason=reason)


def _list_tensors(footprints: pl.DataFrame, capacity: int) -> pl.DataFrame:
    """Return the advice on the operands of every operator, the largest first."""
    rows = footprints.drop_nulls(["operator", "footprint_nbytes"]).group_by("operator", "dims", maintain_order=True)
    calls = rows.agg(pl.col("kernels").sum().alias("calls"), nbytes=pl.col("footprint_nbytes").max())
    fits = pl.col("nbytes") <= capacity
    return calls.with_columns(
        action=pl.when(fits).then(pl.lit("prefetch before each call")).otherwise(pl.lit("leave to migration")),
        reason=pl.when(fits)
        .then(pl.lit("its operand footprint fits, all objects together do not"))
        .otherwise(pl.lit("its operand footprint alone is more than the device has")),
    )


def _list_runs(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the advice on long-lived memory and bursts where not all fits."""
    long = pl.col("lifetime") == "long-lived"
    rows = runs.filter(pl.col("lifetime") != "mixed")
    return rows.with_columns(
        action=pl.when(long).then(pl.lit("pin")).otherwise(pl.lit("evict first")),
        reason=pl.when(long)
        .then(pl.lit("allocated for nearly all of the recording: pin as far as it leaves room for the working set"))
        .otherwise(pl.lit("allocated only in bursts: it can make room in between")),
    )


def _shape(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the columns of `PREFETCHES`; what they do not have is null."""
    absent = [pl.lit(None).alias(name) for name in PREFETCHES if name not in rows.columns]
    return rows.with_columns(absent).select(list(PREFETCHES)).cast(dict(PREFETCHES))  # type: ignore[arg-type]
