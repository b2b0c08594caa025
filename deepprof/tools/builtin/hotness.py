"""Which stretches of 2 MiB of memory hold something all the time, and which in bursts (after PASTA's hotness)."""

from __future__ import annotations

from typing import Annotated

import polars as pl
from msgspec import Meta

from deepprof.analysis import Analysis
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
ADVICE = {
    "long-lived": "prefetch once and pin",
    "burst": "may be evicted in between",
}


class Hotness(Tool):
    """Show which stretches of 2 MiB of memory are long-lived and which are short bursts, by lifetime of allocations.

    A trace does not say what kernels access, so this bounds the use of memory from above: what is allocated only in
    bursts is used only in bursts. Long-lived is what is allocated for 80 % of the recording at a stretch, a burst what
    never is for more than 20 %, unless it was allocated once and is still there at the end.
    """

    windows: Annotated[int, Meta(ge=1, le=1000, description="stretches of time that are told apart")] = 10
    rows: Annotated[int, Meta(ge=0, description="stretches of memory in the table, 0 for all")] = 10

    def begin(self) -> None:
        """Begin with no memory."""
        self.classes, self.over_time = pl.DataFrame(schema=CLASSES), pl.DataFrame(schema=OVER_TIME)
        self.bands = pl.DataFrame(schema=BANDS)
        self.left_out = 0

    def on_analysis(self, analysis: Analysis) -> None:
        """Measure each device that has memory events, and the host's memory."""
        for rank, known in analysis.annotated.items():
            loops = [loop for loop in analysis.loops if loop.rank == rank]
            for memory in list_memory(known, loops):
                self._add(rank, memory)

    def _add(self, rank: int, memory: DeviceMemory) -> None:
        """Add the memory of one device, of which there may be no event."""
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

    def report(self) -> Report:
        """Return what there is of each class, in all and over time, and the stretches that hold most."""
        order = self.bands.sort("held_ratio", descending=True, maintain_order=True)
        return {
            "summary": _summarise(self.classes),
            "left_out_blocks": self.left_out,
            "classes": self.classes.with_columns(advice=_advise()),
            "stretches": _write_addresses(order.head(self.rows) if self.rows else order),
            "over_time": self.over_time,
        }


def _advise() -> pl.Expr:
    """Return what to do with the memory of a class, of devices; null for the host's own."""
    advice = pl.col("lifetime").replace_strict(ADVICE, default=None, return_dtype=pl.String)
    return pl.when(pl.col("device") >= 0).then(advice)


def _count_classes(bands: pl.DataFrame) -> pl.DataFrame:
    """Return the stretches of each class, and what they hold in the mean over the recording."""
    groups = bands.group_by("rank", "device", lifetime=pl.col("lifetime").cast(pl.String))
    held = (pl.col("held_ratio") * BAND_NBYTES).sum().round()
    sums = groups.agg(stretches=pl.len(), span_nbytes=pl.len().cast(I64) * BAND_NBYTES, held_nbytes=held)
    return sums.sort("device", "lifetime").select(list(CLASSES)).cast(dict(CLASSES))  # type: ignore[arg-type]


def _sum_windows(found: AddressBands, rank: int) -> pl.DataFrame:
    """Return what the stretches of each class hold in each window."""
    rows = found.windows.join(found.bands.select("device", "address", "lifetime"), on=["device", "address"])
    held = [pl.col("held_nbytes").filter(lifetime=kind).sum().alias(f"{kind}_nbytes") for kind in LIFETIMES]
    sums = rows.group_by("device", "window").agg(held).sort("device", "window")
    placed = sums.with_columns(rank=pl.lit(rank, I64), since_ns=pl.col("window") * found.window_ns)
    return placed.select(list(OVER_TIME)).cast(dict(OVER_TIME))  # type: ignore[arg-type]


def _write_addresses(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with addresses as programs write them, first."""
    addresses = pl.Series("address", [hex(address) for address in rows["address"]], dtype=pl.String)
    return rows.with_columns(addresses, pl.col("lifetime").cast(pl.String)).select("address", pl.exclude("address"))


def _summarise(classes: pl.DataFrame) -> str:
    """Return the result in a sentence."""
    if classes.is_empty():
        return "no memory events are recorded (torch.profiler: profile_memory=True)"
    sums = dict(classes.group_by("lifetime").agg(pl.col("span_nbytes").sum()).rows())
    parts = [f"{format_bytes(sums[kind])} {kind}" for kind in ("long-lived", "mixed", "burst") if kind in sums]
    many = counted(int(classes["stretches"].sum()), "stretch", "stretches")
    return f"by lifetime of allocations, not by access: {many} of 2 MiB: {', '.join(parts)}"
