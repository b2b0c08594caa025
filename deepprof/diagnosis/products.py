"""What rules on products have in common: the products of a loop, next to the device's peaks, and their blocks."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.cost.loop_device import describe_device
from deepprof.metrics.cost.loop_products import list_products
from deepprof.metrics.cost.product_rates import ProductRates, find_product_rates
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.kernels.loop_work import LoopWork

IMPOSSIBLE = 1.05  # times the roof: the shapes, the type or the peaks are wrong, or an algorithm needs fewer operations


class LoopProducts(Struct, frozen=True, eq=False):
    """The products of a loop (`metrics.cost.loop_products`) that its device can have done in their time, and its peaks.

    What is faster than its roof is left out: a peak that is too low makes no other product look slower than it is.
    """

    table: pl.DataFrame
    peaks: DevicePeaks


def find_products(seen: LoopWork) -> LoopProducts | None:
    """Return the products of a loop; None where shapes or peaks are unknown, or most of it contradicts them."""
    found = seen.loop.roofline
    if found is None or found.peaks is None:
        return None
    table = list_products(found.groups)
    possible = table.filter(~((pl.col("roof_ratio") > IMPOSSIBLE) & (pl.col("bound") == "compute")))
    if 2 * float(possible["device_ns"].sum()) <= float(table["device_ns"].sum()):
        return None
    return LoopProducts(possible, found.peaks)


def find_rates(seen: LoopWork) -> ProductRates | None:
    """Return how fast the loop's device multiplies in other types, None where that is unknown."""
    listed = seen.trace.devices.filter(pl.col("device") == seen.loop.device)["properties"]
    properties = (seen.trace.devices["properties"] if listed.is_empty() else listed).drop_nulls()
    return find_product_rates(
        seen.device_name,
        seen.peaks,
        None if properties.is_empty() else properties[0],
        seen.work.kernels["name"].drop_nulls(),  # launches of whole graphs have none
    )


def keep_kernels(seen: LoopWork, products: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `Work.kernels` that some products spend most of their time in, with the products' amounts.

    `products` have `kernel`, `kernels` and `device_ns`, per iteration.
    """
    own = products.group_by("kernel").agg(pl.col("kernels").sum(), time_ns=pl.col("device_ns").sum())
    rows = seen.work.kernels.drop("kernels", "time_ns").unique("name", keep="first", maintain_order=True)
    return rows.join(own, left_on="name", right_on="kernel", maintain_order="left")


def count_multiprocessors(seen: LoopWork) -> int | None:
    """Return how many multiprocessors the loop's device has, as recorded or as its vendor states, None: unknown."""
    device = describe_device(seen.trace, seen.loop.device)
    recorded = None if device is None else device["multiprocessors"]
    return recorded or (None if seen.peaks is None else seen.peaks.multiprocessors)


def count_blocks(trace: Trace, kernel: str, cores: int | None) -> float | None:
    """Return how many blocks a kernel has for each of `cores` multiprocessors, None where that is not recorded."""
    ids = trace.names.to_frame("name").with_row_index("name_id").filter(pl.col("name") == kernel)["name_id"]
    events = trace.device_events.with_row_index("event").filter(pl.col("name_id").is_in(ids.implode()))
    blocks = trace.launch_shapes.filter(pl.col("event").is_in(events["event"].implode()))["grid"].drop_nulls()
    if not cores or not len(blocks):
        return None
    return float(blocks.cast(pl.Float64).sum()) / len(blocks) / cores
