"""The items of a pickled snapshot by container and key, as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.importers.torch_snapshot.pickle_items import NO_CONTAINER, Int64s, PickledItems, ValueKind

NONE = -1
TEXT_NBYTES = 1024  # of one text: names of functions and files; nothing longer is shown


class SnapshotItems:
    """The lists and dictionaries of a pickle, whose numbers are those of `PickledItems`."""

    def __init__(self, content: bytes | bytearray, found: PickledItems, keys: Sequence[str]) -> None:
        self.content, self.found = content, found
        by_key = np.argsort(found.items["key"], kind="stable")
        ends = np.cumsum(np.bincount(found.items["key"], minlength=len(keys)))
        self.rows = dict(zip(keys, np.split(by_key, ends[:-1]), strict=True))

    def find(self, key: str, dicts: Int64s) -> Int64s:
        """Return for every dictionary the row of what it has under `key`; NONE for nothing."""
        rows, place = self.rows[key], np.full(len(self.found.kinds) + 1, NONE, np.int32)
        place[self.found.items["owner"][rows]] = rows
        return place[dicts].astype(np.int64)

    def values(self, key: str, dicts: Int64s, *kinds: ValueKind) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Return for every dictionary the row of what it has under `key`, and whether it is of one of the `kinds`."""
        if not len(dicts) or not len(self.rows[key]):
            return np.full(len(dicts), NONE), np.zeros(len(dicts), bool)
        rows = self.find(key, dicts)
        kind = self.found.items["kind"][rows]
        fits = np.zeros(len(rows), bool)
        for each in kinds:
            fits |= kind == each
        return rows, fits & (rows != NONE)

    def raw_numbers(self, key: str, dicts: Int64s) -> Int64s:
        """Return for every dictionary the number of what it has under `key`, of whatever kind; NONE for nothing."""
        rows, numbers = self.find(key, dicts), np.full(len(dicts), NONE)
        numbers[rows != NONE] = self.found.items["number"][rows[rows != NONE]]
        return numbers

    def integers(self, key: str, dicts: Int64s) -> pl.Series:
        """Return for every dictionary the integer under `key` as Int64; null for none."""
        rows, fits = self.values(key, dicts, ValueKind.INTEGER)
        return self.numbers(rows, fits)

    def containers(self, key: str, dicts: Int64s, kind: ValueKind) -> Int64s:
        """Return for every dictionary the number of the list or dictionary under `key`; NONE for none."""
        return self.numbers(*self.values(key, dicts, kind)).fill_null(NONE).to_numpy()

    def numbers(self, rows: Int64s, fits: npt.NDArray[np.bool_]) -> pl.Series:
        """Return the numbers in `rows` where they fit, else null."""
        values = np.zeros(len(rows), np.int64)
        values[fits] = self.found.items["number"][rows[fits]]
        known = pl.Series(values, dtype=pl.Int64)
        return known if fits.all() else known.set(pl.Series(~fits, dtype=pl.Boolean), None)

    def texts(self, key: str, dicts: Int64s) -> pl.Series:
        """Return for every dictionary the text under `key` as String, cut to `TEXT_NBYTES`; null for none."""
        rows, fits = self.values(key, dicts, ValueKind.TEXT, ValueKind.ESCAPED)
        _, first, inverse = np.unique(self.found.items["number"][rows[fits]], return_index=True, return_inverse=True)
        distinct = pl.Series([self.decode(row) for row in rows[fits][first].tolist()], dtype=pl.String)
        place = np.zeros(len(rows), np.int64)
        place[fits] = inverse
        if not len(distinct):
            return pl.Series([None] * len(rows), dtype=pl.String)
        return distinct.gather(pl.Series(place, dtype=pl.Int64).set(pl.Series(~fits, dtype=pl.Boolean), None))

    def decode(self, row: int) -> str:
        """Return the text that an item points to."""
        items = self.found.items
        start, length = int(items["number"][row]), min(int(items["length"][row]), TEXT_NBYTES)
        data = bytes(self.content[start : start + length])
        if items["kind"][row] == ValueKind.ESCAPED:
            return data.decode("raw-unicode-escape", "replace").encode("utf-8", "replace").decode()
        return data.decode("utf-8", "replace")

    def members(self, lists: Int64s) -> tuple[Int64s, Int64s]:
        """Return of every list its place in `lists` and the number of a container in it, in order; NONE for others.

        `lists` are distinct.
        """
        of, runs = self.runs(lists)
        place, number = self.found.expand(runs)
        number[number == NO_CONTAINER] = NONE
        return of[place], number

    def runs(self, lists: Int64s) -> tuple[Int64s, Int64s]:
        """Return of every list its place in `lists` and each run that it was filled with, in order.

        `lists` are distinct.
        """
        owners = self.found.fills["owner"]
        if not len(lists):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        place = np.full(len(self.found.kinds) + 1, NONE, np.int32)
        place[lists] = np.arange(len(lists))
        rows = np.flatnonzero((place != NONE)[owners])
        of = place[owners[rows]]
        if (of[1:] < of[:-1]).any():  # rarely: a list is written as one piece, and lists in their order
            order = np.argsort(of, kind="stable")
            rows, of = rows[order], of[order]
        return of.astype(np.int64), self.found.fills["run"][rows].astype(np.int64)

    def of_kind(self, numbers: Int64s, kind: ValueKind) -> npt.NDArray[np.bool_]:
        """Return which of the containers are of a kind."""
        if not len(self.found.kinds):
            return np.zeros(len(numbers), bool)
        return np.asarray((numbers != NONE) & (self.found.kinds[numbers] == kind))
