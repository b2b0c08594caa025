"""Segments of a spool: a head that states where it begins, then frames, each of one message.

A reader follows the lengths from frame to frame and never searches, so that bytes inside a message that look like a
frame are never read as one: the salt of the checksums is the segment's number, which is no secret.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from deepprof.live.agent.spool.spool_folder import SpoolFolder
from deepprof.live.segments.frame_format import PAYLOAD_NBYTES, FrameFormat, FrameHeader
from deepprof.live.segments.segment_files import HEAD_NBYTES, FrameScanner, HeadFormat, name_of

KINDS = ("batch", "gap", "end")
BATCH, _, END = range(len(KINDS))
WATERMARK_NBYTES = 32  # at most, of a batch with neither names nor tables; a table uses more
NUMBERS = 1 << 64


FRAMES = FrameFormat(b"DPf1", "QQQI", len(KINDS))  # first, count, source_next, names
HEADER = FRAMES.header_nbytes
HEADS = HeadFormat(b"DPspool1", "QQQI")  # the segment's number, first record, source_next, names known


def is_durable(end: int, count: int, durable: int) -> bool:
    """Return whether a message of `count` records before `end` is durable when all records below `durable` are.

    One without records does not change the numbers: only what comes after it shows whether it is.
    """
    return end < durable or (count > 0 and end == durable)


def pack_frame(frame: FrameHeader, payload: bytes, segment: int, offset: int) -> bytes:
    """Return the bytes before a message's own at `offset`. Raises `ValueError` for values that do not fit into them."""
    numbers = frame.numbers
    if len(payload) > PAYLOAD_NBYTES or not all(0 <= number < NUMBERS for number in (*numbers, sum(numbers[:2]))):
        raise ValueError(f"a message of {len(payload)} bytes with the numbers {numbers} does not fit into a spool")
    return FRAMES.pack(frame, payload, segment, offset)


@dataclass(slots=True)
class SpoolSegment:
    """A segment: the content of its head, and what is needed of its frames to append after them or to remove them.

    Frames end at `size`; if the segment `is_torn`, bytes follow that cannot be read.
    """

    number: int
    first: int
    source_next: int
    names_first: int
    size: int = HEAD_NBYTES
    next: int = field(init=False)  # the number after its last record
    names: int = field(init=False)  # known after it
    count: int = 1  # records of its last frame but watermarks: an empty segment has nothing that is not durable
    ended: bool = False
    is_torn: bool = False

    def __post_init__(self) -> None:
        self.next, self.names = self.first, self.names_first

    def take(self, frame: FrameHeader) -> None:
        """Add a frame after the others. A watermark is never known to be durable, nor missed: each batch has one."""
        first, count, source_next, names = frame.numbers
        if count or frame.kind != BATCH or names != self.names or frame.length > WATERMARK_NBYTES:
            self.count = count
        self.size += HEADER + frame.length
        self.next, self.names = first + count, names
        self.source_next, self.ended = source_next, frame.kind == END

    def is_durable(self, durable: int) -> bool:
        """Return whether all of it is durable when all records below `durable` are."""
        return not self.ended and is_durable(self.next, self.count, durable)


def create_segment(folder: SpoolFolder, number: int, first: int, source_next: int, names: int) -> SpoolSegment:
    """Make an empty segment. Raises `OSError`."""
    folder.write_new(name_of(number), HEADS.pack(number, first, source_next, names))
    return SpoolSegment(number, first, source_next, names)


def load_segment(folder: SpoolFolder, number: int, *, whole: bool) -> SpoolSegment | None:
    """Return a segment as it is on disk, None if the file is none; `whole`: its payloads are checked too.

    A frame that is cut short by the file's end was never appended, and is cut off; any other fault leaves the segment
    torn. Raises `OSError`.
    """
    file = folder.open(name_of(number), os.O_RDWR)
    try:
        head = HEADS.read(file)
        if head is None or head[0] != number:
            return None
        segment = SpoolSegment(number, head[1], head[2], head[3])
        for found in FrameScanner(FRAMES, file, number).scan(os.fstat(file).st_size, payloads=whole):
            if found.header is not None and found.sound:
                segment.take(found.header)
                continue
            segment.is_torn = not found.torn or (found.header is None and found.nbytes >= HEADER)
            if not segment.is_torn:
                os.ftruncate(file, segment.size)
            break
        return segment
    finally:
        os.close(file)
