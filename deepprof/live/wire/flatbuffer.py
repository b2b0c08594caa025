"""The heads of Arrow messages: tables of FlatBuffers, read from untrusted bytes.

Every position is checked before anything is read there, and memory is allocated only for values that were read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from deepprof.live.wire.errors import MalformedArrowError

Scalars = tuple[int, ...]


def _unpack(layout: str, data: bytes, at: int) -> Scalars:
    """Return the numbers at `at`; raises `MalformedArrowError` where the data has none."""
    if not 0 <= at <= len(data) - struct.calcsize(layout):
        raise MalformedArrowError("a message's head points outside itself")
    return struct.unpack_from(layout, data, at)


def _follow(data: bytes, at: int) -> int:
    """Return the position that the offset at `at` points to."""
    return at + _unpack("<I", data, at)[0]


@dataclass(frozen=True, slots=True)
class FlatTable:
    """One table: the position in `data` of every field's value, 0 for a field that is absent."""

    data: bytes
    fields: Scalars

    def place(self, field: int) -> int:
        """Return the position of the value of `field`, 0 where the field is absent."""
        return self.fields[field] if field < len(self.fields) else 0

    def number(self, field: int, layout: str, default: int = 0) -> int:
        """Return a number that is stored in the table itself; `layout` is struct's letter for it."""
        at = self.place(field)
        return _unpack(f"<{layout}", self.data, at)[0] if at else default

    def table(self, field: int) -> FlatTable | None:
        """Return the table that `field` points to, None where the field is absent."""
        at = self.place(field)
        return _open_table(self.data, _follow(self.data, at)) if at else None

    def numbers(self, field: int, layout: str, each: int = 1) -> Scalars:
        """Return the vector of `field`: `each` numbers of `layout` per element, one after another."""
        start, count = self.vector(field)
        return _unpack(f"<{count * each}{layout}", self.data, start) if count else ()

    def tables(self, field: int, most: int) -> list[FlatTable]:
        """Return the tables of a vector; raises `MalformedArrowError` for more than `most`."""
        start, count = self.vector(field)
        if count > most:
            raise MalformedArrowError(f"a message's head lists {count} things, and may list {most}")
        return [_open_table(self.data, _follow(self.data, start + 4 * i)) for i in range(count)]

    def text(self, field: int) -> str:
        """Return a text, empty where it is absent; bytes that are not UTF-8 are replaced."""
        start, count = self.vector(field)
        _unpack(f"<{count}x", self.data, start)
        return self.data[start : start + count].decode("utf-8", "replace")

    def vector(self, field: int) -> tuple[int, int]:
        """Return where the elements of a vector begin, and how many it claims to have, at most the data's length."""
        at = self.place(field)
        if not at:
            return 0, 0
        start = _follow(self.data, at)
        count = _unpack("<I", self.data, start)[0]
        if count > len(self.data):
            raise MalformedArrowError("a message's head holds a list longer than itself")
        return start + 4, count


def _open_table(data: bytes, at: int) -> FlatTable:
    """Return the table at `at`."""
    index = at - _unpack("<i", data, at)[0]
    size = _unpack("<H", data, index)[0]
    if size < 4 or size % 2:
        raise MalformedArrowError("a message's head has a table without an index")
    offsets = _unpack(f"<{(size - 4) // 2}H", data, index + 4)
    return FlatTable(data, tuple(at + offset if offset else 0 for offset in offsets))


def read_root(data: bytes) -> FlatTable:
    """Return the outermost table; raises `MalformedArrowError`."""
    return _open_table(data, _follow(data, 0))
