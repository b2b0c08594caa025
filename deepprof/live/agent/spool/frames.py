"""One message in a segment of a spool: a header, checked apart from its payload, and the message's bytes.

Both checksums are keyed with the position of the frame. A reader follows the lengths from frame to frame and never
searches, so that bytes inside a message that look like a frame are never read as one.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["HEADER", "PAYLOAD_NBYTES", "Kind", "SpoolFrame", "is_durable", "matches", "pack_frame", "unpack_frame"]

Kind = Literal["batch", "gap", "end"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAGIC = b"DPf1"
# magic, kind, first, count, source_next, names, length, CRC-32 of the payload; CRC-32 of all of these follows.
FIELDS = struct.Struct("<4sB3xQQQIII")
CRC = struct.Struct("<I")
PLACE = struct.Struct("<QQ")
HEADER = FIELDS.size + CRC.size
PAYLOAD_NBYTES = 64 << 20  # four times the largest message that the wire allows
WATERMARK_NBYTES = 32  # at most, of a batch with neither names nor tables; a table takes more
NUMBERS = 1 << 64


@dataclass(frozen=True, slots=True)
class SpoolFrame:
    """The content of a header: records [first, first + count), `names` known after it, payload of `length` bytes."""

    kind: Kind
    first: int
    count: int
    source_next: int
    names: int
    length: int
    crc: int

    @property
    def end(self) -> int:
        """The number after its last record."""
        return self.first + self.count

    @property
    def nbytes(self) -> int:
        """Its length, header included."""
        return HEADER + self.length

    def is_watermark(self, names: int) -> bool:
        """Return whether it contains only a watermark, where `names` were known before it."""
        return self.kind == "batch" and not self.count and self.names == names and self.length <= WATERMARK_NBYTES


def is_durable(end: int, count: int, durable: int) -> bool:
    """Return whether a message of `count` records before `end` is durable when all records below `durable` are.

    One without records does not change the numbers: only what comes after it shows whether it is.
    """
    return end < durable or (count > 0 and end == durable)


def pack_frame(kind: Kind, numbers: tuple[int, int, int, int], payload: bytes, segment: int, offset: int) -> bytes:
    """Return the header of a message that lies at `offset`; `numbers` are first, count, source_next and names.

    Raises `ValueError` for values that do not fit into one.
    """
    if len(payload) > PAYLOAD_NBYTES or not all(0 <= number < NUMBERS for number in (*numbers, sum(numbers[:2]))):
        raise ValueError(f"a message of {len(payload)} bytes with the numbers {numbers} does not fit into a spool")
    key = key_of(segment, offset)
    fields = FIELDS.pack(MAGIC, KINDS.index(kind), *numbers, len(payload), zlib.crc32(payload, key))
    return fields + CRC.pack(zlib.crc32(fields, key))


def unpack_frame(header: bytes, segment: int, offset: int) -> SpoolFrame | None:
    """Return the frame of the header at `offset`, None where there is none."""
    if len(header) < HEADER or header[: len(MAGIC)] != MAGIC:
        return None
    if CRC.unpack_from(header, FIELDS.size)[0] != zlib.crc32(header[: FIELDS.size], key_of(segment, offset)):
        return None
    _, kind, *numbers = FIELDS.unpack_from(header)
    frame = SpoolFrame(KINDS[kind], *numbers) if kind < len(KINDS) else None
    return frame if frame is not None and frame.length <= PAYLOAD_NBYTES else None


def matches(frame: SpoolFrame, payload: bytes, segment: int, offset: int) -> bool:
    """Return whether `payload` is what was written after the header at `offset`."""
    return len(payload) == frame.length and zlib.crc32(payload, key_of(segment, offset)) == frame.crc


def key_of(segment: int, offset: int) -> int:
    """Return the start value for the checksums of a frame."""
    return zlib.crc32(PLACE.pack(segment, offset))
