"""The journal: every accepted message as it came, in segment files that one thread appends to and any may read."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deepprof.live.service.folder import StoreError, naming, open_plain, prepare_folder, sync_folder
from deepprof.live.service.journal.frames import HEADER, JournalFrame, JournalPlace, pack_header
from deepprof.live.service.journal.index import SegmentIndex
from deepprof.live.service.journal.segment_reader import JournalSegment, SegmentReader
from deepprof.live.service.journal.segments import (
    HEAD,
    LAST_NUMBER,
    ScannedFrame,
    create_segment,
    list_segments,
    path_of,
    read_salt,
    scan,
    write_all,
)

__all__ = ["Journal"]

SEGMENT_NBYTES, TOTAL_NBYTES = 64 << 20, 2 << 30


class Journal(SegmentReader):
    """What was accepted, in order; nothing that was synced is lost, whatever becomes of the process or the power.

    One thread calls `append`, `sync` and `release`; `read`, `window` and `replay` may be called from any. After an
    `OSError` from `append` or `sync` exactly what lies before `end` is in the journal: what was appended but not
    synced may have been taken back (a disk that failed to sync no longer tells what it holds). It stays usable, and
    works again when the disk does.

    Memory: 12 bytes a frame that is kept. Descriptors: one, and one more for each reader at work.
    """

    def __init__(self, folder: Path, segment_nbytes: int, total_nbytes: int) -> None:
        super().__init__(folder, segment_nbytes, total_nbytes)
        self.repaired = 0
        self._file = -1
        self._torn = self._unlisted = False
        self._synced = self.end

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        segment_nbytes: int = SEGMENT_NBYTES,
        total_nbytes: int = TOTAL_NBYTES,
        beyond: JournalPlace | None = None,
    ) -> Journal:
        """Open the journal in `folder`, made where it is missing, and cut off what a crash left half written.

        `repaired` says how many bytes were cut, `damages` what else is damaged. `beyond` is the farthest position that
        anybody has noted: where the journal ends before it, new frames go to a segment after it, so that a position
        never comes to stand for other frames. Raises `StoreError` for a folder with something else in a segment's
        place or of a newer version, and `OSError`.
        """
        prepare_folder(folder)
        journal = cls(folder, segment_nbytes, total_nbytes)
        numbers = list_segments(folder)
        for number in numbers:
            with naming(path_of(folder, number)):
                journal._load(number, last=number == numbers[-1])
        with naming(folder):
            journal._start(beyond or journal.end)
        return journal

    def _load(self, number: int, *, last: bool) -> None:
        """Take in a segment that is there; the last one is checked whole, and its torn end cut off."""
        path = path_of(self.folder, number)
        file = open_plain(path, os.O_RDWR if last else os.O_RDONLY)
        try:
            segment = JournalSegment(
                number, read_salt(file, path, number), os.fstat(file).st_size, SegmentIndex(number)
            )
            if last and segment.salt is None and not any(os.pread(file, HEAD + 1, HEAD)):
                self._drop_unborn(path, segment)  # killed before its head was on the disk: nothing was synced in it
                return
            self._segments[number] = segment
            self._take_in(segment, file, last=last)
        finally:
            os.close(file)
        self.end = JournalPlace(number, segment.nbytes, 0)

    def _drop_unborn(self, path: Path, segment: JournalSegment) -> None:
        path.unlink()
        self.repaired += segment.nbytes
        self.end = JournalPlace(segment.number, HEAD, 0)  # its number is used up

    def _take_in(self, segment: JournalSegment, file: int, *, last: bool) -> None:
        """Note the segment's frames and damage; of the last one, cut what lies behind its last whole frame."""
        if segment.salt is None:
            self._note(ScannedFrame(0, segment.nbytes, None, sound=False), segment.number)
            return
        damage, whole = list[ScannedFrame](), HEAD
        for found in scan(file, segment.salt, segment.nbytes, payloads=last):
            if not found.sound:
                damage.append(found)
                continue
            whole = found.offset + found.nbytes
            if found.header is not None and found.header.kind is not None:
                segment.index.add(found.header.session, found.offset, found.nbytes)
        if last:
            damage = [found for found in damage if found.offset < whole]
            self._cut(segment, file, whole)
        for found in damage:
            self._note(found, segment.number)

    def _cut(self, segment: JournalSegment, file: int, whole: int) -> None:
        """Cut the segment's torn end off, and have the rest on the disk before anything is derived from it."""
        self.repaired += segment.nbytes - whole
        if segment.nbytes > whole:
            os.ftruncate(file, whole)
        segment.nbytes = whole
        os.fsync(file)

    def _start(self, beyond: JournalPlace) -> None:
        """Go on in the last segment, or in a new one where any position behind the last one's end may be noted."""
        last = self._segments.get(self.end.segment)
        usable = last is not None and last.salt is not None and not self.repaired
        if usable and beyond.stop <= self.end.stop:
            self._file = open_plain(path_of(self.folder, self.end.segment), os.O_RDWR)
            self._synced, self._unlisted = self.end, True
        else:
            self._create(max(self.end.segment, beyond.segment) + 1)
        self.sync()

    def append(self, frames: Sequence[JournalFrame]) -> list[JournalPlace]:
        """Write `frames` behind the others, without a sync, all or none; returns where they lie.

        They go into one segment together. Raises `OSError`, and ValueError for what does not fit in a frame.
        """
        self._mend()
        nbytes = sum(HEADER + len(frame.payload) for frame in frames)
        if self.end.offset > HEAD and self.end.offset + nbytes > self.segment_nbytes:
            self.sync()
            self._create(self.end.segment + 1)
        segment = self._segments[self.end.segment]
        places, buffers = lay_out(frames, segment, self.end.offset)
        self._write(buffers)
        with self._lock:
            for frame, place in zip(frames, places, strict=True):
                segment.index.add(frame.session, place.offset, place.length)
            segment.nbytes += nbytes
            self.end = JournalPlace(segment.number, segment.nbytes, 0)
        return places

    def _write(self, buffers: Sequence[bytes]) -> None:
        try:
            write_all(self._file, buffers, self.end.offset)
        except BaseException:
            self._torn = True
            with suppress(OSError):  # else the next append does it, or says why not
                self._mend()
            raise

    def _mend(self) -> None:
        """Cut off what was written behind `end`; until that succeeds nothing is written there."""
        if self._file < 0:
            raise OSError(errno.EBADF, "the journal is closed", str(self.folder))
        if self._torn:
            os.ftruncate(self._file, self.end.offset)
            self._torn = False

    def _create(self, number: int) -> None:
        """Begin the segment `number`."""
        if number > LAST_NUMBER:
            raise StoreError(self.folder, "has come to the end of its segments' numbers")
        file, salt = create_segment(self.folder, number)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._unlisted = file, True
        with self._lock:
            self._segments[number] = JournalSegment(number, salt, HEAD, SegmentIndex(number))
            self._synced = self.end = JournalPlace(number, HEAD, 0)

    def sync(self) -> None:
        """Make everything before `end` survive a power loss. Raises `OSError` when that cannot be had.

        Then what was appended since the last sync is taken back: its sender will send it again.
        """
        self._mend()
        try:
            os.fdatasync(self._file)
            if self._unlisted:
                sync_folder(self.folder)
        except BaseException:  # a bug's too
            self._take_back()
            raise
        self._unlisted, self._synced = False, self.end

    def _take_back(self) -> None:
        with self._lock:
            segment, self.end = self._segments[self._synced.segment], self._synced
            segment.index.cut(self.end.offset)
            segment.nbytes = self.end.offset
        self._torn = True
        with suppress(OSError):
            self._mend()

    def close(self) -> None:
        """Close the file; what was not synced is in the hands of the operating system."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def lay_out(
    frames: Sequence[JournalFrame], segment: JournalSegment, offset: int
) -> tuple[list[JournalPlace], list[bytes]]:
    """Return the places of `frames` from `offset` on, and their headers and payloads in turn."""
    places, buffers = [], list[bytes]()
    for frame in frames:
        buffers += pack_header(frame, segment.salt or 0, offset), frame.payload
        places.append(JournalPlace(segment.number, offset, HEADER + len(frame.payload)))
        offset = places[-1].offset + places[-1].length
    return places, buffers
