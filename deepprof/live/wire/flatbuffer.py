"""The heads of Arrow messages: tables of FlatBuffers, read without trust.

Every position is checked before anything is read there, and nothing is allocated but what was read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from deepprof.live.wire.errors import MalformedArrowError

__all__ = ["FlatTable", "read_root"]

Scalars = tuple[int, ...]


def unpack(layout: str, data: bytes, at: int) -> Scalars:
    """Return the numbers at `at`; raises `MalformedArrowError` where the data has none."""
    if not 0 <= at <= len(data) - struct.calcsize(layout):
        raise MalformedArrowError("a message's head points outside itself")
    return struct.unpack_from(layout, data, at)


def follow(data: bytes, at: int) -> int:
    """Return where the offset at `at` leads."""
    return at + unpack("<I", data, at)[0]


@dataclass(frozen=True, slots=True)
class FlatTable:
    """One table: where in `data` the value of each field stands, 0 for a field that is absent."""

    data: bytes
    fields: Scalars

    def place(self, field: int) -> int:
        """Return where the value of `field` stands, 0 where it is absent."""
        return self.fields[field] if field < len(self.fields) else 0

    def number(self, field: int, layout: str, default: int = 0) -> int:
        """Return a number that is stored in the table itself; `layout` is struct's letter for it."""
        at = self.place(field)
        return unpack(f"<{layout}", self.data, at)[0] if at else default

    def table(self, field: int) -> FlatTable | None:
        """Return the table that `field` leads to, None where it is absent."""
        at = self.place(field)
        return open_table(self.data, follow(self.data, at)) if at else None

    def numbers(self, field: int, layout: str, each: int = 1) -> Scalars:
        """Return the vector of `field`: `each` numbers of `layout` per element, one after another."""
        start, count = self.vector(field)
        return unpack(f"<{count * each}{layout}", self.data, start) if count else ()

    def tables(self, field: int, most: int) -> list[FlatTable]:
        """Return the tables of a vector; raises `MalformedArrowError` for more than `most`."""
        start, count = self.vector(field)
        if count > most:
            raise MalformedArrowError(f"a message's head lists {count} things, and may list {most}")
        return [open_table(self.data, follow(self.data, start + 4 * i)) for i in range(count)]

    def text(self, field: int) -> str:
        """Return a text, empty where it is absent; what is no UTF-8 is replaced."""
        start, count = self.vector(field)
        unpack(f"<{count}x", self.data, start)
        return self.data[start : start + count].decode("utf-8", "replace")

    def vector(self, field: int) -> tuple[int, int]:
        """Return where the elements of a vector begin, and how many it claims to have, at most the data's length."""
        at = self.place(field)
        if not at:
            return 0, 0
        start = follow(self.data, at)
        count = unpack("<I", self.data, start)[0]
        if count > len(self.data):
            raise MalformedArrowError("a message's head holds a list longer than itself")
        return start + 4, count


def open_table(data: bytes, at: int) -> FlatTable:
    """Return the table at `at`."""
    index = at - unpack("<i", data, at)[0]
    size = unpack("<H", data, index)[0]
    if size < 4 or size % 2:
        raise MalformedArrowError("a message's head has a table without an index")
    offsets = unpack(f"<{(size - 4) // 2}H", data, index + 4)
    return FlatTable(data, tuple(at + offset if offset else 0 for offset in offsets))


def read_root(data: bytes) -> FlatTable:
    """Return the outermost table; raises `MalformedArrowError`."""
    return open_table(data, follow(data, 0))
