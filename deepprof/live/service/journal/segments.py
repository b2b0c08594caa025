"""The journal's segments: a head with a secret salt, then frames, each of one accepted message.

The salt keys all checksums, so that a client's bytes that look like a frame are not taken for one.
"""

from __future__ import annotations

import os
import secrets
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from deepprof.live.segments.frame_format import PAYLOAD_NBYTES, FrameFormat, FrameHeader
from deepprof.live.segments.segment_files import (
    HEAD_NBYTES,
    FrameScanner,
    HeadFormat,
    ScannedFrame,
    find_numbers,
    name_of,
    write_all,
)
from deepprof.live.service.folder import StoreError, open_plain
from deepprof.live.wire.limits import MESSAGE_RECORDS

Kind = Literal["hello", "batch", "gap", "end"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BLANK = 255  # kind that a repair writes over damaged bytes
MAGIC = b"DPjf\x01"  # the last byte is the version
HEADS = HeadFormat(b"DPjournl", "IIQQ")  # version, zero, the segment's number, salt
VERSION = 1
LAST_NUMBER = 10**12 - 1


@dataclass(frozen=True, order=True, slots=True)
class JournalPlace:
    """Where a frame is: its segment's number, and its offset and length in bytes, header included.

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


FRAMES = FrameFormat(MAGIC, "QQI", len(KINDS), BLANK, is_searched=True)  # session, first, count
HEADER = FRAMES.header_nbytes


def pack_header(frame: JournalFrame, salt: int, offset: int) -> bytes:
    """Return the header of `frame` at `offset`; raises ValueError for numbers or a payload that do not fit."""
    length = len(frame.payload)
    if length > PAYLOAD_NBYTES:
        raise ValueError(f"a message of {length} bytes does not fit in a frame of {PAYLOAD_NBYTES}")
    numbers = frame.session, frame.first, frame.count
    limits = 1 << 63, 1 << 64, MESSAGE_RECORDS + 1
    if not all(0 <= number < limit for number, limit in zip(numbers, limits, strict=True)):
        raise ValueError(f"session, first record and count {numbers} do not fit in a frame")
    return FRAMES.pack(FrameHeader(KINDS.index(frame.kind), numbers, length), frame.payload, salt, offset)


def frame_of(found: ScannedFrame) -> JournalFrame | None:
    """Return the message of a frame, None if it is damaged or a blank."""
    if found.header is None or found.header.kind == BLANK or not found.sound:
        return None
    session, first, count = found.header.numbers
    return JournalFrame(session, KINDS[found.header.kind], first, count, found.payload)


def pack_blank(length: int, salt: int, offset: int) -> bytes:
    """Return the header of a blank that covers the `length` bytes behind it, whatever they contain."""
    return FRAMES.seal(FrameHeader(BLANK, (0, 0, 0), length), salt, offset)


@dataclass(slots=True, eq=False)
class JournalSegment:
    """A segment of `nbytes` bytes, and where the frames of every session are in it: 12 bytes per frame.

    Without a `salt` its head is damaged and nothing can be read.
    """

    number: int
    salt: int | None
    nbytes: int = HEAD_NBYTES
    _offsets: dict[int, array[int]] = field(default_factory=dict)
    _lengths: dict[int, array[int]] = field(default_factory=dict)

    def add(self, session: int, offset: int, length: int) -> None:
        """Add a frame that is behind all others."""
        self._offsets.setdefault(session, array("Q")).append(offset)
        self._lengths.setdefault(session, array("I")).append(length)

    def cut(self, end: int) -> None:
        """Remove what starts at `end` or later."""
        self.nbytes = end
        for session, offsets in list(self._offsets.items()):
            while offsets and offsets[-1] >= end:
                offsets.pop()
                self._lengths[session].pop()
            if not offsets:
                del self._offsets[session], self._lengths[session]

    def frames(self, file: int) -> FrameScanner:
        """Return what reads the frames of its open file."""
        return FrameScanner(FRAMES, file, self.salt or 0)

    def survey(self, file: int, *, payloads: bool) -> tuple[int, list[ScannedFrame]]:
        """Add all frames of its file; return where the last whole one ends, and the damaged ranges."""
        whole, damage = HEAD_NBYTES, list[ScannedFrame]()
        for found in self.frames(file).scan(self.nbytes, payloads=payloads):
            if found.header is None or not found.sound:
                damage.append(found)
                continue
            whole = found.offset + found.nbytes
            if found.header.kind != BLANK:
                self.add(found.header.numbers[0], found.offset, found.nbytes)
        return whole, damage

    def places(self, session: int) -> Iterator[JournalPlace]:
        """Return an iterator over the session's frames, first to last."""
        pairs = zip(self._offsets.get(session, ()), self._lengths.get(session, ()), strict=True)
        return (JournalPlace(self.number, offset, length) for offset, length in pairs)

    @property
    def sessions(self) -> frozenset[int]:
        """The sessions that have a frame in this segment."""
        return frozenset(self._offsets)


def path_of(folder: Path, number: int) -> Path:
    """Return the path of the segment `number`, 1 to `LAST_NUMBER`."""
    return folder / name_of(number)


def list_segments(folder: Path) -> list[int]:
    """Return the numbers of the segments in `folder`, in order; files with other names are ignored."""
    return [number for number in find_numbers(os.listdir(folder)) if number > 0]


def create_segment(folder: Path, number: int) -> tuple[int, int]:
    """Create the segment `number` and return its descriptor and salt.

    Raises `StoreError` after `LAST_NUMBER`, and `OSError`, leaving no file behind.
    """
    if number > LAST_NUMBER:
        raise StoreError(folder, "has come to the end of its segments' numbers")
    salt = secrets.randbits(64)
    path = path_of(folder, number)
    file = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        write_all(file, [HEADS.pack(VERSION, 0, number, salt)], 0)
    except BaseException:
        os.close(file)
        path.unlink(missing_ok=True)
        raise
    return file, salt


def read_head(file: int, path: Path, number: int) -> JournalSegment:
    """Return a segment without its frames, and without a salt where the head is not that of the segment `number`.

    Raises `StoreError` for a segment of a newer version, and `OSError`.
    """
    version, _, stated, salt = HEADS.read(file) or (VERSION, 0, None, 0)
    if version > VERSION:
        raise StoreError(path, f"is of version {version}; this DeepProf reads {VERSION}", "update DeepProf")
    return JournalSegment(number, salt if stated == number else None, os.fstat(file).st_size)
