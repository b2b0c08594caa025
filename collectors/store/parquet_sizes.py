"""The sizes that a Parquet file states, read before anything is decoded: its footer, and the header of every page.

A Parquet file of some kilobytes can unpack into terabytes. polars does not show these numbers, so a small reader of
Thrift's compact protocol reads them here; nothing else of the format is interpreted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from deepprof.collectors.importers.files import open_file

MAGIC = b"PAR1"
NO_SENSE = "its footer or a page's header makes no sense"
FOOTER_NBYTES = 64 * 1024**2
HEADER_NBYTES = 512, 64 * 1024  # of one page, tried in turn; statistics repeat the least and the greatest value
PAGES = 100_000  # of one file; a table of 2**26 rows as the store writes it has fewer
DEPTH = 16
BOOLEANS = (1, 2)
BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 3, 7, 8, 9, 10, 11, 12
# Fields by their numbers in the format's Thrift definition.
ROWS, GROUPS = 3, 4  # of the file
COLUMNS, GROUP_ROWS = 1, 3  # of a row group
OUTSIDE, METADATA = 1, 3  # of a column's chunk: a path to another file; where it is
VALUES, PACKED, DATA_AT, DICTIONARY_AT = 5, 7, 9, 11  # of its metadata
PAGE_UNPACKED, PAGE_PACKED, PAGE_DATA, PAGE_DICTIONARY, PAGE_DATA_2 = 2, 3, 5, 7, 8  # of a page's header


class MalformedParquetError(Exception):
    """A file that is no Parquet, or states wrong sizes; the message gives the reason."""


class Sizes(Struct, frozen=True):
    """Rows of the table, and bytes of all its pages unpacked, as their headers state them."""

    rows: int
    nbytes: int


def read_sizes(path: Path) -> Sizes:
    """Return the sizes that the Parquet file `path` states.

    Raises `MalformedParquetError` when they are impossible or contradict each other, and `TraceError` when the file
    cannot be read. Reads the footer, of at most 64 MiB, and the header of every page.
    """
    with open_file(path) as file:
        footer = _read_footer(file)
        rows, groups = count(footer, ROWS), records(footer, GROUPS)
        if sum(count(group, GROUP_ROWS) for group in groups) != rows:
            raise MalformedParquetError("its row groups do not add up")
        chunks = [(chunk, count(group, GROUP_ROWS)) for group in groups for chunk in records(group, COLUMNS)]
        budget = iter(range(PAGES))
        return Sizes(rows, sum(_measure_chunk(file, chunk, within, budget) for chunk, within in chunks))


def _read_footer(file: BinaryIO) -> dict[int, Any]:
    size = os.fstat(file.fileno()).st_size
    if size < 12:
        raise MalformedParquetError(f"has {size} bytes")
    file.seek(size - 8)
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or not 0 < length <= min(size - 12, FOOTER_NBYTES):
        raise MalformedParquetError("has no footer; it may be truncated")
    file.seek(size - 8 - length)
    return _Compact(file.read(length)).struct()


def _measure_chunk(file: BinaryIO, chunk: dict[int, Any], rows: int, budget: Iterator[int]) -> int:
    """Return the bytes that the pages of one column's chunk of `rows` unpack to; every page takes one from `budget`."""
    metadata = _required(chunk, METADATA)
    packed, values = count(metadata, PACKED), count(metadata, VALUES)
    if chunk.get(OUTSIDE) is not None or values != rows:
        raise MalformedParquetError("a column is elsewhere, or has not a value for every row")
    at = count(metadata, DATA_AT)
    if DICTIONARY_AT in metadata:
        at = min(at, count(metadata, DICTIONARY_AT) or at)
    end, nbytes, seen = at + packed, 0, 0
    if end > os.fstat(file.fileno()).st_size:
        raise MalformedParquetError("a column lies beyond its end")
    while at < end:
        if next(budget, None) is None:
            raise MalformedParquetError(f"has more than {PAGES} pages")
        at, unpacked, held = measure_page(file, at)
        nbytes, seen = nbytes + unpacked, seen + held
    if at != end or seen != values:
        raise MalformedParquetError("the pages of a column do not add up")
    return nbytes


def measure_page(file: BinaryIO, at: int) -> tuple[int, int, int]:
    """Return where the page that starts at `at` ends, the bytes it unpacks to, and the rows in it."""
    header, length = _read_header(file, at)
    data = header.get(PAGE_DATA) or header.get(PAGE_DATA_2) or {1: 0}
    entries = header.get(PAGE_DICTIONARY) or {1: 0}
    unpacked, values = count(header, PAGE_UNPACKED), count(data, 1)
    if count(entries, 1) > max(unpacked, 1):
        raise MalformedParquetError("a dictionary has more entries than bytes")
    return at + length + count(header, PAGE_PACKED), unpacked, values


def _read_header(file: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """Return the page's header that starts at `at`, and its length."""
    for nbytes in HEADER_NBYTES:
        compact = _Compact(os.pread(file.fileno(), nbytes, at))
        try:
            return compact.struct(), compact.at
        except MalformedParquetError:
            if nbytes == HEADER_NBYTES[-1]:
                raise
    raise MalformedParquetError("has a page without a header")


def _required(record: Any, field: int) -> Any:
    """Return a field that must exist, of what must be a struct."""
    if not isinstance(record, dict) or field not in record:
        raise MalformedParquetError(NO_SENSE)
    return record[field]


def count(record: Any, field: int) -> int:
    """Return a number that must exist and must not be negative."""
    value = _required(record, field)
    if not isinstance(value, int) or value < 0:
        raise MalformedParquetError(f"states {value!r} where a size must stand")
    return value


def records(record: Any, field: int) -> list[dict[int, Any]]:
    """Return a list of structs."""
    found = _required(record, field)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise MalformedParquetError(NO_SENSE)
    return found


class _Compact:
    """Thrift's compact protocol: a struct becomes a dictionary of its fields by number.

    `at` is the number of bytes that have been read. Raises `MalformedParquetError` for data that ends or is no Thrift.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the struct that starts here."""
        if depth > DEPTH:
            raise MalformedParquetError("is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.integer()
            kind = head & 15
            fields[number] = kind == 1 if kind in BOOLEANS else self.value(kind, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        """Return a value of `kind`."""
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in {LIST, SET}:
            return self.items(depth + 1)
        if kind == BINARY:
            return self.take(self.varint())
        if kind == DOUBLE:
            return self.take(8)
        if kind == BYTE or kind in BOOLEANS:
            return self.byte()
        if kind in {4, 5, 6}:
            return self.integer()
        raise MalformedParquetError(f"has a field of kind {kind}")  # the format has no maps

    def items(self, depth: int) -> list[Any]:
        """Return the list that starts here."""
        head = self.byte()
        size, kind = head >> 4, head & 15
        size = self.varint() if size == 15 else size
        if size > len(self.data) - self.at:  # every item takes a byte at least
            raise MalformedParquetError("has a list longer than itself")
        return [self.value(kind, depth) for _ in range(size)]

    def take(self, nbytes: int) -> bytes:
        """Return the next `nbytes`."""
        if nbytes > len(self.data) - self.at:
            raise MalformedParquetError("breaks off")
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def byte(self) -> int:
        """Return the next byte."""
        if self.at >= len(self.data):
            raise MalformedParquetError(NO_SENSE)
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        """Return an unsigned number."""
        number = shift = 0
        while (byte := self.byte()) & 128:
            number |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise MalformedParquetError("has a number beyond 64 bits")
        return number | byte << shift

    def integer(self) -> int:
        """Return a signed number."""
        number = self.varint()
        return (number >> 1) ^ -(number & 1)
