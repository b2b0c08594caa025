"""The files of a log: their names, the head of each, its frames read around damage, and appending to the last one."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from deepprof.live.segments.frame_format import FrameFormat, FrameHeader, matches

NAME = re.compile(r"(\d{12})\.seg")
HEAD_NBYTES = 40
PEEK_NBYTES = 1 << 14  # read at once to get a header; it often contains many small frames
SEARCH_NBYTES = 1 << 20
BUFFERS = 1024  # most buffers that one system call writes (IOV_MAX)


def name_of(number: int) -> str:
    """Return a segment's file name."""
    return f"{number:012d}.seg"


def find_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the segments among file names, in order."""
    return sorted(int(found[1]) for name in names if (found := NAME.fullmatch(name)))


class HeadFormat:
    """The head of a log's segments: magic, numbers, their CRC-32, and zeros up to `HEAD_NBYTES`."""

    def __init__(self, magic: bytes, numbers: str) -> None:
        self.magic, self.fields = magic, struct.Struct(f"<{len(magic)}s{numbers}")

    def pack(self, *numbers: int) -> bytes:
        """Return a head with these numbers."""
        fields = self.fields.pack(self.magic, *numbers)
        return (fields + zlib.crc32(fields).to_bytes(4, "little")).ljust(HEAD_NBYTES, b"\0")

    def read(self, file: int) -> tuple[int, ...] | None:
        """Return the numbers of a file's head, None where it has no whole one. Raises `OSError`."""
        head = os.pread(file, HEAD_NBYTES, 0)
        fields, crc = head[: self.fields.size], head[self.fields.size : self.fields.size + 4]
        if len(head) < HEAD_NBYTES or zlib.crc32(fields).to_bytes(4, "little") != crc:
            return None
        magic, *numbers = self.fields.unpack(fields)
        return tuple(numbers) if magic == self.magic else None


@dataclass(frozen=True, slots=True)
class ScannedFrame:
    """`nbytes` from `offset` on: a frame if `sound`, else damaged bytes; `header` is the frame's, if it is whole.

    `torn` bytes reach to the end of what is read: a frame that was never written completely, or whose end is lost.
    """

    offset: int
    nbytes: int
    header: FrameHeader | None
    sound: bool
    torn: bool = False
    payload: bytes = b""


class FrameScanner:
    """Reads the frames of one open segment; headers are read a block at a time. All methods raise `OSError`."""

    def __init__(self, frames: FrameFormat, file: int, salt: int) -> None:
        self.frames, self.file, self.salt = frames, file, salt
        self._start, self._block = 0, b""

    def scan(self, end: int, start: int = HEAD_NBYTES, *, payloads: bool = True) -> Iterator[ScannedFrame]:
        """Yield the bytes from `start` to `end`, each in exactly one `ScannedFrame`, in order.

        Without `payloads` these are neither read nor checked, which costs a read per frame.
        """
        while start < end:
            found = self.look(start, end, payloads=payloads)
            yield found
            start += found.nbytes

    def look(self, offset: int, end: int, *, payloads: bool = True) -> ScannedFrame:
        """Return the frame or the damaged bytes at `offset`."""
        header = self._read_header(offset, end)
        if header is None:
            following = self._find(offset + 1, end) if self.frames.is_searched else None
            return ScannedFrame(offset, (following or end) - offset, None, sound=False, torn=following is None)
        nbytes = self.frames.header_nbytes + header.length
        if offset + nbytes > end:
            return ScannedFrame(offset, end - offset, header, sound=False, torn=True)
        if not payloads or header.kind == self.frames.blank:
            return ScannedFrame(offset, nbytes, header, sound=True)
        payload = self._read_payload(offset + self.frames.header_nbytes, header.length)
        if not matches(header, payload, self.salt, offset):
            return ScannedFrame(offset, nbytes, header, sound=False)
        return ScannedFrame(offset, nbytes, header, sound=True, payload=payload)

    def _read_header(self, offset: int, end: int) -> FrameHeader | None:
        if not self._start <= offset <= self._start + len(self._block) - self.frames.header_nbytes:
            self._start, self._block = offset, os.pread(self.file, min(PEEK_NBYTES, end - offset), offset)
        return self.frames.unpack(self._block, offset - self._start, self.salt, offset)

    def _read_payload(self, offset: int, nbytes: int) -> bytes:
        at = offset - self._start
        return self._block[at : at + nbytes] if at + nbytes <= len(self._block) else os.pread(self.file, nbytes, offset)

    def _find(self, start: int, end: int) -> int | None:
        """Return the offset of the first whole header from `start` on, None where there is none before `end`."""
        while start < end:
            block = os.pread(self.file, min(SEARCH_NBYTES, end - start), start)
            at = block.find(self.frames.magic)
            while at >= 0 and at + self.frames.header_nbytes <= len(block):
                if self.frames.unpack(block, at, self.salt, start + at) is not None:
                    return start + at
                at = block.find(self.frames.magic, at + 1)
            if start + len(block) >= end or not block:
                return None
            start += max(len(block) - self.frames.header_nbytes, 1)
        return None


class SegmentWriter:
    """Appends to one open segment: what a failed write left behind is cut off before anything else is written."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._surplus: int | None = None  # bytes from there on are to be cut off

    def write(self, parts: Sequence[bytes], offset: int) -> None:
        """Write all of `parts` at `offset`, the end of the file, or nothing. Raises `OSError`."""
        self.mend()
        try:
            write_all(self.file, parts, offset)
        except BaseException:
            self.cut(offset)
            raise

    def cut(self, offset: int) -> None:
        """Cut off what is behind `offset`; where that fails the next `mend` repeats it."""
        self._surplus = offset
        with suppress(OSError):
            self.mend()

    def mend(self) -> None:
        """Cut off what is still to be cut off. Raises `OSError`."""
        if self._surplus is not None:
            os.ftruncate(self.file, self._surplus)
            self._surplus = None

    def close(self) -> None:
        """Close the file; writing what was not synced is left to the operating system."""
        if self.file >= 0:
            os.close(self.file)
        self.file = -1


def write_all(file: int, parts: Sequence[bytes], offset: int) -> int:
    """Write `parts` at `offset` and return the offset after them; on `OSError` any part of them may be written."""
    left = [memoryview(part) for part in parts if part]
    while left:
        wrote = os.pwritev(file, left[:BUFFERS], offset)
        offset += wrote
        done = 0
        while done < len(left) and wrote >= len(left[done]):
            wrote -= len(left[done])
            done += 1
        left = left[done:]
        if wrote:
            left[0] = left[0][wrote:]
    return offset
