"""To which iteration each device event belongs: to the one in which it starts, on whatever stream it runs."""

from __future__ import annotations

import polars as pl

PLACE = ("rank", "device")


def attribute_events(events: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """Return the events with the `loop` and the `iteration` (its `index`) in which each starts, null outside of all.

    `events` have `rank`, `device` and `start_ns`, ascending within a device; `iterations` have the same columns,
    `loop`, `index`, `busy_ns` and `idle_ns`. An iteration runs from its first kernel's start to the start of the next
    adjacent one, or to its own end where none follows directly; where iterations of several loops overlap, the one that
    started last counts. Rows keep their order. Takes the memory of two more columns.
    """
    until = pl.col("start_ns") + pl.col("busy_ns") + pl.col("idle_ns")
    spans = iterations.select(*PLACE, "start_ns", "loop", iteration="index", until_ns=until)
    spans = spans.sort("start_ns", "loop", "iteration")
    # Sorted within a device is all that is needed, and all that polars could not check.
    found = events.join_asof(spans, on="start_ns", by=PLACE, strategy="backward", check_sortedness=False)
    inside = pl.col("start_ns") < pl.col("until_ns")
    return found.with_columns(pl.when(inside).then(name).alias(name) for name in ("loop", "iteration")).drop("until_ns")
