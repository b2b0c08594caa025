"""The parts of a snapshot as frames: entries of the history, segments, blocks, and annotations."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.importers.torch_snapshot.pickle_items import Int64s
from deepprof.collectors.importers.torch_snapshot.snapshot_stacks import StackGroups

MOST = 2**26  # items of dictionaries, members of lists, and containers: some 8 million entries of a history
RECORD_LESS = "record a shorter history (max_entries of torch.cuda.memory._record_memory_history)"
WRITE_AGAIN = "write it again with torch.cuda.memory._dump_snapshot"
FAILED = "oom"  # the action of a request for which there was no room
STATES_IN_USE = ("active_allocated", "active_pending_free", "active_awaiting_free")


class SnapshotTables(Struct, frozen=True, eq=False):
    """The parts of a snapshot; null where it does not state a value.

    `entries` are those of all histories in their order: device, action, addr, size, stream, time_us, device_free and
    `stack`, a group of `stacks`. `segments` has device, address, nbytes and stream; `blocks` those of them in use, with
    nbytes as it was requested, and stack. `annotations` has name, stage, device and time_us. `odd` counts what is no
    entry, segment, block or annotation although it is in their place.
    """

    entries: pl.DataFrame
    segments: pl.DataFrame
    blocks: pl.DataFrame
    annotations: pl.DataFrame
    stacks: StackGroups
    odd: int


def find_blocks_in_use(blocks: pl.DataFrame, segments: pl.DataFrame, of: Int64s) -> pl.DataFrame:
    """Return the blocks in use, with the device and the stream of their segment, whose row `of` has for each.

    A block without an address is behind the one before it, as torch lists them.
    """
    own = segments[of].select("device", "stream", base="address")
    rows = pl.concat([blocks, own], how="horizontal").with_columns(segment=pl.Series(of, dtype=pl.Int64))
    behind = pl.col("size").fill_null(0).cum_sum().over("segment") - pl.col("size").fill_null(0)
    address = pl.col("address").fill_null(pl.col("base").fill_null(0) + behind)
    rows = rows.with_columns(address=address, nbytes=pl.coalesce("requested_size", "size"))
    in_use = rows.filter(pl.col("state").is_in(STATES_IN_USE))
    return in_use.drop("size", "requested_size", "state", "base", "segment")
