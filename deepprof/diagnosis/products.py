"""What rules on products have in common: the products of a loop, and where the slow ones are in the code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.cost.loop_products import list_products
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.operators import is_stand_in

IMPOSSIBLE = 1.05  # times the roof: then the peaks, the shapes or the type are wrong
LARGE = 0.02  # of an iteration: what a product must take for that to count


@dataclass(frozen=True, slots=True, eq=False)
class LoopProducts:
    """The products of a loop (`metrics.cost.loop_products`), the device's peaks, and the mean iteration."""

    table: pl.DataFrame
    peaks: DevicePeaks
    iteration_ns: float

    def share(self, ns: float) -> float:
        """Return a time as a share of the mean iteration."""
        return ns / self.iteration_ns if self.iteration_ns else 0.0


def find_products(seen: LoopContexts) -> LoopProducts | None:
    """Return the products of a loop; None where shapes or peaks are not known, or contradict what was measured."""
    found = seen.loop.roofline
    if found is None or found.peaks is None or is_stand_in(seen.trace):
        return None
    table, times = list_products(found.groups), found.iterations["iteration_ns"]
    iteration_ns = float(times.sum()) / max(1, len(times))
    wrong = (
        (pl.col("roof_ratio") > IMPOSSIBLE)
        & (pl.col("device_ns") > LARGE * iteration_ns)
        & (pl.col("bound") == "compute")
    )
    return (
        None
        if table.is_empty() or not table.filter(wrong).is_empty()
        else LoopProducts(table, found.peaks, iteration_ns)
    )


def find_kernel(seen: LoopContexts, kernel: str) -> int:
    """Return the context in which a kernel takes most time; the first, which is around all, where there is none.

    A context whose launch was not recorded, which says nothing of the code, counts only where there is no other.
    """
    named = seen.table.select((pl.col("kind") == "kernel") & (pl.col("name") == kernel)).to_series()
    own = np.where(named.fill_null(value=False).to_numpy(), seen.table["own_device_ns"].to_numpy(), 0.0)
    around = seen.table["kind"].gather(seen.table["parent"].fill_null(0))
    launched = np.where((around != "unattributed").to_numpy(), own, 0.0)
    best = launched if launched.any() else own
    return int(np.argmax(best)) if best.any() else 0


def count_blocks(seen: LoopContexts, kernel: str) -> float | None:
    """Return how many blocks a kernel has for each multiprocessor of its device, None where that is not recorded."""
    trace, device = seen.trace, seen.loop.device
    cores = trace.devices.filter(pl.col("device") == device)["multiprocessors"].drop_nulls()
    ids = trace.names.to_frame("name").with_row_index("name_id").filter(pl.col("name") == kernel)["name_id"]
    events = trace.device_events.with_row_index("event").filter(pl.col("name_id").is_in(ids.implode()))
    blocks = trace.launch_shapes.filter(pl.col("event").is_in(events["event"].implode()))["grid"].drop_nulls()
    if not len(cores) or not cores[0] or not len(blocks):
        return None
    return float(blocks.cast(pl.Float64).sum()) / len(blocks) / int(cores[0])
