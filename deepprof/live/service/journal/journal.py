"""The journal: every accepted message as it came, in segment files that one thread writes and any thread may read."""

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
    """The accepted messages, in order; synced messages survive a crash of the process and a power loss.

    One thread calls `append`, `sync` and `release`; `read`, `window` and `replay` may be called from any thread. After
    an `OSError` from `append` or `sync` the journal holds exactly the frames before `end`: those appended but not
    synced may have been removed (after a failed sync it is unknown what the disk holds). The journal stays usable, and
    works again when the disk does.

    Memory: 12 bytes per frame that is kept. Descriptors: one, and one more for each active reader.
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
        """Open the journal in `folder`, made where it is missing, and cut off frames that a crash left half written.

        `repaired` is the number of bytes cut, `damages` lists what else is damaged. `beyond` is the farthest position
        that was saved anywhere: where the journal ends before it, new frames go to a segment after it, so that a saved
        position never denotes other frames. Raises `StoreError` for something else in a segment's place or a newer
        version, and `OSError`.
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
        """Load an existing segment; the last one is checked completely, and its torn end cut off."""
        path = path_of(self.folder, number)
        file = open_plain(path, os.O_RDWR if last else os.O_RDONLY)
        try:
            segment = JournalSegment(
                number, read_salt(file, path, number), os.fstat(file).st_size, SegmentIndex(number)
            )
            if last and segment.salt is None and not any(os.pread(file, HEAD + 1, HEAD)):
                self._drop_unborn(path, segment)  # a crash came before its head was on disk: nothing was synced in it
                return
            self._segments[number] = segment
            self._take_in(segment, file, last=last)
        finally:
            os.close(file)
        self.end = JournalPlace(number, segment.nbytes, 0)

    def _drop_unborn(self, path: Path, segment: JournalSegment) -> None:
        path.unlink()
        self.repaired += segment.nbytes
        self.end = JournalPlace(segment.number, HEAD, 0)  # its number is not used again

    def _take_in(self, segment: JournalSegment, file: int, *, last: bool) -> None:
        """Register the segment's frames and damage; in the last segment, cut off all behind the last whole frame."""
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
        """Cut off the segment's torn end, and sync the rest before anything is derived from it."""
        self.repaired += segment.nbytes - whole
        if segment.nbytes > whole:
            os.ftruncate(file, whole)
        segment.nbytes = whole
        os.fsync(file)

    def _start(self, beyond: JournalPlace) -> None:
        """Continue in the last segment, or in a new one where a position behind the last one's end may be saved."""
        last = self._segments.get(self.end.segment)
        usable = last is not None and last.salt is not None and not self.repaired
        if usable and beyond.stop <= self.end.stop:
            self._file = open_plain(path_of(self.folder, self.end.segment), os.O_RDWR)
            self._synced, self._unlisted = self.end, True
        else:
            self._create(max(self.end.segment, beyond.segment) + 1)
        self.sync()

    def append(self, frames: Sequence[JournalFrame]) -> list[JournalPlace]:
        """Append `frames`, all or none, without a sync, and return their places.

        They go into one segment together. Raises `OSError`, and ValueError for a message that does not fit in a frame.
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
            with suppress(OSError):  # where this fails the next append repeats it, and raises its error
                self._mend()
            raise

    def _mend(self) -> None:
        """Cut off bytes that were written behind `end`; until that succeeds nothing is written there."""
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
        """Make everything before `end` survive a power loss. Raises `OSError` where that fails.

        Then the frames appended since the last sync are removed: their senders will send them again.
        """
        self._mend()
        try:
            os.fdatasync(self._file)
            if self._unlisted:
                sync_folder(self.folder)
        except BaseException:  # also an error that is a bug
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
        """Close the file; writing what was not synced is left to the operating system."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def lay_out(
    frames: Sequence[JournalFrame], segment: JournalSegment, offset: int
) -> tuple[list[JournalPlace], list[bytes]]:
    """Return the places of `frames` from `offset` on, and their headers and payloads alternately."""
    places, buffers = [], list[bytes]()
    for frame in frames:
        buffers += pack_header(frame, segment.salt or 0, offset), frame.payload
        places.append(JournalPlace(segment.number, offset, HEADER + len(frame.payload)))
        offset = places[-1].offset + places[-1].length
    return places, buffers
