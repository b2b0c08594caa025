"""The parts of a pickled snapshot as frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.torch_snapshot.pickle_items import Int64s, PickledItems, PickleStatus, ValueKind
from deepprof.collectors.importers.torch_snapshot.snapshot_items import NONE, SnapshotItems
from deepprof.collectors.importers.torch_snapshot.snapshot_parts import (
    FAILED,
    MOST,
    RECORD_LESS,
    WRITE_AGAIN,
    SnapshotTables,
    find_blocks_in_use,
)
from deepprof.collectors.importers.torch_snapshot.snapshot_stacks import StackGroups, group_stacks
from deepprof.collectors.importers.torch_snapshot.unpickling import read_items

PARTS = ("segments", "device_traces", "external_annotations")
KEYS = (
    *PARTS,
    *("address", "total_size", "stream", "device", "blocks"),  # of a segment
    *("size", "requested_size", "state", "frames"),  # of a block, besides
    *("action", "addr", "time_us", "device_free"),  # of an entry, besides
    *("filename", "line", "name"),  # of a frame
    "stage",  # of an annotation, besides
)
PROBLEMS = {
    PickleStatus.TRUNCATED: ("is truncated: its pickle breaks off at byte {at}", "copy it again"),
    PickleStatus.FORBIDDEN: (
        "is no plain snapshot: its pickle would run code, and was not run",
        WRITE_AGAIN,
    ),
    PickleStatus.MALFORMED: ("is a damaged pickle, or none, at byte {at}", "copy it again"),
    PickleStatus.TOO_MANY: ("holds too much: more than DeepProf reads at byte {at}", RECORD_LESS),
    PickleStatus.NO_MEMORY: ("takes more memory than there is", RECORD_LESS),
}


def read_pickle(path: Path, content: bytes | bytearray, *, details: bool) -> SnapshotTables:
    """Return the parts of the snapshot whose pickle is `content`, without `details` the call stacks of failures alone.

    Raises `TraceError` for what is no snapshot.
    """
    found = read_items(content, KEYS, MOST)
    if found.status is not PickleStatus.DONE:
        problem, advice = PROBLEMS[found.status]
        raise TraceError(path, problem.format(at=found.at), advice)
    items = SnapshotItems(content, found, KEYS)
    segments, traces, annotations = _find_parts(path, items, found)
    histories = _histories(path, items, traces)
    entries, odd_entries = _take_entries(items, histories)
    taken, blocks, odd_blocks = _take_segments(path, items, segments)
    marks, odd_marks = _dicts_in(items, annotations)
    entries, blocks, stacks = _with_stacks(items, entries, blocks, details=details)
    return SnapshotTables(
        entries=entries,
        segments=taken,
        blocks=blocks,
        annotations=_frame(items, marks, integers=("device", "time_us"), texts=("name", "stage")),
        stacks=stacks,
        odd=odd_entries + odd_blocks + odd_marks,
    )


def _with_stacks(
    items: SnapshotItems, entries: pl.DataFrame, blocks: pl.DataFrame, *, details: bool
) -> tuple[pl.DataFrame, pl.DataFrame, StackGroups]:
    """Return both with the group of their frames instead of these, and the groups; see `read_pickle` on `details`."""
    lists = np.concatenate([entries["frames"].to_numpy(), blocks["frames"].to_numpy()])
    if not details:
        failed = (entries["action"] == FAILED).fill_null(value=False).to_numpy()
        lists[~np.append(failed, np.zeros(blocks.height, np.bool_))] = NONE
    groups, stacks = group_stacks(items, lists)
    entries = entries.drop("frames").with_columns(stack=groups.head(entries.height))
    return entries, blocks.drop("frames").with_columns(stack=groups.tail(blocks.height)), stacks


def _find_parts(path: Path, items: SnapshotItems, found: PickledItems) -> tuple[Int64s, Int64s, Int64s]:
    """Return the lists of segments, of histories and of annotations, each as an array of one number or none."""
    kind, root = found.root
    # Segments alone: what torch wrote before it recorded histories.
    if kind == ValueKind.LIST and len(items.rows["total_size"]):
        return np.array([root]), np.empty(0, np.int64), np.empty(0, np.int64)
    if kind == ValueKind.DICT:
        numbers = [items.containers(part, np.array([root]), ValueKind.LIST) for part in PARTS]
        segments, traces, annotations = (each[each != NONE] for each in numbers)
        if len(segments) or len(traces):
            return segments, traces, annotations
    raise TraceError(path, "is a pickle of something else than a memory snapshot of PyTorch", WRITE_AGAIN)


def _dicts_in(items: SnapshotItems, lists: Int64s) -> tuple[Int64s, int]:
    """Return the dictionaries in the lists, and how many other things there are."""
    _, numbers = items.members(lists)
    fits = items.of_kind(numbers, ValueKind.DICT)
    return numbers[fits], int((~fits).sum())


def _histories(path: Path, items: SnapshotItems, traces: Int64s) -> Int64s:
    """Return the list of every device's history, by its number; NONE where there is none."""
    _, numbers = items.members(traces)
    lists = np.where(items.of_kind(numbers, ValueKind.LIST), numbers, NONE)
    _refuse_shared(path, items, lists[lists != NONE], "histories of two devices")
    return lists


def _refuse_shared(path: Path, items: SnapshotItems, lists: Int64s, what: str) -> None:
    """Raise `TraceError` where one list that is not empty is in several places: it would be counted for each."""
    numbers, counts = np.unique(lists, return_counts=True)
    if len(items.members(numbers[counts > 1])[0]):
        raise TraceError(path, f"is no sound snapshot: the {what} are one list", WRITE_AGAIN)


def _take_entries(items: SnapshotItems, histories: Int64s) -> tuple[pl.DataFrame, int]:
    """Return the entries of all histories, device by device, and how many things in them are none."""
    present = np.flatnonzero(histories != NONE)
    lists, first = np.unique(histories[present], return_index=True)
    by_device = np.argsort(present[first])
    of, numbers = items.members(lists[by_device])
    device = present[first][by_device][of]
    fits = items.of_kind(numbers, ValueKind.DICT)
    integers = ("addr", "size", "stream", "time_us", "device_free")
    entries = _frame(items, numbers[fits], integers=integers, texts=("action",), frames=True)
    return entries.with_columns(device=pl.Series(device[fits], dtype=pl.Int64)), int((~fits).sum())


def _frame(
    items: SnapshotItems, dicts: Int64s, *, integers: tuple[str, ...], texts: tuple[str, ...] = (), frames: bool = False
) -> pl.DataFrame:
    columns: dict[str, Any] = {key: items.integers(key, dicts) for key in integers}
    columns |= {key: items.texts(key, dicts) for key in texts}
    if frames:
        columns["frames"] = items.containers("frames", dicts, ValueKind.LIST)
    return pl.DataFrame(columns)


def _take_segments(path: Path, items: SnapshotItems, lists: Int64s) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Return the segments, their blocks in use, and how many things among them are neither."""
    dicts, odd = _dicts_in(items, lists)
    segments = _frame(items, dicts, integers=("device", "address", "total_size", "stream"))
    segments = segments.with_columns(pl.col("device", "stream").fill_null(0)).rename({"total_size": "nbytes"})
    block_lists = items.containers("blocks", dicts, ValueKind.LIST)
    has_blocks = block_lists != NONE
    _refuse_shared(path, items, block_lists[has_blocks], "blocks of two segments")
    owners = np.flatnonzero(has_blocks)[np.unique(block_lists[has_blocks], return_index=True)[1]]
    of, numbers = items.members(block_lists[owners])
    fits = items.of_kind(numbers, ValueKind.DICT)
    integers = ("address", "size", "requested_size")
    blocks = _frame(items, numbers[fits], integers=integers, texts=("state",), frames=True)
    return segments, find_blocks_in_use(blocks, segments, owners[of[fits]]), odd + int((~fits).sum())
