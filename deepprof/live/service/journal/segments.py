"""One file of the journal: its head, and a scan of its frames that skips damaged bytes."""

from __future__ import annotations

import os
import re
import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepprof.live.service.folder import StoreError, open_plain
from deepprof.live.service.journal.frames import HEADER, MAGIC, JournalFrameHeader, matches, unpack_header

__all__ = [
    "HEAD",
    "LAST_NUMBER",
    "ScannedFrame",
    "create_segment",
    "list_segments",
    "path_of",
    "read_salt",
    "scan",
    "write_all",
]

NAME = re.compile(r"(\d{12})\.seg")
LAST_NUMBER = 10**12 - 1
MAGIC_HEAD = b"DPjournl"
VERSION = 1
FIELDS = struct.Struct("<8sIIQQ")  # magic, version, zero, number, salt; CRC-32 and four zeros follow
CRC = struct.Struct("<II")
HEAD = FIELDS.size + CRC.size
PEEK_NBYTES = 1 << 14  # read at once to get a header; it often contains many small frames
SEARCH_NBYTES = 1 << 20
BUFFERS = 1024  # most buffers that one system call writes (IOV_MAX)


@dataclass(frozen=True, slots=True)
class ScannedFrame:
    """`nbytes` from `offset` on: a frame if `sound`, else damaged bytes; `header` is the frame's, if it is whole.

    `torn` bytes reach to the end of the file: a frame that was never written completely, or whose end is lost.
    """

    offset: int
    nbytes: int
    header: JournalFrameHeader | None
    sound: bool
    torn: bool = False


def path_of(folder: Path, number: int) -> Path:
    """Return the path of the segment `number`, 1 to `LAST_NUMBER`."""
    return folder / f"{number:012d}.seg"


def list_segments(folder: Path) -> list[int]:
    """Return the numbers of the segments in `folder`, in order; files with other names are ignored."""
    found = (NAME.fullmatch(entry.name) for entry in os.scandir(folder))
    return sorted(number for match in found if match is not None and (number := int(match[1])) > 0)


def create_segment(folder: Path, number: int) -> tuple[int, int]:
    """Create the segment `number` and return its descriptor and salt; raises `OSError`, leaving no file behind."""
    salt = secrets.randbits(64)
    fields = FIELDS.pack(MAGIC_HEAD, VERSION, 0, number, salt)
    path = path_of(folder, number)
    file = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        write_all(file, [fields + CRC.pack(zlib.crc32(fields), 0)], 0)
    except BaseException:
        os.close(file)
        path.unlink(missing_ok=True)
        raise
    return file, salt


def read_salt(file: int, path: Path, number: int) -> int | None:
    """Return the salt of a segment, None where its head is not that of the segment `number`.

    Raises `StoreError` for a segment of a newer version.
    """
    head = os.pread(file, HEAD, 0)
    if (
        len(head) < HEAD
        or head[:8] != MAGIC_HEAD
        or CRC.unpack_from(head, FIELDS.size)[0] != zlib.crc32(head[: FIELDS.size])
    ):
        return None
    _, version, _, stated, salt = FIELDS.unpack_from(head)
    if version > VERSION:
        raise StoreError(path, f"is of version {version}; this DeepProf reads {VERSION}", "update DeepProf")
    return int(salt) if stated == number else None


def write_all(file: int, buffers: Sequence[bytes], offset: int) -> None:
    """Write all of `buffers`, one after the other, from `offset` on; raises `OSError`."""
    left = [memoryview(buffer) for buffer in buffers if buffer]
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


def scan(file: int, salt: int, end: int, *, payloads: bool, start: int = HEAD) -> Iterator[ScannedFrame]:
    """Yield the bytes from `start` to `end`, each in exactly one `ScannedFrame`, in order. Raises `OSError`.

    With `payloads` every checksum is checked, without it only those of headers, which costs a read per frame.
    """
    peek = HeaderScanner(file)
    while start < end:
        found = look(peek, salt, start, end, payloads=payloads)
        yield found
        start += found.nbytes


def look(peek: HeaderScanner, salt: int, offset: int, end: int, *, payloads: bool) -> ScannedFrame:
    """Return the frame or the damaged bytes at `offset`."""
    header = peek.header(offset, salt)
    if header is None:
        following = find_header(peek.file, salt, offset + 1, end)
        return ScannedFrame(offset, (following or end) - offset, None, sound=False, torn=following is None)
    nbytes = HEADER + header.length
    if offset + nbytes > end:
        return ScannedFrame(offset, end - offset, header, sound=False, torn=True)
    if not payloads or header.kind is None:
        return ScannedFrame(offset, nbytes, header, sound=True)
    payload = os.pread(peek.file, header.length, offset + HEADER)
    return ScannedFrame(offset, nbytes, header, sound=matches(header, payload, salt, offset))


def find_header(file: int, salt: int, start: int, end: int) -> int | None:
    """Return the offset of the first whole header from `start` on, None where there is none before `end`."""
    while start < end:
        block = os.pread(file, min(SEARCH_NBYTES, end - start), start)
        at = block.find(MAGIC)
        while at >= 0 and at + HEADER <= len(block):
            if unpack_header(block, at, salt, start + at) is not None:
                return start + at
            at = block.find(MAGIC, at + 1)
        if start + len(block) >= end or not block:
            return None
        start += max(len(block) - HEADER, 1)
    return None


class HeaderScanner:
    """Headers of a file, read a block at a time."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._start, self._block = 0, b""

    def header(self, offset: int, salt: int) -> JournalFrameHeader | None:
        """Return the header at `offset`, or None."""
        if not self._start <= offset <= self._start + len(self._block) - HEADER:
            self._start, self._block = offset, os.pread(self.file, PEEK_NBYTES, offset)
        return unpack_header(self._block, offset - self._start, salt, offset)
