"""What the host did: a track per thread with operators, runtime calls, Python frames and the user's ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.render.perfetto.devices import count_memory
from deepprof.render.perfetto.layers import SliceLayer, number

if TYPE_CHECKING:
    from deepprof.collectors.trace import Trace
    from deepprof.render.perfetto.document import PlacedLayer

__all__ = ["count_on_host", "find_launches", "host_layer"]

Int64s = npt.NDArray[np.int64]

THREAD = ["process", "thread"]


def host_layer(trace: Trace) -> SliceLayer:
    """Return all host events, and the annotations that are on no device, on their threads.

    The threads that call the runtime most come first.
    """
    events = trace.host_events.select(
        "start_ns", "end_ns", *THREAD, "name_id", "correlation", "external_id", kind=pl.col("category").cast(pl.String)
    )
    elsewhere = (pl.col("side") == "host") | pl.col("device").is_null()
    ranges = trace.annotations.filter(elsewhere).select(
        "start_ns", "end_ns", *THREAD, "name_id", kind=pl.lit("annotation")
    )
    both = pl.concat([events, ranges], how="diagonal")
    threads = (
        both.group_by(THREAD)
        .agg(calls=(pl.col("kind") == "runtime").sum())
        .sort("calls", *THREAD, descending=[True, False, False])
        .with_row_index("track")
    )
    several = threads["process"].n_unique() > 1
    labels = [name_thread(process, thread, several=several) for _, process, thread, _ in threads.iter_rows()]
    rows = both.join(threads, on=THREAD, how="left", nulls_equal=True, maintain_order="left")
    args = {
        "correlation": number("correlation"),
        "external_id": number("external_id"),
        "closed": pl.when(pl.col("end_ns").is_null()).then(pl.lit("false")),
    }
    return SliceLayer(labels, rows, trace.names, pl.col("kind"), args)


def name_thread(process: int | None, thread: int | None, *, several: bool) -> str:
    """Return a thread's name, with its process where there are several."""
    name = "unknown thread" if thread is None else f"thread {thread}"
    return f"{name} of process {'?' if process is None else process}" if several else name


def count_on_host(trace: Trace) -> pl.DataFrame:
    """Return the host's memory in use, as counters."""
    return count_memory(trace, pl.col("device").is_null() | (pl.col("device") < 0))


def find_launches(host: PlacedLayer, device: PlacedLayer) -> tuple[Int64s, Int64s]:
    """Return the rows of the host's launches and of what each launched, pair by pair; a graph is launched once."""
    calls = host.layer.rows.select("correlation", "kind").with_row_index("call")
    linked = calls.filter((pl.col("kind") == "runtime") & pl.col("correlation").is_not_null())
    first = linked.unique("correlation", keep="first", maintain_order=True)
    events = device.layer.rows.select("correlation").with_row_index("event")
    pairs = events.join(first, on="correlation", how="inner", maintain_order="left")
    return pairs["call"].cast(pl.Int64).to_numpy(), pairs["event"].cast(pl.Int64).to_numpy()
