"""What the allocator did, from the history of a snapshot and the state at its end."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.importers.flags import NBYTES_LIMIT, Tally
from deepprof.collectors.importers.torch_snapshot.snapshot_parts import FAILED, SnapshotTables
from deepprof.collectors.times import TIME_LIMIT_NS

SIGNS = {"alloc": 1, "free_completed": -1}
SEGMENT_SIGNS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
IN_PIECES = ("segment_map", "segment_unmap")  # of segments that grow: taken and given back page by page
REQUESTED = "free_requested"
MARKS = ("snapshot", "workspace_snapshot")  # entries that state only that a snapshot was made
KNOWN = (*SIGNS, *SEGMENT_SIGNS, REQUESTED, FAILED, *MARKS)
DEVICES = 2**16
ASKED_NBYTES_LIMIT = 2**60  # of an allocation that failed: torch refuses more before it searches for room
PLACE = ("device", "addr")
COMPLETED_AT_ONCE = (
    (pl.col("action") == REQUESTED)
    & (pl.col("action").shift(-1) == "free_completed").fill_null(False)
    & pl.all_horizontal((pl.col(each) == pl.col(each).shift(-1)).fill_null(False) for each in PLACE)
)
"""The next entry is the completion of this request, as nearly always."""
MICROSECOND = 1_000


class AllocatorHistory(Struct, frozen=True, eq=False):
    """`memory` and `segments`: a row for every change, with device, addr, nbytes (signed), stream, stack and time_ns.

    `memory` also has what is in use and reserved on its device after the change; `failed` are the allocations for which
    there was no room. `begin_ns` is the time of the first entry, `before` counts the rows of both, and `before_nbytes`
    the bytes of memory, from before it; `recorded` is whether there is a history, and `timed` whether it has times.
    """

    memory: pl.DataFrame
    segments: pl.DataFrame
    failed: pl.DataFrame
    begin_ns: int
    before: int
    before_nbytes: int
    recorded: bool
    timed: bool


def follow(tables: SnapshotTables, tally: Tally) -> AllocatorHistory:
    """Return what the allocator did; `tally` counts the entries that are in none of the tables."""
    timed = tables.entries["time_us"].count() > 0
    entries = _sound(_with_times(tables.entries, timed=timed), tally)
    begin_ns = int(entries["time_ns"].min() or 0)  # type: ignore[arg-type]
    blocks, final = _bounded(tables.blocks, tally), _bounded(tables.segments, tally)
    changes = _memory_changes(entries, blocks, tally)
    earlier = _memory_before(changes, blocks, tally)
    pieces = _segment_changes(entries)
    taken = _segments_before(pieces, final, tally)
    memory = pl.concat([_begun(earlier, begin_ns), changes], how="diagonal")
    segments = pl.concat([_begun(taken, begin_ns), pieces], how="diagonal")
    return AllocatorHistory(
        memory=_with_totals(memory, segments),
        segments=segments.sort("time_ns", maintain_order=True),
        failed=entries.filter(pl.col("action") == FAILED).sort("time_ns", maintain_order=True),
        begin_ns=begin_ns,
        before=earlier.height + taken.height,
        before_nbytes=int(earlier["nbytes"].sum()),
        recorded=tables.entries.height > 0,
        timed=timed,
    )


def _with_times(entries: pl.DataFrame, *, timed: bool) -> pl.DataFrame:
    """Return the entries, numbered in `order`, with `time_ns`: their own, else their number.

    An entry without a time has that of the one before it on its device; no time is before an earlier entry's.
    """
    limit = TIME_LIMIT_NS // MICROSECOND
    known = pl.when(pl.col("time_us").is_between(-limit, limit)).then(pl.col("time_us") * MICROSECOND)
    filled = known.forward_fill().over("device").fill_null(known.min().over("device")).fill_null(known.min())
    rows = entries.with_row_index("order").cast({"order": pl.Int64})
    time = filled.cum_max().over("device").fill_null(0) if timed else pl.col("order").cum_count().over("device") - 1
    return rows.with_columns(time_ns=time.cast(pl.Int64))


def _sound(entries: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the entries that state what happened to which memory; the others are counted."""
    entries = tally.keep(entries, pl.col("action").is_not_null(), "invalid")
    entries = tally.keep(entries, ~pl.col("action").is_in(MARKS), "snapshot")
    entries = tally.keep(entries, pl.col("action").is_in(KNOWN), "other-action")
    entries = tally.keep(entries, pl.col("device") < DEVICES, "invalid-place")
    placed = pl.col("addr").is_not_null() | (pl.col("action") == FAILED)
    entries = tally.keep(entries, placed, "invalid-place")
    limit = pl.when(pl.col("action") == FAILED).then(ASKED_NBYTES_LIMIT).otherwise(NBYTES_LIMIT)
    return tally.keep(entries, pl.col("size").is_between(0, limit), "invalid-bytes")


def _bounded(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the blocks or segments that can be; the others are only flagged, since they are no records."""
    sound = pl.col("nbytes").is_between(0, NBYTES_LIMIT) & pl.col("device").is_between(0, DEVICES - 1)
    kept = rows.filter((sound & pl.col("address").is_not_null()).fill_null(False)).rename({"address": "addr"})
    tally.flagged.update({"invalid-block": rows.height - kept.height} if kept.height < rows.height else {})
    return kept


def _memory_changes(entries: pl.DataFrame, blocks: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return allocations and releases; a request to release counts only where no completion follows it.

    Others are counted as `free-requested`.
    """
    rows = entries.filter(pl.col("action").is_in([*SIGNS, REQUESTED]))
    rows = _with_following(tally.keep(rows, ~COMPLETED_AT_ONCE, "free-requested"))
    in_use = blocks.select(*PLACE, in_use=True).unique(PLACE)
    rows = rows.join(in_use, on=PLACE, how="left", maintain_order="left")
    is_last = pl.col("following").is_null() & pl.col("in_use").is_null()
    released = (pl.col("following") == "alloc").fill_null(False) | is_last
    rows = tally.keep(rows, (pl.col("action") != REQUESTED) | released, "free-requested")
    sign = pl.col("action").replace_strict(SIGNS, default=-1, return_dtype=pl.Int64)
    return rows.with_columns(nbytes=pl.col("size") * sign)


def _with_following(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the action that follows at the place of each, where a release is requested; else null."""
    places = rows.filter(pl.col("action") == REQUESTED).select(PLACE).unique()
    there = rows.join(places, on=PLACE, how="semi", maintain_order="left")
    following = there.select("order", following=pl.col("action").shift(-1).over(PLACE))
    return rows.join(following, on="order", how="left", maintain_order="left")


def _memory_before(changes: pl.DataFrame, blocks: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return what was in use when the history began: what is in use at its end, less what the history changed.

    A place that the history states more of than is in use at its end is flagged as `unbalanced`.
    """
    at_end = blocks.group_by(PLACE, maintain_order=True).agg(
        pl.col("nbytes").sum().alias("at_end"), pl.col("stream", "stack").first().name.suffix("_at_end")
    )
    changed = changes.group_by(PLACE, maintain_order=True).agg(
        pl.col("nbytes").sum().alias("changed"), pl.col("stream").first()
    )
    both = changed.join(at_end, on=PLACE, how="full", coalesce=True, maintain_order="left_right")
    never = pl.col("changed").is_null()
    both = both.select(
        *PLACE,
        nbytes=pl.col("at_end").fill_null(0) - pl.col("changed").fill_null(0),
        stream=pl.when(never).then("stream_at_end").otherwise("stream"),
        stack=pl.when(never).then("stack_at_end"),
    )
    if unbalanced := both.filter(pl.col("nbytes") < 0).height:
        tally.flagged["unbalanced"] += unbalanced
    return both.filter(pl.col("nbytes") > 0)


def _segment_changes(entries: pl.DataFrame) -> pl.DataFrame:
    rows = entries.filter(pl.col("action").is_in(list(SEGMENT_SIGNS)))
    sign = pl.col("action").replace_strict(SEGMENT_SIGNS, default=0, return_dtype=pl.Int64)
    return rows.with_columns(pl.col("stream").fill_null(0), nbytes=pl.col("size") * sign)


def _segments_before(pieces: pl.DataFrame, final: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the segments that were there when the history began: those at its end, less what the history changed.

    Segments that grow are changed in pieces that need not be those in which they were taken: of such segments that are
    gone at the end only the sum is known, as one segment at the first of their addresses.
    """
    final = final.with_row_index("segment").sort("addr", maintain_order=True)
    inside = pieces.select(*PLACE, "nbytes", "stream", "action").sort("addr", maintain_order=True)
    ends = final.select(*PLACE, "segment", end=pl.col("addr") + pl.col("nbytes"))
    found = inside.join_asof(ends, on="addr", by="device", strategy="backward", check_sortedness=False)
    found = found.with_columns(segment=pl.when(pl.col("addr") < pl.col("end")).then("segment"))
    changed = found.drop_nulls("segment").group_by("segment").agg(changed=pl.col("nbytes").sum())
    left = final.join(changed, on="segment", how="left", maintain_order="left")
    left = left.select(*PLACE, "stream", nbytes=pl.col("nbytes") - pl.col("changed").fill_null(0))
    gone = _gone_before(found.filter(pl.col("segment").is_null()))
    before = pl.concat([left, gone.select(left.columns)])
    if unbalanced := before.filter(pl.col("nbytes") < 0).height:
        tally.flagged["unbalanced"] += unbalanced
    return before.filter(pl.col("nbytes") > 0)


def _gone_before(found: pl.DataFrame) -> pl.DataFrame:
    in_pieces = pl.col("action").is_in(IN_PIECES)
    place = pl.when(in_pieces).then(None).otherwise("addr").alias("place")
    return found.group_by("device", place, maintain_order=True).agg(
        pl.col("addr", "stream").first(), nbytes=-pl.col("nbytes").sum()
    )


def _begun(rows: pl.DataFrame, begin_ns: int) -> pl.DataFrame:
    return rows.with_columns(time_ns=pl.lit(begin_ns, pl.Int64), order=pl.lit(-1, pl.Int64))


def _with_totals(memory: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of memory, in the order of time, with what is in use and reserved on their device after each."""
    own = memory.with_columns(allocated=pl.col("nbytes"), reserved=pl.lit(0, pl.Int64), is_memory=True)
    other = segments.select(
        "device", "order", "time_ns", allocated=pl.lit(0, pl.Int64), reserved="nbytes", is_memory=False
    )
    rows = pl.concat([other, own], how="diagonal").sort("device", "order", maintain_order=True)
    totals = [pl.col(name).cum_sum().over("device").clip(0).cast(pl.UInt64) for name in ("allocated", "reserved")]
    rows = rows.with_columns(totals).filter("is_memory").sort("time_ns", "order", maintain_order=True)
    return rows.rename({"allocated": "allocated_nbytes", "reserved": "reserved_nbytes"})
