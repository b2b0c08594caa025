"""The call stacks of a snapshot: each distinct one once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.importers.call_stacks import name_frame, number_stacks
from deepprof.collectors.importers.torch_snapshot.pickle_items import ValueKind
from deepprof.collectors.importers.torch_snapshot.snapshot_items import NONE, Int64s, SnapshotItems
from deepprof.collectors.trace import STACKS, empty_table

FRAMES = 2**18  # distinct ones; a large program has some ten thousand
MIXERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))  # odd numbers of 64 bits
UInt64s = npt.NDArray[np.uint64]


def read_stacks(items: SnapshotItems, lists: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """Return STACKS of the `lists` of frames, and for each of `lists` its `stack_id`; null for none.

    Without stacks if there are more than `FRAMES` distinct frames.
    """
    distinct, inverse = np.unique(lists.fill_null(NONE).to_numpy(), return_inverse=True)
    known = np.flatnonzero(items.of_kind(distinct, ValueKind.LIST))
    of, numbers = items.members(distinct[known])
    fits = items.of_kind(numbers, ValueKind.DICT)
    of, frame, texts = of[fits], *_number_frames(items, numbers[fits])
    if not len(of) or not len(texts):
        return empty_table(STACKS), pl.Series([None] * len(lists), dtype=pl.UInt32)
    depth = _count_along(of)
    first, same = _group_lists(of, frame, depth, len(known))
    is_first = np.zeros(len(known), bool)
    is_first[first] = True
    rows = np.flatnonzero(is_first[of])
    chains = pl.DataFrame({"chain": of[rows], "depth": depth[rows], "frame": frame[rows]})
    numbered = number_stacks(chains, texts)
    stack = np.full(len(known) + 1, NONE)
    with_id = numbered.of_chain.drop_nulls()
    stack[with_id["chain"].to_numpy()] = with_id["stack_id"].to_numpy()
    of_distinct = np.full(len(distinct), NONE)
    of_distinct[known] = stack[same]
    ids = pl.Series(of_distinct[inverse], dtype=pl.Int64)
    return numbered.stacks, ids.set(ids == NONE, None).cast(pl.UInt32)


def _number_frames(items: SnapshotItems, dicts: Int64s) -> tuple[Int64s, pl.Series]:
    """Return the number of each frame, and what the numbers mean; no text for more than `FRAMES` of them."""
    place = np.full(len(items.found.kinds) + 1, NONE, np.int32)
    place[dicts] = 0
    distinct = np.flatnonzero(place == 0)
    place[distinct] = np.arange(len(distinct))
    said = [items.find(key, distinct) for key in ("filename", "name")]
    number = np.append(items.found.items["number"], NONE)
    line = items.integers("line", distinct).fill_null(0)
    places = np.stack([number[said[0]], number[said[1]], line.to_numpy()], axis=1)
    _, first, ranks = np.unique(places, axis=0, return_index=True, return_inverse=True)
    if len(first) > FRAMES:
        return np.zeros(len(dicts), np.int64), pl.Series(dtype=pl.String)
    some = distinct[first]
    columns = (items.texts("name", some), items.texts("filename", some), items.integers("line", some).fill_null(0))
    names = [name_frame(*row) for row in zip(*columns, strict=True)]
    return ranks.ravel()[place[dicts]], pl.Series(names, dtype=pl.String)


def _count_along(of: Int64s) -> Int64s:
    """Return the place of each row in its list, of which `of` is the sorted number."""
    begins = np.flatnonzero(np.diff(of, prepend=-1))
    lengths = np.diff(begins, append=len(of))
    return np.arange(len(of)) - np.repeat(begins, lengths)


def _group_lists(of: Int64s, frame: Int64s, depth: Int64s, lists: int) -> tuple[Int64s, Int64s]:
    """Return the first of the lists of equal frames, and for each list the first that equals it.

    `of` is the sorted number of the list of each frame, `depth` its place there. Lists are compared
    by a sum of 64 bits.
    """
    sums = np.zeros(lists, np.uint64)
    begins = np.flatnonzero(np.diff(of, prepend=-1))
    sums[of[begins]] = np.add.reduceat(_mix(frame.astype(np.uint64), depth.astype(np.uint64)), begins)
    _, first, same = np.unique(sums, return_index=True, return_inverse=True)
    return first, first[same]


def _mix(frame: UInt64s, place: UInt64s) -> UInt64s:
    """Return a number for each frame at its place in its list, as different ones as bits allow."""
    mixed = (frame + np.uint64(1)) * MIXERS[0] + place * MIXERS[1]
    mixed ^= mixed >> np.uint64(29)
    mixed *= MIXERS[1]
    return np.asarray(mixed ^ (mixed >> np.uint64(32)))
