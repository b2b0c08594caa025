"""A frame: a header with its own checksum, and a payload.

Both checksums are keyed with the segment's salt and the frame's offset, so that a frame at another place than it was
written to is not taken for a frame.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

CRC = struct.Struct("<I")
KEY = struct.Struct("<QQ")
PAYLOAD_NBYTES = 64 << 20  # four times the largest message that the wire accepts by default


class FrameHeader(NamedTuple):
    """The kind of a frame as a code, the numbers that its log keeps with it, and its payload's length and checksum."""

    kind: int
    numbers: tuple[int, ...]
    length: int
    crc: int = 0


@dataclass(frozen=True)
class FrameFormat:
    """The frames of a log: magic, kind, numbers, the payload's length and checksum, and the header's checksum.

    A frame of the kind `blank` is what a repair writes over damaged bytes: its payload is not checked. `is_searched`: a
    reader searches for the next frame behind damaged bytes. That needs a secret salt; with another one bytes in a
    message could be made to look like a frame."""

    magic: bytes  # at most seven
    numbers: str  # as letters of `struct`
    kinds: int  # how many there are, from 0 on
    blank: int | None = None
    is_searched: bool = False

    @cached_property
    def fields(self) -> struct.Struct:
        """All of the header but its own checksum."""
        return struct.Struct(f"<{len(self.magic)}sB{7 - len(self.magic)}x{self.numbers}II")

    @cached_property
    def header_nbytes(self) -> int:
        """Length of a header."""
        return self.fields.size + CRC.size

    def pack(self, header: FrameHeader, payload: bytes, salt: int, offset: int) -> bytes:
        """Return the bytes of a header before its payload at `offset`."""
        key = _key_of(salt, offset)
        return self._sealed(header, zlib.crc32(payload, key), key)

    def seal(self, header: FrameHeader, salt: int, offset: int) -> bytes:
        """Return the bytes of a header as it is."""
        return self._sealed(header, header.crc, _key_of(salt, offset))

    def _sealed(self, header: FrameHeader, crc: int, key: int) -> bytes:
        fields = self.fields.pack(self.magic, header.kind, *header.numbers, header.length, crc)
        return fields + CRC.pack(zlib.crc32(fields, key))

    def unpack(self, content: bytes, at: int, salt: int, offset: int) -> FrameHeader | None:
        """Return the header at `content[at]`, which is at `offset` in its segment; None where there is none."""
        view = memoryview(content)[at : at + self.header_nbytes]
        if len(view) < self.header_nbytes or view[: len(self.magic)] != self.magic:
            return None
        fields = view[: self.fields.size]
        if CRC.pack(zlib.crc32(fields, _key_of(salt, offset))) != view[self.fields.size :]:
            return None
        _, kind, *numbers, length, crc = self.fields.unpack(fields)
        is_known = kind == self.blank or (kind < self.kinds and length <= PAYLOAD_NBYTES)
        return FrameHeader(kind, tuple(numbers), length, crc) if is_known else None


def matches(header: FrameHeader, payload: bytes, salt: int, offset: int) -> bool:
    """Return whether `payload` is what was written after `header` at `offset`."""
    return len(payload) == header.length and zlib.crc32(payload, _key_of(salt, offset)) == header.crc


def _key_of(salt: int, offset: int) -> int:
    """Return the initial value of a frame's checksums."""
    return zlib.crc32(KEY.pack(salt, offset))
