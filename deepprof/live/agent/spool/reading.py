"""Reads messages back from segments; a damaged one is replaced by a gap and its names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deepprof.live.agent.spool.fillers import make_gap, make_names
from deepprof.live.agent.spool.segments import END, FRAMES, SpoolSegment, is_durable
from deepprof.live.agent.spool.spool_folder import SpoolFolder
from deepprof.live.segments.segment_files import HEAD_NBYTES, FrameScanner, name_of
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import End

DAMAGED = "damaged"


@dataclass(frozen=True, order=True, slots=True)
class SpoolCursor:
    """A place in a spool: the message that starts there is the next to read."""

    segment: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class SpoolMessage:
    """A message as it was appended: its records, the `names` known after it, and where the next one starts."""

    payload: bytes
    first: int
    count: int
    names: int
    is_end: bool
    after: SpoolCursor

    @property
    def end(self) -> int:
        """The number after its last record."""
        return self.first + self.count

    def parse(self) -> SendRequest:
        """Return the message itself."""
        return SendRequest.FromString(self.payload)

    def is_durable(self, durable: int) -> bool:
        """Return whether it is durable when all records below `durable` are."""
        return not self.is_end and is_durable(self.end, self.count, durable)


@dataclass(frozen=True, slots=True)
class SpoolReader:
    """Reads the segments as they are now; `texts` returns the names of the ids [first, until)."""

    folder: SpoolFolder
    segments: Mapping[int, SpoolSegment]
    texts: Callable[[int, int], list[str]]

    def read(self, since: SpoolCursor) -> Iterator[SpoolMessage]:
        """Yield the messages from `since` on. Raises `OSError`."""
        numbers = [number for number in self.segments if number >= since.segment]
        for number, following in zip(numbers, [*numbers[1:], None], strict=True):
            segment = self.segments[number]
            yield from self.read_segment(segment, since.offset if number == since.segment else HEAD_NBYTES)
            if following is not None:
                yield from self.read_hole(segment, self.segments[following])

    def read_segment(self, segment: SpoolSegment, offset: int) -> Iterator[SpoolMessage]:
        """Yield the messages of a segment from `offset` on."""
        offset = max(offset, HEAD_NBYTES)
        if offset >= segment.size:
            return
        names = segment.names_first
        file = self.folder.open(name_of(segment.number))
        try:
            for found in FrameScanner(FRAMES, file, segment.number).scan(segment.size, offset):
                frame, after = found.header, SpoolCursor(segment.number, found.offset + found.nbytes)
                if frame is None or found.torn:  # a header was damaged after the spool was opened
                    yield from self.fill(segment.next, 0, names, segment.names, after)
                    return
                first, count, _, until = frame.numbers
                if found.sound or frame.kind == END:
                    payload = found.payload if found.sound else SendRequest(end=End()).SerializeToString()
                    yield SpoolMessage(payload, first, count, until, frame.kind == END, after)
                else:
                    yield from self.fill(first, count, names, until, after)
                names = until
        finally:
            os.close(file)

    def read_hole(self, segment: SpoolSegment, following: SpoolSegment) -> Iterator[SpoolMessage]:
        """Yield the replacement for what is missing between two segments."""
        lost, names = following.first - segment.next, (segment.names, following.names_first)
        if segment.is_torn or lost or names[0] != names[1]:
            yield from self.fill(segment.next, lost, *names, SpoolCursor(following.number, HEAD_NBYTES))

    def fill(self, first: int, lost: int, names: int, until: int, after: SpoolCursor) -> Iterator[SpoolMessage]:
        """Yield the names [names, until), and a gap of `lost` records from `first` on."""
        for request in make_names(first, names, self.texts(names, until)):
            names += len(request.batch.names)
            yield SpoolMessage(request.SerializeToString(), first, 0, names, False, after)
        payload = make_gap(first, lost, DAMAGED).SerializeToString()
        yield SpoolMessage(payload, first, lost, until, False, after)
