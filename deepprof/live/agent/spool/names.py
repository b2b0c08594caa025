"""The texts of a rank's names, in the order of their ids: they outlive the segments that carried them to the daemon."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence

import msgspec

from deepprof.live.agent.spool.spool_folder import SpoolFolder
from deepprof.live.segments.segment_files import write_all

FILE = "names"
NAMES_NBYTES = 64 << 20  # of one rank: what the daemon takes
HEADER = struct.Struct("<III")  # the first id, length and CRC-32 of a list of texts as MessagePack
BLOCK_NBYTES = 80 << 20


class SpoolNames:
    """The file of names: blocks of texts, each written before the message that contains them is appended."""

    def __init__(self, folder: SpoolFolder) -> None:
        """Open or make the file, and cut off what is torn or damaged. Raises `OSError`."""
        self.folder = folder
        self.count = self.nbytes = self.size = 0
        try:
            self.file = folder.open(FILE, os.O_RDWR | os.O_CREAT)
        except OSError:
            folder.set_aside(FILE)
            self.file = folder.open(FILE, os.O_RDWR | os.O_CREAT)
        self.restore(1 << 32)

    def restore(self, most: int) -> None:
        """Read as many names as are whole, at most `most`; what follows them is cut off."""
        self.count = self.nbytes = self.size = 0
        rest: list[str] = []
        for texts, size in self.blocks():
            if self.count + len(texts) > most:
                rest = texts[: most - self.count]
                break
            self.count, self.size = self.count + len(texts), size
            self.nbytes += sum(len(text.encode()) for text in texts)
        os.ftruncate(self.file, self.size)
        self.add(rest)

    def match(self, count: int) -> None:
        """Make the names exactly `count`: those without a message are removed, lost ones get a text that marks them."""
        if self.count > count:
            self.restore(count)
        for first in range(self.count, count, 4096):
            self.add([f"name-{number}-lost" for number in range(first, min(first + 4096, count))])

    def add(self, texts: Sequence[str]) -> int:
        """Append texts; returns the bytes that it needed. Raises `OSError`, and `ValueError` above `NAMES_NBYTES`."""
        if not texts:
            return 0
        nbytes = sum(len(text.encode()) for text in texts)
        if self.nbytes + nbytes > NAMES_NBYTES:
            raise ValueError(f"the names of a rank take more than {NAMES_NBYTES} bytes")
        payload = msgspec.msgpack.encode(list(texts))
        header = HEADER.pack(self.count, len(payload), zlib.crc32(payload, self.count))
        before, self.size = self.size, write_all(self.file, [header, payload], self.size)
        self.count, self.nbytes = self.count + len(texts), self.nbytes + nbytes
        return self.size - before

    def read(self, first: int, until: int) -> list[str]:
        """Return the texts of the ids [first, until), from disk."""
        found: list[str] = []
        at = 0
        for texts, _ in self.blocks():
            found += texts[max(first - at, 0) : max(until - at, 0)]
            at += len(texts)
            if at >= until:
                break
        return found

    def blocks(self) -> Iterator[tuple[list[str], int]]:
        """Yield the texts of every whole block, and the offset after it."""
        at = count = 0
        while len(header := os.pread(self.file, HEADER.size, at)) == HEADER.size:
            first, length, crc = HEADER.unpack(header)
            payload = os.pread(self.file, length, at + HEADER.size) if length <= BLOCK_NBYTES else b""
            if first != count or len(payload) != length or zlib.crc32(payload, first) != crc:
                return
            texts = decode(payload)
            if not texts:
                return
            at, count = at + HEADER.size + length, count + len(texts)
            yield texts, at

    def close(self) -> None:
        """Close the file."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def decode(payload: bytes) -> list[str]:
    """Return the texts of a block, none if it contains something else."""
    try:
        return msgspec.msgpack.decode(payload, type=list[str])
    except msgspec.MsgspecError:
        return []
