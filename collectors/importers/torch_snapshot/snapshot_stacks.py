"""The call stacks of a snapshot: each distinct one once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.importers.call_stacks import name_frame, number_stacks
from deepprof.collectors.importers.torch_snapshot.pickle_items import Int64s, ValueKind
from deepprof.collectors.importers.torch_snapshot.snapshot_items import NONE, SnapshotItems
from deepprof.collectors.importers.value_columns import NameTable

FRAMES = 2**18  # distinct ones; a large program has some ten thousand
MIXERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))  # odd numbers of 64 bits
UInt64s = npt.NDArray[np.uint64]


class StackGroups(Struct, frozen=True, eq=False):
    """Lists of equal frames are one group: `chains` has the `frame` at every `depth` (0 is innermost) of group `chain`.

    `frames` has the text of each and whether it is Python's (`is_python`).
    """

    chains: pl.DataFrame
    frames: pl.DataFrame

    def number(self, groups: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return STACKS of the `groups`, and for each of them its `stack_id`; null for none."""
        chains = self.chains.filter(pl.col("chain").is_in(groups.unique().drop_nulls().implode()))
        numbered = number_stacks(_without_interpreter(chains, self.frames["is_python"]), self.frames["text"])
        ids = pl.DataFrame({"chain": groups}).join(numbered.of_chain, on="chain", how="left", maintain_order="left")
        return numbered.stacks, ids["stack_id"]


NO_STACKS = StackGroups(
    pl.DataFrame(schema=dict.fromkeys(("chain", "depth", "frame"), pl.Int64)),
    pl.DataFrame(schema={"text": pl.String, "is_python": pl.Boolean}),
)


def group_stacks(items: SnapshotItems, lists: Int64s) -> tuple[pl.Series, StackGroups]:
    """Return for each of the `lists` of frames the number of its group, null for none, and the groups.

    Without stacks if there are more than `FRAMES` distinct frames.
    """
    fits = items.of_kind(lists, ValueKind.LIST)
    distinct, place = _rank(lists[fits], len(items.found.kinds))
    of, runs = items.runs(distinct)
    alike, same = _group_lists(of, runs, len(distinct))
    chains, frames, group = _list_frames(items, distinct[alike])
    found = np.full(len(lists), NONE)
    found[fits] = group[same][place]
    groups = pl.Series(found, dtype=pl.Int64)
    return groups.set(groups == NONE, None), StackGroups(chains, frames)


def _list_frames(items: SnapshotItems, lists: Int64s) -> tuple[pl.DataFrame, pl.DataFrame, Int64s]:
    """Return the chains and frames of `StackGroups`, and for each of the distinct `lists` its group; NONE for none."""
    of, numbers = items.members(lists)
    fits = items.of_kind(numbers, ValueKind.DICT)
    of, frame, frames = of[fits], *_number_frames(items, numbers[fits])
    if not len(of) or frames.is_empty():
        return NO_STACKS.chains, NO_STACKS.frames, np.full(len(lists), NONE)
    first, same = _group_lists(of, frame, len(lists))
    rows = np.flatnonzero(np.isin(of, first))
    chains = pl.DataFrame({"chain": of[rows], "depth": _count_along(of)[rows], "frame": frame[rows]})
    has_frames = np.bincount(of, minlength=len(lists)) > 0
    return chains, frames, np.where(has_frames, first[same], NONE)


def _rank(numbers: Int64s, below: int) -> tuple[Int64s, Int64s]:
    """Return the distinct `numbers`, sorted, and for each of `numbers` its place among them."""
    place = np.full(below, NONE, np.int32)
    place[numbers] = 0
    distinct = np.flatnonzero(place == 0)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[numbers].astype(np.int64)


def _number_frames(items: SnapshotItems, dicts: Int64s) -> tuple[Int64s, pl.DataFrame]:
    """Return the number of every frame, and what the numbers mean; none for more than `FRAMES` of them."""
    distinct, place = _rank(dicts, len(items.found.kinds))
    line = items.integers("line", distinct).fill_null(0).to_numpy()
    places = np.stack([*(items.raw_numbers(key, distinct) for key in ("filename", "name")), line], axis=1)
    _, first, ranks = np.unique(places, axis=0, return_index=True, return_inverse=True)
    if len(first) > FRAMES:
        return np.zeros(len(dicts), np.int64), NO_STACKS.frames
    some = distinct[first]
    columns = (items.texts("name", some), items.texts("filename", some), items.integers("line", some).fill_null(0))
    ids, frames = number_frames(list(zip(*columns, strict=True)))
    return ids[ranks.ravel()][place], frames


def number_frames(rows: Sequence[tuple[str | None, str | None, int]]) -> tuple[Int64s, pl.DataFrame]:
    """Return for every frame (name, file, line) its place among those of different texts, and these.

    torch writes a frame for every instruction of the native code, and its own texts for every frame.
    """
    table = NameTable()
    ids = table.ids([name_frame(*row) for row in rows]).cast(pl.Int64).to_numpy()
    is_python = np.zeros(len(table), bool)
    is_python[ids] = [(file or "").startswith("<") or (file or "").endswith(".py") for _, file, _ in rows]
    return ids, pl.DataFrame({"text": table.series(), "is_python": is_python}, schema=NO_STACKS.frames.schema)


def _without_interpreter(chains: pl.DataFrame, is_python: pl.Series) -> pl.DataFrame:
    """Return the sorted `chains` without native frames between Python's where torch could not place these.

    torch sets one function of Python at every native frame of the interpreter, and the others at the end. Since Python
    3.11 one such frame runs many functions: then `main` is outside of the process's `_start`, and what is between
    is the interpreter, in the wrong places.
    """
    rows = chains.with_columns(is_python=is_python.gather(chains["frame"]))
    innermost = pl.col("depth").filter("is_python").min().over("chain")
    misplaced = pl.col("is_python").last().over("chain") & (pl.col("depth") > innermost)
    return rows.filter(pl.col("is_python") | ~misplaced.fill_null(False)).drop("is_python")


def _count_along(of: Int64s) -> Int64s:
    """Return the place of every row in its list, of which `of` is the sorted number."""
    begins = np.flatnonzero(np.diff(of, prepend=-1))
    lengths = np.diff(begins, append=len(of))
    return np.arange(len(of)) - np.repeat(begins, lengths)


def _group_lists(of: Int64s, member: Int64s, lists: int) -> tuple[Int64s, Int64s]:
    """Return the first of the lists of equal members, and for every list its place among these.

    `of` is the sorted number of the list of every member. Lists are compared by a sum of 64 bits.
    """
    sums = np.zeros(lists, np.uint64)
    if len(of):
        begins = np.flatnonzero(np.diff(of, prepend=-1))
        mixed = _mix(member.astype(np.uint64), _count_along(of).astype(np.uint64))
        sums[of[begins]] = np.add.reduceat(mixed, begins)
    _, first, same = np.unique(sums, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(first), np.int64)
    place[order] = np.arange(len(first))
    return first[order], place[same]


def _mix(frame: UInt64s, place: UInt64s) -> UInt64s:
    """Return a number for every frame at its place in its list, as different ones as bits allow."""
    mixed = (frame + np.uint64(1)) * MIXERS[0] + place * MIXERS[1]
    mixed ^= mixed >> np.uint64(29)
    mixed *= MIXERS[1]
    return np.asarray(mixed ^ (mixed >> np.uint64(32)))
