"""A segment of a spool: a head that states where it begins, then frames."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from deepprof.live.agent.spool.frames import HEADER, SpoolFrame, is_durable, matches, unpack_frame
from deepprof.live.agent.spool.spool_folder import SpoolFolder

__all__ = ["HEAD", "SpoolSegment", "create_segment", "load_segment", "name_of", "walk"]

MAGIC = b"DPspool1"
FIELDS = struct.Struct("<8sQQQI")  # magic, the segment's number, first record, source_next, names known
HEAD = FIELDS.size + 4


@dataclass(slots=True)
class SpoolSegment:
    """A segment: the content of its head, and what is needed of its frames to append after them or to remove them.

    Frames end at `size`; if the segment `is_torn`, bytes follow that cannot be read.
    """

    number: int
    first: int
    names_first: int
    size: int
    next: int  # the number after its last record
    source_next: int
    names: int  # known after it
    count: int = 1  # records of its last frame but watermarks: an empty segment has nothing that is not durable
    ended: bool = False
    is_torn: bool = False

    def take(self, frame: SpoolFrame) -> None:
        """Add a frame after the others. A watermark is never known to be durable, nor missed: each batch has one."""
        self.size += frame.nbytes
        self.count = self.count if frame.is_watermark(self.names) else frame.count
        self.next, self.names = frame.end, frame.names
        self.source_next, self.ended = frame.source_next, frame.kind == "end"

    def is_durable(self, durable: int) -> bool:
        """Return whether all of it is durable when all records below `durable` are."""
        return not self.ended and is_durable(self.next, self.count, durable)


def name_of(number: int) -> str:
    """Return a segment's file name."""
    return f"{number:012d}.seg"


def create_segment(folder: SpoolFolder, number: int, first: int, source_next: int, names: int) -> SpoolSegment:
    """Make an empty segment. Raises `OSError`."""
    fields = FIELDS.pack(MAGIC, number, first, source_next, names)
    folder.write_new(name_of(number), fields + zlib.crc32(fields).to_bytes(4, "little"))
    return SpoolSegment(number, first, names, HEAD, first, source_next, names)


def load_segment(folder: SpoolFolder, number: int, *, whole: bool) -> SpoolSegment | None:
    """Return a segment as it is on disk, None if the file is none; `whole`: its payloads are checked too.

    A frame that is cut short by the file's end was never appended, and is cut off; any other fault leaves the segment
    torn. Raises `OSError`.
    """
    file = folder.open(name_of(number), os.O_RDWR)
    try:
        segment = read_head(file, number)
        if segment is None:
            return None
        for offset, frame in walk(file, segment.number, HEAD):
            if whole and not matches(frame, os.pread(file, frame.length, offset + HEADER), number, offset):
                break
            segment.take(frame)
        segment.is_torn = not cut_tail(file, segment)
        return segment
    finally:
        os.close(file)


def read_head(file: int, number: int) -> SpoolSegment | None:
    """Return the segment that a head describes, None where there is no valid head."""
    content = os.pread(file, HEAD, 0)
    fields = content[: FIELDS.size]
    if len(content) < HEAD or zlib.crc32(fields).to_bytes(4, "little") != content[FIELDS.size :]:
        return None
    magic, told, first, source_next, names = FIELDS.unpack(fields)
    return (
        SpoolSegment(number, first, names, HEAD, first, source_next, names)
        if (magic, told) == (MAGIC, number)
        else None
    )


def cut_tail(file: int, segment: SpoolSegment) -> bool:
    """Cut off a frame that the file's end cuts short; return whether nothing else follows the frames."""
    size = os.fstat(file).st_size
    header = os.pread(file, HEADER, segment.size)
    frame = unpack_frame(header, segment.number, segment.size)
    if len(header) == HEADER and (frame is None or segment.size + frame.nbytes <= size):
        return False
    os.ftruncate(file, segment.size)
    return True


def walk(file: int, number: int, offset: int, end: int | None = None) -> Iterator[tuple[int, SpoolFrame]]:
    """Yield the offset and the header of each frame from `offset` on that the file holds, up to `end`."""
    end = os.fstat(file).st_size if end is None else end
    while offset + HEADER <= end:
        frame = unpack_frame(os.pread(file, HEADER, offset), number, offset)
        if frame is None or offset + frame.nbytes > end:
            return
        yield offset, frame
        offset += frame.nbytes
