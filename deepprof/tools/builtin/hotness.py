"""Which sections of 2 MiB of memory are used all the time, and which in bursts (after PASTA's hotness).

By the accesses of kernels where a recording counted them (`deepprof accesses`), else by the lifetime of allocations.
"""

from __future__ import annotations

from typing import Annotated

import polars as pl
from msgspec import Meta

from deepprof.analysis import Analysis
from deepprof.metrics.memory.access_bands import ACCESSED_BANDS, HEATS, AccessBands, measure_access_bands
from deepprof.metrics.memory.address_bands import ADDRESS_BANDS, BAND_NBYTES, LIFETIMES, AddressBands, measure_bands
from deepprof.metrics.memory.device_memory import DeviceMemory, list_memory
from deepprof.plurals import counted
from deepprof.render.units import format_bytes
from deepprof.tools.tool import Report, Tool

I64 = pl.Int64()
CLASSES = pl.Schema(
    {
        "rank": I64,
        "device": pl.Int32(),
        "lifetime": pl.String(),
        "stretches": I64,
        "span_nbytes": I64,
        "held_nbytes": I64,
    }
)
OVER_TIME = pl.Schema(
    {"rank": I64, "device": pl.Int32(), "since_ns": I64, **{f"{kind}_nbytes": I64 for kind in LIFETIMES}}
)
BANDS = pl.Schema({"rank": I64, **ADDRESS_BANDS})
HOT_BANDS = pl.Schema({"rank": I64, **ACCESSED_BANDS})
HOT_WINDOWS = pl.Schema(
    {"rank": I64, "device": pl.Int32(), "window": I64, **{f"{kind}_accessed_nbytes": I64 for kind in HEATS}}
)
ADVICE = {
    "long-lived": "prefetch once and pin",
    "steady": "prefetch once and pin",
    "burst": "may be evicted in between",
}


class Hotness(Tool):
    """Show which sections of 2 MiB of memory are used for long and which in short bursts.

    A recording of `deepprof accesses` has counted what kernels access: steady is what is accessed in 80 % of the
    windows, a burst what is in no more than 20 %; a window is a number of kernels. Other traces do not state what
    kernels access, and lifetimes of allocations bound the use of memory from above: what is allocated only in bursts is
    used only in bursts. Long-lived is what is allocated for 80 % of the recording at a section, a burst what never is
    for more than 20 %, unless it was allocated once and is still there at the end."""

    windows: Annotated[int, Meta(ge=1, le=1000, description="stretches of time that are told apart")] = 10
    rows: Annotated[int, Meta(ge=0, description="stretches of memory in the table, 0 for all")] = 10

    def begin(self) -> None:
        """Begin with no memory."""
        self.classes, self.over_time = pl.DataFrame(schema=CLASSES), pl.DataFrame(schema=OVER_TIME)
        self.bands = pl.DataFrame(schema=BANDS)
        self.left_out = 0
        self.hot_bands, self.hot_windows = pl.DataFrame(schema=HOT_BANDS), pl.DataFrame(schema=HOT_WINDOWS)
        self.counted_kernels = self.unplaced_nbytes = 0

    def on_analysis(self, analysis: Analysis) -> None:
        """Measure counted accesses, or else each device that has memory events, and the host's memory."""
        counting = [trace for trace in analysis.traces if trace.accesses.height]
        for trace in counting:
            self.counted_kernels += trace.accesses["event"].n_unique()
            self._add_accesses(trace.rank or 0, measure_access_bands(trace, self.windows))
        if counting:
            return
        for rank, known in analysis.annotated.items():
            loops = [loop for loop in analysis.loops if loop.rank == rank]
            for memory in list_memory(known, loops):
                self._add(rank, memory)

    def _add(self, rank: int, memory: DeviceMemory) -> None:
        times = memory.known.trace.memory_events["time_ns"]
        if times.is_empty():
            return
        span = (int(times[0]), int(times[-1]))
        found = measure_bands(memory.blocks, span, self.windows)
        self.left_out += found.left_out
        bands = found.bands.with_columns(rank=pl.lit(rank, I64)).select(list(BANDS))
        self.bands = pl.concat([self.bands, bands])
        self.classes = pl.concat([self.classes, _count_classes(bands)])
        self.over_time = pl.concat([self.over_time, _sum_windows(found, rank)])

    def _add_accesses(self, rank: int, found: AccessBands) -> None:
        bands = found.bands.with_columns(rank=pl.lit(rank, I64)).select(list(HOT_BANDS))
        self.hot_bands = pl.concat([self.hot_bands, bands])
        self.hot_windows = pl.concat([self.hot_windows, _sum_hot_windows(found, rank)])
        self.unplaced_nbytes += found.unplaced_nbytes

    def report(self) -> Report:
        """Return what there is of every class, in all and over time, and the sections that are used most."""
        return self._report_accesses() if self.counted_kernels else self._report_lifetimes()

    def _report_accesses(self) -> Report:
        moved = pl.col("read_nbytes") + pl.col("write_nbytes")
        order = self.hot_bands.sort(moved, descending=True, maintain_order=True)
        rows = order.head(self.rows) if self.rows else order
        return {
            "summary": _summarise_accesses(self.hot_bands, self.counted_kernels, self.unplaced_nbytes),
            "unplaced_nbytes": self.unplaced_nbytes,
            "classes": _count_heats(self.hot_bands),
            "stretches": _write_addresses(rows, "heat"),
            "over_time": self.hot_windows,
        }

    def _report_lifetimes(self) -> Report:
        order = self.bands.sort("held_ratio", descending=True, maintain_order=True)
        return {
            "summary": _summarise(self.classes),
            "left_out_blocks": self.left_out,
            "classes": self.classes.with_columns(advice=_advise("lifetime")),
            "stretches": _write_addresses(order.head(self.rows) if self.rows else order, "lifetime"),
            "over_time": self.over_time,
        }


def _advise(kind: str) -> pl.Expr:
    """Return what to do with the memory of a class, of devices; null for the host's own."""
    advice = pl.col(kind).replace_strict(ADVICE, default=None, return_dtype=pl.String)
    return pl.when(pl.col("device") >= 0).then(advice)


def _count_classes(bands: pl.DataFrame) -> pl.DataFrame:
    """Return the sections of every class, and what they hold in the mean over the recording."""
    groups = bands.group_by("rank", "device", lifetime=pl.col("lifetime").cast(pl.String))
    held = (pl.col("held_ratio") * BAND_NBYTES).sum().round()
    sums = groups.agg(stretches=pl.len(), span_nbytes=pl.len().cast(I64) * BAND_NBYTES, held_nbytes=held)
    return sums.sort("device", "lifetime").select(list(CLASSES)).cast(dict(CLASSES))  # type: ignore[arg-type]


def _sum_windows(found: AddressBands, rank: int) -> pl.DataFrame:
    rows = found.windows.join(found.bands.select("device", "address", "lifetime"), on=["device", "address"])
    held = [pl.col("held_nbytes").filter(lifetime=kind).sum().alias(f"{kind}_nbytes") for kind in LIFETIMES]
    sums = rows.group_by("device", "window").agg(held).sort("device", "window")
    placed = sums.with_columns(rank=pl.lit(rank, I64), since_ns=pl.col("window") * found.window_ns)
    return placed.select(list(OVER_TIME)).cast(dict(OVER_TIME))  # type: ignore[arg-type]


def _write_addresses(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Return the rows with addresses as programs write them, first."""
    addresses = pl.Series("address", [hex(address) for address in rows["address"]], dtype=pl.String)
    return rows.with_columns(addresses, pl.col(kind).cast(pl.String)).select("address", pl.exclude("address"))


def _count_heats(bands: pl.DataFrame) -> pl.DataFrame:
    """Return the sections of every class by access, and what kernels read and write of them."""
    moved = (pl.col("read_nbytes") + pl.col("write_nbytes")).sum()
    groups = bands.group_by("rank", "device", heat=pl.col("heat").cast(pl.String))
    sums = groups.agg(stretches=pl.len().cast(I64), span_nbytes=pl.len().cast(I64) * BAND_NBYTES, accessed_nbytes=moved)
    return sums.sort("rank", "device", "heat").with_columns(advice=_advise("heat"))


def _sum_hot_windows(found: AccessBands, rank: int) -> pl.DataFrame:
    """Return what kernels read and write of the sections of every class in every window."""
    rows = found.windows.join(found.bands.select("device", "address", "heat"), on=["device", "address"])
    of_kind = [pl.col("accessed_nbytes").filter(heat=kind).sum().alias(f"{kind}_accessed_nbytes") for kind in HEATS]
    sums = rows.group_by("device", "window").agg(of_kind).sort("device", "window")
    return sums.with_columns(rank=pl.lit(rank, I64)).select(list(HOT_WINDOWS)).cast(dict(HOT_WINDOWS))  # type: ignore[arg-type]


def _summarise_accesses(bands: pl.DataFrame, kernels: int, unplaced_nbytes: int) -> str:
    many = dict(bands.group_by(pl.col("heat").cast(pl.String)).len().rows())
    parts = [f"{format_bytes(many[kind] * BAND_NBYTES)} {kind}" for kind in HEATS if kind in many]
    stretches = f"{counted(bands.height, 'stretch', 'stretches')} of 2 MiB"
    rest = f"; of {format_bytes(unplaced_nbytes)} it is not known where" if unplaced_nbytes else ""
    return f"by counted accesses of {counted(kernels, 'kernel')}: {stretches}: {', '.join(parts) or 'none'}{rest}"


def _summarise(classes: pl.DataFrame) -> str:
    if classes.is_empty():
        return "no memory events are recorded (torch.profiler: profile_memory=True)"
    sums = dict(classes.group_by("lifetime").agg(pl.col("span_nbytes").sum()).rows())
    parts = [f"{format_bytes(sums[kind])} {kind}" for kind in ("long-lived", "mixed", "burst") if kind in sums]
    many = counted(int(classes["stretches"].sum()), "stretch", "stretches")
    return f"by lifetime of allocations, not by access: {many} of 2 MiB: {', '.join(parts)}"
