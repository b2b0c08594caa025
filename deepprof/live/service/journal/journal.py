"""The journal: every accepted message as it came, in segment files that one thread writes and any thread may read."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from deepprof.live.segments.segment_files import HEAD_NBYTES, FrameScanner, SegmentWriter
from deepprof.live.service.folder import StoreError, naming, open_plain, prepare_folder, require_kind, sync_folder
from deepprof.live.service.journal.segments import (
    HEADER,
    JournalFrame,
    JournalPlace,
    JournalSegment,
    create_segment,
    frame_of,
    list_segments,
    pack_header,
    path_of,
    read_head,
)

SEGMENT_NBYTES, TOTAL_NBYTES = 64 << 20, 2 << 30
DAMAGES = 1000  # most damages that are kept; all are counted


class JournalError(StoreError):
    """A frame that cannot be read: no longer kept, or damaged."""


class Journal:
    """The accepted messages, in order; synced messages survive a crash of the process and a power loss.

    One thread calls `append`, `sync` and `release`; `read`, `window` and `replay` may be called from any thread. After
    an `OSError` from `append` or `sync` the journal contains exactly the frames before `end`: those appended but not
    synced may have been removed (after a failed sync it is unknown what the disk holds). The journal stays usable,
    and works again when the disk does.

    Memory: 12 bytes per frame that is kept. Descriptors: one, and one more for every active reader.
    """

    def __init__(self, folder: Path, segment_nbytes: int, total_nbytes: int) -> None:
        self.folder, self.segment_nbytes, self.total_nbytes = folder, segment_nbytes, total_nbytes
        self.repaired = self.damaged = 0
        self.end = self._synced = JournalPlace(0, 0, 0)  # behind the last frame; only the writing thread moves it
        self._damages: dict[JournalPlace, None] = {}  # in the order in which they were found
        self._segments: dict[int, JournalSegment] = {}
        self._lock = threading.Lock()
        self._pins = 0
        self._writer = SegmentWriter(-1)
        self._unlisted = False

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
            segment = read_head(file, path, number)
            if last and segment.salt is None and not any(os.pread(file, HEAD_NBYTES + 1, HEAD_NBYTES)):
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
        self.end = JournalPlace(segment.number, HEAD_NBYTES, 0)  # its number is not used again

    def _take_in(self, segment: JournalSegment, file: int, *, last: bool) -> None:
        """Register the segment's frames and damage; in the last segment, cut off all behind the last whole frame."""
        if segment.salt is None:
            self._note(JournalPlace(segment.number, 0, segment.nbytes))
            return
        whole, damage = segment.survey(file, payloads=last)
        if last:
            damage = [found for found in damage if found.offset < whole]
            self._cut(segment, file, whole)
        for found in damage:
            self._note(JournalPlace(segment.number, found.offset, found.nbytes))

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
            self._writer = SegmentWriter(open_plain(path_of(self.folder, self.end.segment), os.O_RDWR))
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
        if self.end.offset > HEAD_NBYTES and self.end.offset + nbytes > self.segment_nbytes:
            self.sync()
            self._create(self.end.segment + 1)
        segment = self._segments[self.end.segment]
        places, buffers = _lay_out(frames, segment, self.end.offset)
        self._writer.write(buffers, self.end.offset)
        with self._lock:
            for frame, place in zip(frames, places, strict=True):
                segment.add(frame.session, place.offset, place.length)
            segment.nbytes += nbytes
            self.end = JournalPlace(segment.number, segment.nbytes, 0)
        return places

    def _mend(self) -> None:
        """Cut off bytes that were written behind `end`; until that succeeds nothing is written there."""
        if self._writer.file < 0:
            raise OSError(errno.EBADF, "the journal is closed", str(self.folder))
        self._writer.mend()

    def _create(self, number: int) -> None:
        """Begin the segment `number`."""
        file, salt = create_segment(self.folder, number)
        self._writer.close()
        self._writer, self._unlisted = SegmentWriter(file), True
        with self._lock:
            self._segments[number] = JournalSegment(number, salt)
            self._synced = self.end = JournalPlace(number, HEAD_NBYTES, 0)

    def sync(self) -> None:
        """Make everything before `end` survive a power loss. Raises `OSError` where that fails.

        Then the frames appended since the last sync are removed: their senders will send them again.
        """
        self._mend()
        try:
            os.fdatasync(self._writer.file)
            if self._unlisted:
                sync_folder(self.folder)
        except BaseException:  # also an error that is a bug
            self._take_back()
            raise
        self._unlisted, self._synced = False, self.end

    def _take_back(self) -> None:
        with self._lock:
            self.end = self._synced
            self._segments[self.end.segment].cut(self.end.offset)
        self._writer.cut(self.end.offset)

    def _note(self, place: JournalPlace) -> None:
        """Count a damaged range, once, and keep its place."""
        with self._lock:
            if place in self._damages:
                return
            self.damaged += 1
            if len(self._damages) < DAMAGES:
                self._damages[place] = None

    @property
    def damages(self) -> tuple[JournalPlace, ...]:
        """The first thousand of the `damaged` places found so far, in the order in which they were found."""
        with self._lock:
            return tuple(self._damages)

    @property
    def nbytes(self) -> int:
        """Bytes of all segments."""
        with self._lock:
            return sum(segment.nbytes for segment in self._segments.values())

    def read(self, place: JournalPlace) -> JournalFrame:
        """Return the frame at `place`; raises `JournalError` when it is no longer kept or damaged."""
        with self._opened(place.segment) as frames:
            found = frames.look(place.offset, place.offset + place.length)
        if (frame := frame_of(found)) is None:
            self._note(place)
            raise JournalError(path_of(self.folder, place.segment), f"the frame at byte {place.offset} is damaged")
        return frame

    @contextmanager
    def _opened(self, number: int) -> Iterator[FrameScanner]:
        """Yield what reads a segment's frames; raises `JournalError`."""
        with self._lock:
            segment = self._segments.get(number)
        path = path_of(self.folder, number)
        if segment is None:
            raise JournalError(path, "is no longer kept", "read what the journal still has")
        if segment.salt is None:
            raise JournalError(path, "has a damaged head")
        try:
            file = open_plain(path, os.O_RDONLY)
        except FileNotFoundError as error:
            if number in self._segments:
                self._note(JournalPlace(number, 0, segment.nbytes))
            raise JournalError(path, "is gone") from error
        try:
            yield segment.frames(file)
        finally:
            os.close(file)

    def replay(self, after: JournalPlace | None = None) -> Iterator[tuple[JournalPlace, JournalFrame]]:
        """Yield every readable frame behind `after`, in order, up to the present end.

        `after` is the place of a frame, or a former `end`. Damaged frames are left out, and added to `damages`: a
        session detects a missing frame by its record numbers.
        """
        since, end = after.stop if after is not None else (0, 0), self.end
        with self._lock:
            segments = [segment for number, segment in sorted(self._segments.items()) if number >= since[0]]
        for segment in segments:
            if segment.salt is None or segment.number > end.segment:
                continue
            stop = end.offset if segment.number == end.segment else segment.nbytes
            start = since[1] if segment.number == since[0] else HEAD_NBYTES
            with suppress(JournalError):  # removed while earlier segments were read
                yield from self._replay(segment.number, max(start, HEAD_NBYTES), stop)

    def _replay(self, number: int, start: int, stop: int) -> Iterator[tuple[JournalPlace, JournalFrame]]:
        with self._opened(number) as frames:
            for found in frames.scan(stop, start):
                place = JournalPlace(number, found.offset, found.nbytes)
                if not found.sound:
                    self._note(place)
                elif (frame := frame_of(found)) is not None:
                    yield place, frame

    def window(self, session: int) -> list[JournalPlace]:
        """Return the places of the session's frames that are still kept, oldest first."""
        with self._lock:
            parts = [segment.places(session) for _, segment in sorted(self._segments.items())]
            return [place for part in parts for place in part]

    def release(self, before: JournalPlace) -> int:
        """Remove the oldest segments that end before `before` until the next one has space; returns how many.

        The states derived up to `before` must be on the disk already (`History.sync`). Later segments stay, even above
        the total: recovery needs them. No segment is removed while a reader contains a `pin`. Raises `OSError`.
        """
        gone = 0
        while (number := self._surplus(before)) is not None:
            path = path_of(self.folder, number)
            with self._lock:
                segment = self._segments.pop(number)  # before the file, so that no reader reports it as damage
            try:
                if require_kind(path):
                    path.unlink()
            except BaseException:
                with self._lock:
                    self._segments[number] = segment
                raise
            gone += 1
        if gone:
            sync_folder(self.folder)
        return gone

    def _surplus(self, before: JournalPlace) -> int | None:
        """Return the number of the segment to remove next, or None."""
        with self._lock:
            oldest = min(self._segments)
            held = sum(segment.nbytes for segment in self._segments.values())
            needed = oldest >= min(before.segment, self.end.segment) or self._pins > 0
            return None if needed or held + self.segment_nbytes <= self.total_nbytes else oldest

    @contextmanager
    def pin(self) -> Iterator[None]:
        """Keep every segment while the body runs; the journal may grow beyond its total meanwhile."""
        with self._lock:
            self._pins += 1
        try:
            yield
        finally:
            with self._lock:
                self._pins -= 1

    def close(self) -> None:
        """Close the file; writing what was not synced is left to the operating system."""
        self._writer.close()


def _lay_out(
    frames: Sequence[JournalFrame], segment: JournalSegment, offset: int
) -> tuple[list[JournalPlace], list[bytes]]:
    """Return the places of `frames` from `offset` on, and their headers and payloads alternately."""
    places, buffers = [], list[bytes]()
    for frame in frames:
        buffers += pack_header(frame, segment.salt or 0, offset), frame.payload
        places.append(JournalPlace(segment.number, offset, HEADER + len(frame.payload)))
        offset = places[-1].offset + places[-1].length
    return places, buffers
