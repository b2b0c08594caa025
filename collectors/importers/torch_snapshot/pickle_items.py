"""What the two readers of pickles return: what is in dictionaries and lists as tables, and how the reading ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct


class PickleStatus(IntEnum):
    """How the reading of a pickle ended."""

    DONE = 0
    TRUNCATED = 1
    FORBIDDEN = 2
    MALFORMED = 3
    TOO_MANY = 4
    NO_MEMORY = 5


class ValueKind(IntEnum):
    """What an item is; OTHER is everything that no snapshot states anything by. ESCAPED is a text of protocol 0."""

    OTHER = 0
    INTEGER = 1
    TEXT = 2
    LIST = 3
    DICT = 4
    ESCAPED = 5


# What is in a dictionary: `number` is an integer, the number of a container, or where a text of `length` bytes
# begins; `owner` is the number of the dictionary, `key` the place of the key among the wanted ones.
ITEM = np.dtype(
    {
        "names": ["number", "owner", "length", "key", "kind"],
        "formats": ["<i8", "<u4", "<u4", "<i2", "u1"],
        "offsets": [0, 8, 12, 16, 18],
        "itemsize": 24,
    }
)
FILL = np.dtype([("owner", "<u4"), ("run", "<u4")])  # the members of a run were added to the list `owner`
NO_KEY, NO_CONTAINER = -1, 2**32 - 1
ItemColumns = Mapping[str, npt.NDArray[Any]]
Int64s = npt.NDArray[np.int64]


class PickledItems(Struct, frozen=True, eq=False):
    """What is in dictionaries (ITEM) and in lists (FILL), column by column, in the order in which it was stored.

    Lists are filled with runs: `members` are the numbers of the containers in them, NO_CONTAINER for other things, and
    `run_ends` is where each run ends. Lists of equal members share their runs, as a rule. `kinds` are those of the
    containers by number, `root` is (kind, number) of the whole. `at` is the byte of the pickle at which the reading
    ended.
    """

    status: PickleStatus
    at: int
    items: ItemColumns
    fills: ItemColumns
    run_ends: npt.NDArray[np.uint32]
    members: npt.NDArray[np.uint32]
    kinds: npt.NDArray[np.uint8]
    root: tuple[int, int]

    def expand(self, runs: npt.NDArray[np.integer[Any]]) -> tuple[Int64s, Int64s]:
        """Return each member of the `runs`, one after the other: the place of its run in `runs`, and its number."""
        ends = np.concatenate([[0], self.run_ends]).astype(np.int64)
        lengths = ends[runs + 1] - ends[runs]
        of = np.repeat(np.arange(len(runs)), lengths)
        before = np.cumsum(lengths) - lengths
        at = np.arange(len(of)) + np.repeat(ends[runs] - before, lengths)
        return of, self.members[at].astype(np.int64)


def split_columns(rows: npt.NDArray[Any]) -> ItemColumns:
    """Return a copy of every column of rows of ITEM or FILL."""
    return {name: rows[name].copy() for name in rows.dtype.names or ()}


def join_keys(keys: Sequence[str]) -> tuple[bytes, npt.NDArray[np.uint32]]:
    """Return the keys as one text, and where each ends."""
    encoded = [key.encode() for key in keys]
    return b"".join(encoded), np.cumsum([len(key) for key in encoded], dtype=np.uint32)
