"""Converts packed records to tables of the record table, column by column."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.importers.kineto.kinds import FRAMEWORK_RANGE
from deepprof.collectors.live.packets import ANNOTATION, BY_NAME, HAS_CORRELATION, NO_TOTAL
from deepprof.collectors.trace import (
    ANNOTATIONS,
    COPY_KINDS,
    DEVICE_EVENTS,
    DEVICES,
    HOST_CATEGORIES,
    HOST_EVENTS,
    MEMORY_EVENTS,
)
from deepprof.live.agent.reordering import Rows

Int64s = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint32]
Marks = npt.NDArray[np.bool_]

COPY, MEMSET, SYNC = 1, 2, 4
NO_STREAM = 2**32 - 1  # of a synchronisation that waits for no stream in particular
OPERATOR = re.compile(r"::|^## Call CompiledFxGraph")  # as metrics.operators finds them, which is a layer above
FRAMEWORK = re.compile(FRAMEWORK_RANGE)


def is_operator(text: str) -> bool:
    """Return whether a range of this name is an operator of PyTorch, not a range of the user."""
    return bool(OPERATOR.search(text))


def is_framework(text: str) -> bool:
    """Return whether PyTorch writes ranges of this name by itself."""
    return bool(FRAMEWORK.search(text))


def device_events(rows: Rows, start_ns: Int64s, end_ns: Int64s, names: Ids) -> pl.DataFrame:
    """Return EVENT rows as device events; `names` are the rank's name ids, times are Unix nanoseconds."""
    given = ("context", "stream", "activity", "correlation", "nbytes", "copy_kind", "graph_node", "flags")
    columns: dict[str, Any] = {name: np.ascontiguousarray(rows[name]) for name in given}
    columns["device"] = find_devices(rows)
    raw = pl.DataFrame({"start_ns": start_ns, "end_ns": end_ns, "name_id": names, **columns})
    moves = pl.col("activity").is_between(COPY, MEMSET)
    return raw.select(
        "start_ns",
        "end_ns",
        pl.col("device").cast(pl.UInt16),  # `judge` has left out numbers of no device
        "context",
        pl.when(pl.col("stream") < NO_STREAM).then(pl.col("stream").cast(pl.Int64)).otherwise(-1).alias("stream"),
        pl.col("activity").cat.to(DEVICE_EVENTS["activity"]),
        "name_id",
        pl.when(pl.col("flags") & HAS_CORRELATION == HAS_CORRELATION)
        .then(pl.col("correlation").cast(pl.UInt64))
        .alias("correlation"),
        pl.lit(None, pl.UInt64).alias("external_id"),
        pl.when(moves).then("nbytes").alias("nbytes"),
        pl.when(pl.col("copy_kind") < len(COPY_KINDS))
        .then(pl.col("copy_kind").clip(upper_bound=len(COPY_KINDS) - 1))  # a null needs a key in the dictionary too
        .cat.to(DEVICE_EVENTS["copy_kind"])
        .alias("copy_kind"),
        pl.when(pl.col("graph_node") > 0).then("graph_node").alias("graph_node"),
    )


def find_devices(rows: Rows) -> npt.NDArray[np.uint32]:
    """Return the devices of EVENT rows.

    A synchronisation names only its context, and the collector has the device only of contexts in which something has
    run. The device of the others is that of the other rows of the context, if these are all of one device.
    """
    devices: npt.NDArray[np.uint32] = np.ascontiguousarray(rows["device"])
    waits = rows["activity"] == SYNC
    if not devices.any() or not waits.any():
        return devices
    ran = np.unique(np.stack([rows["context"], devices])[:, ~waits], axis=1)
    contexts, places, counts = np.unique(ran[0], return_index=True, return_counts=True)
    for context, place in zip(contexts[counts == 1], places[counts == 1], strict=True):
        devices[waits & (rows["context"] == context)] = ran[1, place]
    return devices


def host_tables(
    rows: Rows, times: tuple[Int64s, Int64s], names: Ids, kinds: tuple[Marks, Marks], process: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return RANGE rows as host events and as annotations; `kinds` marks operators, and the framework's ranges.

    `times` are starts and ends in Unix nanoseconds, `names` the rank's name ids.
    """
    (start_ns, end_ns), (operators, framework) = times, kinds
    category = np.where(rows["category"] == BY_NAME, np.where(operators, 0, ANNOTATION), rows["category"])
    ranges = category >= len(HOST_CATEGORIES)
    raw = pl.DataFrame(
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "thread": rows["thread"].astype(np.int64),
            "name_id": names,
            "category": np.minimum(category, len(HOST_CATEGORIES) - 1).astype(np.uint8),
            "correlation": np.ascontiguousarray(rows["correlation"]),
            "source": np.ascontiguousarray(rows["source"]),
            "framework": framework,
        }
    ).with_columns(process=pl.lit(process, pl.Int64))
    events = raw.filter(~ranges).with_columns(
        category=pl.col("category").cat.to(HOST_EVENTS["category"]),
        correlation=pl.when(pl.col("correlation") > 0).then("correlation"),
    )
    marks = raw.filter(ranges).with_columns(
        side=pl.lit("host", ANNOTATIONS["side"]),
        domain=pl.lit(None, pl.String),
    )
    return _fill(events, HOST_EVENTS), _fill(marks, ANNOTATIONS)


def memory_events(rows: Rows, time_ns: Int64s, process: int) -> pl.DataFrame:
    """Return MEMORY_CHANGE rows of a process as memory events; times are Unix nanoseconds."""
    given = ("device", "address", "nbytes", "allocated_nbytes", "reserved_nbytes")
    columns: dict[str, Any] = {name: np.ascontiguousarray(rows[name]) for name in given}
    raw = pl.DataFrame({"time_ns": time_ns, "thread": rows["thread"].astype(np.int64), **columns})
    known = [pl.when(pl.col(name) > 0).then(name).alias(name) for name in ("thread", "address")]
    totals = (pl.col(name) for name in ("allocated_nbytes", "reserved_nbytes"))
    known += [pl.when(total < NO_TOTAL).then(total) for total in totals]
    return _fill(raw.with_columns(known, process=pl.lit(process, pl.Int64)), MEMORY_EVENTS)


def device_sizes(rows: Rows) -> pl.DataFrame:
    """Return the devices of MEMORY_CHANGE rows that show how much memory these have, as `DEVICES`."""
    stated = rows[(rows["device_nbytes"] > 0) & (rows["device"] >= 0)]
    columns = {
        "device": stated["device"].astype(np.uint16),
        "memory_nbytes": np.ascontiguousarray(stated["device_nbytes"]),
    }
    return _fill(pl.DataFrame(columns).unique("device", keep="last", maintain_order=True), DEVICES)


def _fill(rows: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return `rows` with exactly the columns of `schema`, null where there was none."""
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in rows.columns]
    return rows.with_columns(missing).select(schema.names())
