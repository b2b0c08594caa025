"""A trace as a collector on a running job makes it: kernels and copies, nothing of the host."""

from __future__ import annotations

import numpy as np
import polars as pl

from deepprof.collectors.trace import DEVICE_EVENTS, Accounting, Trace

__all__ = ["kernels_and_copies"]


def kernels_and_copies(
    iterations: int, kernels: int, *, copies: int = 3, pause_ns: int = 40_000, seed: int = 0
) -> Trace:
    """Return a job of `iterations` with this many kernels each on stream 7, and copies from the host on stream 9.

    Every iteration has the same kernels in an order of no inner period, and begins after a pause in which copies run.
    """
    random = np.random.default_rng(seed)
    names = random.integers(0, max(2, kernels // 3), kernels)
    lengths, gaps = random.integers(2_000, 20_000, kernels), random.integers(500, 1_500, kernels)
    gaps[0] = pause_ns
    start = np.cumsum(np.tile(gaps + np.roll(lengths, 1), iterations))
    work = frame(start, np.tile(lengths, iterations), 7, "kernel", np.tile(names, iterations))
    first = start[::kernels]
    begin = (first[:, None] - pause_ns + np.arange(copies) * (pause_ns // copies)).ravel()
    length = np.full(len(begin), pause_ns // copies // 2)
    moved = frame(begin, length, 9, "memcpy", np.full(len(begin), names.max() + 1))
    moved = moved.with_columns(
        copy_kind=pl.lit("HtoD").cast(DEVICE_EVENTS["copy_kind"]), nbytes=pl.lit(1 << 20, pl.UInt64)
    )
    events = pl.concat([work, moved]).sort("start_ns", maintain_order=True)
    texts = [f"kernel_{number}" for number in range(int(names.max()) + 1)] + ["Memcpy HtoD"]
    return Trace(
        path="made-up",
        format="cupti",
        names=pl.Series(texts, dtype=pl.String),
        accounting=Accounting(events.height, events.height),
        device_events=events,
    )


def frame(start: np.ndarray, length: np.ndarray, stream: int, activity: str, names: np.ndarray) -> pl.DataFrame:
    """Return device events of one stream."""
    given = {"start_ns": start, "end_ns": start + length, "name_id": names}
    rows = pl.DataFrame(given).with_columns(
        device=pl.lit(0), context=pl.lit(1), stream=pl.lit(stream), activity=pl.lit(activity)
    )
    missing = {name: pl.lit(None) for name in DEVICE_EVENTS if name not in rows.columns}
    return rows.with_columns(**missing).select(DEVICE_EVENTS.names()).cast(DEVICE_EVENTS)
