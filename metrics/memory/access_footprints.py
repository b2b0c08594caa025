"""What each kernel touches of memory, as counted, and the working set, the most that one touches (PASTA, Table V).

Counted are blocks, so that a kernel that touches a byte of a block touches the whole block: smaller blocks make a
recording more precise. `operand_footprints` has the same by the shapes of operands, which needs no such recording.
"""

from __future__ import annotations

import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.memory.access_bands import read_accesses
from deepprof.metrics.memory.use import read_use

I64, TEXT, RATIO = pl.Int64(), pl.String(), pl.Float64()
ACCESS_FOOTPRINTS = TableSchema.of(
    "Kernels of one name whose accesses were counted.",
    {
        "device": (pl.UInt16(), "the number of the device"),
        "kernel": (TEXT, "the name of the kernel"),
        "kernels": (I64, "launches that were counted"),
        "touched_nbytes": (I64, "the blocks that one launch touches, at most"),
        "mean_nbytes": (RATIO, "the mean over launches"),
        "read_nbytes": (I64, "what all launches read, each byte as often as it is read"),
        "write_nbytes": (I64, "what they write"),
        "unplaced_nbytes": (I64, "of these, in blocks for which the recording had no room"),
    },
)
ACCESS_WORKING_SETS = TableSchema.of(
    "What the kernels of one device touch as counted, and its working set: the most that one of them touches.",
    {
        "device": (pl.UInt16(), "the number of the device"),
        "kernels": (I64, "launches that were counted"),
        "working_set_nbytes": (I64, "the blocks that one launch touches, at most"),
        "mean_nbytes": (RATIO, "the mean over launches"),
        "median_nbytes": (I64, "the median over launches"),
        "p90_nbytes": (I64, "what nine of ten launches do not exceed"),
        "block_nbytes": (I64, "the size of a block; a touched one counts whole"),
        "footprint_nbytes": (I64, "the most memory taken from the driver; null: not recorded"),
        "footprint_ratio": (RATIO, "that over the working set"),
        "kernel": (TEXT, "the kernel with the largest one"),
    },
)


def measure_access_footprints(trace: Trace) -> pl.DataFrame:
    """Return what kernels touch, the most first, with the schema `ACCESS_FOOTPRINTS`."""
    groups = _sum_launches(trace).group_by("device", "kernel", maintain_order=True)
    sums = groups.agg(
        pl.len().alias("kernels"),
        pl.col("touched_nbytes").max(),
        pl.col("touched_nbytes").mean().alias("mean_nbytes"),
        pl.col("read_nbytes", "write_nbytes", "unplaced_nbytes").sum(),
    )
    order = sums.sort("touched_nbytes", "kernels", "kernel", descending=[True, True, False], maintain_order=True)
    return order.select(list(ACCESS_FOOTPRINTS)).cast(dict(ACCESS_FOOTPRINTS))  # type: ignore[arg-type]


def measure_access_working_sets(trace: Trace) -> pl.DataFrame:
    """Return the working set of every device, with the schema `ACCESS_WORKING_SETS`."""
    launches = _sum_launches(trace).sort("touched_nbytes", descending=True, maintain_order=True)
    touched = pl.col("touched_nbytes")
    sets = launches.group_by("device").agg(
        pl.len().alias("kernels"),
        touched.max().alias("working_set_nbytes"),
        touched.mean().alias("mean_nbytes"),
        _find_quantile(5).alias("median_nbytes"),
        _find_quantile(9).alias("p90_nbytes"),
        pl.col("kernel").first(),
    )
    block = read_accesses(trace)["nbytes"].max()
    peaks = pl.Series([_find_peak(trace, device) for device in sets["device"]], dtype=I64)
    known = sets.with_columns(footprint_nbytes=peaks, block_nbytes=pl.lit(block, I64)).sort("device")
    ratio = pl.when(pl.col("working_set_nbytes") > 0).then(pl.col("footprint_nbytes") / pl.col("working_set_nbytes"))
    rows = known.with_columns(footprint_ratio=ratio).select(list(ACCESS_WORKING_SETS))
    return rows.cast(dict(ACCESS_WORKING_SETS))  # type: ignore[arg-type]


def _sum_launches(trace: Trace) -> pl.DataFrame:
    """Return each kernel with what it touches, reads and writes; one without a row in `accesses` touches nothing."""
    events = trace.device_events.select("device", "name_id", "activity").with_row_index("event")
    named = events.with_columns(kernel=trace.names.gather(events["name_id"]).cast(TEXT))
    unplaced = pl.col("address").is_null()
    counts = (
        read_accesses(trace)
        .group_by("event")
        .agg(
            touched_nbytes=pl.col("nbytes").filter(~unplaced).sum(),
            read_nbytes=pl.col("read_nbytes").sum(),
            write_nbytes=pl.col("write_nbytes").sum(),
            unplaced_nbytes=(pl.col("read_nbytes") + pl.col("write_nbytes")).filter(unplaced).sum(),
        )
    )
    kernels = named.filter(pl.col("activity") == "kernel")
    joined = kernels.join(counts, on="event", how="left", maintain_order="left")
    return joined.with_columns(pl.col("^.*_nbytes$").fill_null(0).cast(I64))


def _find_quantile(tenths: int) -> pl.Expr:
    """Return the least size that this many tenths of the launches do not exceed."""
    place = (pl.len().cast(I64) * tenths + 9) // 10 - 1
    return pl.col("touched_nbytes").sort().get(place)


def _find_peak(trace: Trace, device: int) -> int | None:
    """Return the most memory in use on a device, None where the recording has no totals."""
    use = read_use(trace.memory_events, device)
    return None if use is None or not use.absolute else int(use.allocated_nbytes.max())
