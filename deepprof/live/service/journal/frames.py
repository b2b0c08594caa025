"""One message in the journal: a header with a checksum of its own, and the message's bytes as payload.

Both checksums are keyed with the segment's secret salt and the frame's offset, so that neither a client's bytes that
look like a frame nor a frame at another place than it was written to is taken for a frame.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Literal, get_args

from deepprof.live.wire.limits import MESSAGE_RECORDS

__all__ = [
    "HEADER",
    "MAGIC",
    "PAYLOAD_NBYTES",
    "JournalFrame",
    "JournalFrameHeader",
    "JournalPlace",
    "Kind",
    "matches",
    "pack_blank",
    "pack_header",
    "unpack_header",
]

Kind = Literal["hello", "batch", "gap", "end"]
KINDS: tuple[Kind, ...] = get_args(Kind)

BLANK = 255  # kind that a repair writes over damaged bytes: it holds no message, and its payload is not checked
MAGIC = b"DPjf"
VERSION = 1
# magic, version, kind, zero, session, first, count, length, CRC-32 of the payload; CRC-32 of all of these follows.
FIELDS = struct.Struct("<4sBBHQQIII")
CRC = struct.Struct("<I")
HEADER = FIELDS.size + CRC.size
KEY = struct.Struct("<QQ")
PAYLOAD_NBYTES = 64 << 20  # four times the largest message that the wire accepts by default


@dataclass(frozen=True, order=True, slots=True)
class JournalPlace:
    """Where a frame lies: its segment's number, and its offset and length in bytes, header included.

    A `length` of 0 denotes the position right before that offset.
    """

    segment: int
    offset: int
    length: int

    @property
    def stop(self) -> tuple[int, int]:
        """The position behind the frame: everything that starts there or later comes after it."""
        return self.segment, self.offset + self.length


@dataclass(frozen=True, slots=True)
class JournalFrame:
    """A message as it was accepted: `payload` is the serialised protobuf, `first` and `count` number its records."""

    session: int
    kind: Kind
    first: int
    count: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class JournalFrameHeader:
    """The header of a frame: fields of `JournalFrame`, and the payload's length and checksum; no `kind`: a blank."""

    session: int
    kind: Kind | None
    first: int
    count: int
    length: int
    crc: int


def pack_header(frame: JournalFrame, salt: int, offset: int) -> bytes:
    """Return the header of `frame` at `offset`; raises ValueError for numbers or a payload that do not fit."""
    length = len(frame.payload)
    if length > PAYLOAD_NBYTES:
        raise ValueError(f"a message of {length} bytes does not fit in a frame of {PAYLOAD_NBYTES}")
    numbers = frame.session, frame.first, frame.count
    limits = 1 << 63, 1 << 64, MESSAGE_RECORDS + 1
    if not all(0 <= number < limit for number, limit in zip(numbers, limits, strict=True)):
        raise ValueError(f"session, first record and count {numbers} do not fit in a frame")
    crc = zlib.crc32(frame.payload, key_of(salt, offset))
    return seal((MAGIC, VERSION, KINDS.index(frame.kind), 0, *numbers, length, crc), salt, offset)


def pack_blank(length: int, salt: int, offset: int) -> bytes:
    """Return the header of a blank that covers the `length` bytes behind it, whatever they contain."""
    return seal((MAGIC, VERSION, BLANK, 0, 0, 0, 0, length, 0), salt, offset)


def seal(values: tuple[object, ...], salt: int, offset: int) -> bytes:
    """Return the header with these fields and their checksum."""
    fields = FIELDS.pack(*values)
    return fields + CRC.pack(zlib.crc32(fields, key_of(salt, offset)))


def unpack_header(content: bytes, at: int, salt: int, offset: int) -> JournalFrameHeader | None:
    """Return the header that starts at `content[at]`, which is at `offset` in its segment; None where there is none."""
    view = memoryview(content)[at : at + HEADER]
    if len(view) < HEADER or view[:4] != MAGIC:
        return None
    (crc,) = CRC.unpack_from(view, FIELDS.size)
    if zlib.crc32(view[: FIELDS.size], key_of(salt, offset)) != crc:
        return None
    _, version, kind, _, session, first, count, length, payload_crc = FIELDS.unpack_from(view)
    known = kind == BLANK or (kind < len(KINDS) and length <= PAYLOAD_NBYTES)
    if version != VERSION or not known:
        return None
    return JournalFrameHeader(session, None if kind == BLANK else KINDS[kind], first, count, length, payload_crc)


def matches(header: JournalFrameHeader, payload: bytes, salt: int, offset: int) -> bool:
    """Return whether `payload` is what was written after `header` at `offset`."""
    return len(payload) == header.length and zlib.crc32(payload, key_of(salt, offset)) == header.crc


def key_of(salt: int, offset: int) -> int:
    """Return the initial value of a frame's checksums."""
    return zlib.crc32(KEY.pack(salt, offset))
