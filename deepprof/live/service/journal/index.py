"""Where the frames of each session lie in one segment: 12 bytes per frame."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from deepprof.live.service.journal.frames import JournalPlace

__all__ = ["SegmentIndex"]


class SegmentIndex:
    """The frames of one segment by session, in the order of their offsets."""

    def __init__(self, segment: int) -> None:
        self.segment = segment
        self._offsets: dict[int, array[int]] = {}
        self._lengths: dict[int, array[int]] = {}

    def add(self, session: int, offset: int, length: int) -> None:
        """Add a frame that lies behind all others."""
        self._offsets.setdefault(session, array("Q")).append(offset)
        self._lengths.setdefault(session, array("I")).append(length)

    def cut(self, end: int) -> None:
        """Remove the frames that start at `end` or later."""
        for session, offsets in list(self._offsets.items()):
            while offsets and offsets[-1] >= end:
                offsets.pop()
                self._lengths[session].pop()
            if not offsets:
                del self._offsets[session], self._lengths[session]

    def places(self, session: int) -> Iterator[JournalPlace]:
        """Return an iterator over the session's frames, first to last."""
        pairs = zip(self._offsets.get(session, ()), self._lengths.get(session, ()), strict=True)
        return (JournalPlace(self.segment, offset, length) for offset, length in pairs)

    @property
    def sessions(self) -> frozenset[int]:
        """The sessions that have a frame in this segment."""
        return frozenset(self._offsets)
