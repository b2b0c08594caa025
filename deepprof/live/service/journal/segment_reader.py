"""The segments that are kept: any thread reads them, and the oldest are removed when space is needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deepprof.live.service.folder import StoreError, open_plain, require_kind, sync_folder
from deepprof.live.service.journal.frames import (
    HEADER,
    JournalFrame,
    JournalFrameHeader,
    JournalPlace,
    matches,
    unpack_header,
)
from deepprof.live.service.journal.index import SegmentIndex
from deepprof.live.service.journal.segments import HEAD, ScannedFrame, path_of, scan

__all__ = ["JournalDamage", "JournalError", "JournalSegment", "SegmentReader"]

DAMAGES = 1000  # most damages that are kept; all are counted


class JournalError(StoreError):
    """A frame that cannot be read: no longer kept, or damaged."""


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """Damaged bytes of the journal, and the numbers of the frame that they were where its header is whole."""

    place: JournalPlace
    session: int | None = None
    first: int = 0
    count: int = 0


@dataclass(slots=True, eq=False)
class JournalSegment:
    """A segment that is kept, of `nbytes` bytes; without a `salt` its head is damaged and nothing can be read."""

    number: int
    salt: int | None
    nbytes: int
    index: SegmentIndex


class SegmentReader:
    """The reading half of the journal: segments by number, the damage found in them, and the number of pins.

    `end` is the position behind the last frame; the writing thread moves it.
    """

    def __init__(self, folder: Path, segment_nbytes: int, total_nbytes: int) -> None:
        self.folder, self.segment_nbytes, self.total_nbytes = folder, segment_nbytes, total_nbytes
        self.damaged = 0
        self.end = JournalPlace(0, 0, 0)
        self._damages: dict[JournalPlace, JournalDamage] = {}
        self._segments: dict[int, JournalSegment] = {}
        self._lock = threading.Lock()
        self._pins = 0

    def _note(self, found: ScannedFrame, number: int) -> None:
        """Count a damaged range, once, and keep its place."""
        place, header = JournalPlace(number, found.offset, found.nbytes), found.header
        with self._lock:
            if place in self._damages:
                return
            self.damaged += 1
            if len(self._damages) < DAMAGES:
                self._damages[place] = describe(place, header)

    @property
    def damages(self) -> tuple[JournalDamage, ...]:
        """The first thousand of the `damaged` places found so far, in the order in which they were found."""
        with self._lock:
            return tuple(self._damages.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all segments."""
        with self._lock:
            return sum(segment.nbytes for segment in self._segments.values())

    @property
    def oldest(self) -> JournalPlace:
        """The position of the first frame that can still be there."""
        with self._lock:
            return JournalPlace(min(self._segments), HEAD, 0)

    @property
    def sessions(self) -> frozenset[int]:
        """The sessions that still have a frame."""
        with self._lock:
            return frozenset().union(*(segment.index.sessions for segment in self._segments.values()))

    def read(self, place: JournalPlace) -> JournalFrame:
        """Return the frame at `place`; raises `JournalError` when it is no longer kept or damaged."""
        path = path_of(self.folder, place.segment)
        with self._opened(place.segment) as (file, salt):
            content = os.pread(file, place.length, place.offset)
        header = unpack_header(content, 0, salt, place.offset)
        payload = content[HEADER:]
        if header is None or header.kind is None or not matches(header, payload, salt, place.offset):
            self._note(ScannedFrame(place.offset, place.length, header, sound=False), place.segment)
            raise JournalError(path, f"the frame at byte {place.offset} is damaged")
        return JournalFrame(header.session, header.kind, header.first, header.count, payload)

    @contextmanager
    def _opened(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield a descriptor and the salt of a segment; raises `JournalError`."""
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
                self._note(ScannedFrame(0, segment.nbytes, None, sound=False), number)
            raise JournalError(path, "is gone") from error
        try:
            yield file, segment.salt
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
            start = since[1] if segment.number == since[0] else HEAD
            with suppress(JournalError):  # removed while earlier segments were read
                yield from self._replay(segment.number, max(start, HEAD), stop)

    def _replay(self, number: int, start: int, stop: int) -> Iterator[tuple[JournalPlace, JournalFrame]]:
        with self._opened(number) as (file, salt):
            for found in scan(file, salt, stop, payloads=False, start=start):
                header = found.header
                if header is not None and found.sound and header.kind is None:
                    continue
                payload = os.pread(file, header.length, found.offset + HEADER) if found.sound and header else b""
                if header is None or header.kind is None or not matches(header, payload, salt, found.offset):
                    self._note(found, number)
                else:
                    frame = JournalFrame(header.session, header.kind, header.first, header.count, payload)
                    yield JournalPlace(number, found.offset, found.nbytes), frame

    def window(self, session: int) -> list[JournalPlace]:
        """Return the places of the session's frames that are still kept, oldest first."""
        with self._lock:
            parts = [segment.index.places(session) for _, segment in sorted(self._segments.items())]
            return [place for part in parts for place in part]

    def release(self, before: JournalPlace) -> int:
        """Remove the oldest segments that end before `before` until the next one has space; returns how many.

        The states derived up to `before` must be on the disk already (`History.sync`). Later segments stay, even above
        the total: recovery needs them. No segment is removed while a reader holds a `pin`. Raises `OSError`.
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


def describe(place: JournalPlace, header: JournalFrameHeader | None) -> JournalDamage:
    """Return the damage at `place`, with the numbers of its header if there is one."""
    return JournalDamage(place) if header is None else JournalDamage(place, header.session, header.first, header.count)
