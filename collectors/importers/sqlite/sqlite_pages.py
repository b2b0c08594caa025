"""Integer columns straight from the pages of an SQLite file, for tables too long to make a Python tuple of every row.

A compiled loop (`sqlite_pages.c`) reads the leaf pages; this module finds the pages of a table by going down its tree.
An unusual table or page is refused: the caller then uses SQLite, which returns the same values or reports the damage.
Nothing is written, no lock taken, and a page is read twice at most, so that the work is bounded by the size of the
file.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from deepprof import libraries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import FileIO
    from pathlib import Path

MISSING = -(2**63)  # means null; no recorder writes it
VERSION = 1
"""The `dp_pages_version()` this Python code is written for."""

MAGIC = b"SQLite format 3\0"
FILE_HEADER_NBYTES = 100
PAGE_SIZES = [2**bits for bits in range(9, 17)]
SMALLEST_USABLE = 480
INTERIOR, LEAF = 0x05, 0x0D  # of a table; an index has 2 and 10
INTERIOR_HEADER_NBYTES, CHILD_NBYTES = 12, 4
DEEPEST = 20  # SQLite's own limit
BATCH_NBYTES = 1024**2
WIDEST = 2000  # columns, SQLite's own limit
STORED, THE_ROWID, WITH_DEFAULT = range(3)  # the last is not stored in rows that are older than the column

_POINTER, _INT32, _UINT32, _INT64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64
_PAGES: list[Any] = [_POINTER, _INT64, _UINT32, _UINT32]
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "dp_pages_version": (_INT32, []),
    "dp_pages_rows": (_INT64, _PAGES),
    "dp_pages_read": (_INT64, [*_PAGES, _POINTER, _INT32, _POINTER, _POINTER, _INT64, _INT64]),
}

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


class UnsuitableTableError(Exception):
    """The table is unsuitable for this reader: SQLite has to read it."""


class StoredColumn(Struct, frozen=True):
    """The position of a column in its records, and its kind: `STORED`, `THE_ROWID` or `WITH_DEFAULT`."""

    position: int
    kind: int = STORED


class PageFile(Struct, frozen=True):
    """An open SQLite file of `count` pages; its header states `page_size` and the `usable` bytes of every page."""

    file: FileIO
    page_size: int
    usable: int
    count: int

    @classmethod
    def of(cls, file: FileIO) -> PageFile:
        """Return `file`, open without a buffer, as pages; raise `UnsuitableTableError` for an invalid header."""
        header = file.read(FILE_HEADER_NBYTES)
        if len(header) < FILE_HEADER_NBYTES or not header.startswith(MAGIC):
            raise UnsuitableTableError("no header")
        page_size = int.from_bytes(header[16:18], "big")
        page_size = 65536 if page_size == 1 else page_size
        usable = page_size - header[20]
        if page_size not in PAGE_SIZES or usable < SMALLEST_USABLE:
            raise UnsuitableTableError("no page size")
        return cls(file, page_size, usable, os.fstat(file.fileno()).st_size // page_size)

    def read(self, first: int, count: int) -> Bytes:
        """Return the bytes of `count` pages from page `first` on; pages are numbered from 1."""
        if first < 2 or first + count - 1 > self.count:  # page 1 contains the schema
            raise UnsuitableTableError("a page that is not there")
        pages = np.empty(count * self.page_size, np.uint8)
        self.file.seek((first - 1) * self.page_size)
        if self.file.readinto(pages.data) != len(pages):
            raise UnsuitableTableError("a page that breaks off")
        return pages

    def batches(self, numbers: Int64s) -> Iterator[Bytes]:
        """Yield the pages `numbers` in that order; consecutive pages come together, up to a megabyte."""
        most = max(1, BATCH_NBYTES // self.page_size)
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            for at in range(0, len(run), most):
                yield self.read(int(run[at]), len(run[at : at + most]))


@cache
def library() -> ctypes.CDLL | None:
    """Return the loaded library, or None if SQLite must be used."""
    return libraries.find(__file__, "_pages", _SIGNATURES, VERSION)


def load(path: Path) -> ctypes.CDLL | None:
    """Return the library at `path` with every signature declared, or None when it is not this project's."""
    return libraries.load(path, _SIGNATURES, VERSION)


def read_integers(pages: PageFile, root: int, columns: Sequence[StoredColumn]) -> list[Int64s]:
    """Return `columns` of the table whose tree starts at page `root`, `MISSING` for values that are no integers.

    Uses eight bytes per value and a megabyte. Raises `UnsuitableTableError` if SQLite has to read the table, as is
    always so without the compiled library.
    """
    native = library()
    if native is None or not columns or max(column.position for column in columns) >= WIDEST:
        raise UnsuitableTableError("no library")
    leaves = _find_leaves(pages, root)
    geometry = pages.page_size, pages.usable
    rows = sum(_counted(native, batch, geometry) for batch in pages.batches(leaves))
    values = [np.empty(rows, np.int64) for _ in columns]
    places, kinds = _lay_out(columns)
    targets = np.array([_address(column) for column in values], np.uint64)
    outputs = _address(places), len(places), _address(kinds), _address(targets), rows
    row = 0
    for batch in pages.batches(leaves):
        row = native.dp_pages_read(_address(batch), len(batch) // pages.page_size, *geometry, *outputs, row)
        if row < 0:
            raise UnsuitableTableError("an unusual page")
    if row != rows:  # the file is being written to
        raise UnsuitableTableError("other pages than before")
    return values


def _counted(native: ctypes.CDLL, batch: Bytes, geometry: tuple[int, int]) -> int:
    """Return the number of rows of the pages in `batch`."""
    rows = int(native.dp_pages_rows(_address(batch), len(batch) // geometry[0], *geometry))
    if rows < 0:
        raise UnsuitableTableError("an unusual page")
    return rows


def _lay_out(columns: Sequence[StoredColumn]) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Return the output of every position of a record, -1 for none, and the kind of every output."""
    places = np.full(max(column.position for column in columns) + 1, -1, np.int32)
    for place, column in enumerate(columns):
        places[column.position] = place
    return places, np.array([column.kind for column in columns], np.uint8)


def _find_leaves(pages: PageFile, root: int) -> Int64s:
    """Return the numbers of the leaf pages under page `root`, in the order of their rows."""
    level = np.array([root], np.int64)
    seen = 0
    for _ in range(DEEPEST):
        seen += len(level)
        if seen > pages.count:
            raise UnsuitableTableError("more pages than there are")
        if pages.read(int(level[0]), 1)[0] == LEAF:
            break
        level = np.concatenate([_children(pages.read(int(number), 1), pages.usable) for number in level])
    if len(np.unique(level)) < len(level):
        raise UnsuitableTableError("a page in two places")
    return level


def _children(page: Bytes, usable: int) -> Int64s:
    """Return the numbers of the pages below the interior page `page`."""
    cells = int.from_bytes(page[3:5].tobytes(), "big")
    end = INTERIOR_HEADER_NBYTES + 2 * cells
    if page[0] != INTERIOR or end > usable:
        raise UnsuitableTableError("no interior page")
    places = page[INTERIOR_HEADER_NBYTES:end].view(">u2").astype(np.int64)
    if cells and (places.min() < end or places.max() > usable - CHILD_NBYTES):
        raise UnsuitableTableError("a cell outside of its page")
    inner = page[places[:, None] + np.arange(CHILD_NBYTES)].view(">u4").ravel().astype(np.int64)
    return np.append(inner, int.from_bytes(page[8:12].tobytes(), "big"))


def _address(array: npt.NDArray[Any]) -> int:
    """Return where the memory of `array` starts; the caller keeps it alive and contiguous."""
    return int(array.__array_interface__["data"][0])
