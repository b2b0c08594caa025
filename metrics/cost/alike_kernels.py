"""Kernels whose launch was not recorded, and the recorded calls that they are like.

A recording begins while the device still does what was launched before: these kernels name no operator. Where programs
repeat themselves, the same kernels in the same order run again later, from calls that were recorded. A kernel is alike
if it has the same name, grid and block, and so have its neighbours on the stream: as many on each side as it takes
until all recorded kernels in such a place belong to calls with the same operands. A call is alike if all its kernels
are, and if it took about as long as the recorded ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

WIDTHS = (1, 2, 4, 8, 16)  # neighbours on each side that are compared
MAX_TIMES = 2  # longer or shorter than all recorded calls
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # mixes numbers into a key of 64 bits


def find_alike(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return `event`, `signature` and `alike` of the kernels of calls that are like recorded ones.

    `kernels` has a row for each kernel: `event` (its row of the device events), `length_ns`, and `call` and
    `signature`, null where the launch was not recorded. `alike` numbers the calls found.
    """
    rows = _sort_streams(trace, kernels)
    if not rows["call"].null_count() or rows["call"].null_count() == rows.height:
        return _number_calls(rows.clear().with_columns(signature=None, ordinal=None, count=None))
    of_call = pl.col("call").is_not_null()
    ordinal = pl.when(of_call).then(pl.int_range(pl.len()).over("call"))
    rows = rows.with_columns(ordinal=ordinal, count=pl.when(of_call).then(pl.len().over("call")))
    missing = rows.select("event", "stream").with_row_index("place").filter(rows["call"].is_null())
    found = _number_calls(_label(rows, missing)).join(kernels.select("event", "length_ns"), on="event", how="left")
    return _as_long(found, rows.drop_nulls("call")).drop("length_ns").sort("event")


def _sort_streams(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels stream by stream in the order of time, with `kind`: equal for equal name, grid and block.

    Grid and block count only where those without a launch have them too: on AMD they are recorded with the launch.
    """
    events = trace.device_events.select("device", "context", "stream", "start_ns", "name_id").with_row_index("event")
    shapes = trace.launch_shapes.select("event", "grid", "block")
    rows = kernels.join(events, on="event", how="left", maintain_order="left")
    rows = rows.join(shapes, on="event", how="left", maintain_order="left")
    shaped = not rows.filter(pl.col("call").is_null())["grid"].null_count()
    same = ("name_id", "grid", "block") if shaped else ("name_id",)
    kind = pl.struct(same).rank("dense").cast(pl.UInt64)
    stream = pl.struct("device", "context", "stream").rank("dense")
    return rows.with_columns(kind=kind, stream=stream).sort("stream", "start_ns", maintain_order=True)


def _label(rows: pl.DataFrame, missing: pl.DataFrame) -> pl.DataFrame:
    """Return the `missing` kernels that are alike, with `signature`, `ordinal` and `count` of the recorded ones."""
    label = ("signature", "ordinal", "count")
    known, found = rows.with_row_index("place").drop_nulls("call"), []
    for width in WIDTHS:
        keys = pl.DataFrame({"key": _key_neighbours(rows["kind"].to_numpy(), rows["stream"].to_numpy(), width)})
        places = known.select("place", *label).with_columns(key=keys["key"].gather(known["place"]))
        one = pl.struct(label).n_unique() == 1
        unique = places.group_by("key").agg(pl.col(label).first(), one.alias("one")).filter("one").drop("one")
        tried = missing.with_columns(key=keys["key"].gather(missing["place"])).join(unique, on="key", how="inner")
        found.append(tried.drop("key"))
        missing = missing.join(tried, on="place", how="anti")
    return pl.concat(found).sort("place")


def _key_neighbours(kinds: UInt64s, streams: Int64s, width: int) -> UInt64s:
    """Return for each kernel a key of its kind and of its neighbours' on the stream; equal keys mean equal kinds."""
    key = np.zeros(len(kinds), np.uint64)
    for shift in range(-width, width + 1):
        place = np.clip(np.arange(len(kinds)) + shift, 0, max(len(kinds) - 1, 0))
        inside = (place == np.arange(len(kinds)) + shift) & (streams[place] == streams)
        key = (key ^ np.where(inside, kinds[place], 0).astype(np.uint64)) * FACTOR
        key ^= key >> np.uint64(29)
    return key


def _number_calls(labelled: pl.DataFrame) -> pl.DataFrame:
    """Return `event`, `signature` and `alike` of those kernels that make up whole calls."""
    begins = (pl.col("ordinal") == 0).cum_sum().over("stream", "signature")
    rows = labelled.with_columns(begun=begins).with_columns(
        alike=pl.struct("stream", "signature", "begun").rank("dense").cast(pl.Int64) - 1
    )
    expected = pl.int_range(pl.len())
    whole = ((pl.col("ordinal") == expected) & (pl.col("count") == pl.len())).all().over("alike")
    return rows.filter(whole).select("event", "signature", "alike")


def _as_long(found: pl.DataFrame, recorded: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of those calls found that took about as long as the recorded ones."""
    lengths = recorded.group_by("call", "signature").agg(pl.col("length_ns").sum())
    bounds = lengths.group_by("signature").agg(least=pl.col("length_ns").min(), most=pl.col("length_ns").max())
    length = pl.col("length_ns").sum().over("alike")
    placed = found.join(bounds, on="signature", how="left")
    about = (length * MAX_TIMES >= pl.col("least")) & (length <= pl.col("most") * MAX_TIMES)
    return placed.filter(about).select(found.columns)
