"""Frames and journals for the tests of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deepprof.live.segments.segment_files import HEAD_NBYTES
from deepprof.live.service.journal import Journal, JournalFrame, JournalPlace
from deepprof.live.service.journal.segments import list_segments


def frame(session: int = 1, first: int = 0, payload: bytes = b"records", kind: Any = "batch") -> JournalFrame:
    return JournalFrame(session, kind, first, len(payload), payload)


def opened(folder: Path, **options: Any) -> Journal:
    return Journal.open(folder, **({"segment_nbytes": 512, "total_nbytes": 4096} | options))


def contents(journal: Journal, after: JournalPlace | None = None) -> list[JournalFrame]:
    return [found for _, found in journal.replay(after)]


def oldest(journal: Journal) -> JournalPlace:
    """The position of the first frame that can still be there."""
    return JournalPlace(min(list_segments(journal.folder)), HEAD_NBYTES, 0)


def filled(folder: Path, count: int = 20, **options: Any) -> list[JournalFrame]:
    """Write frames of 100 bytes, three to a segment, to a journal in `folder`, and return them."""
    frames = [frame(1 + number % 3, number, bytes([number]) * 100) for number in range(count)]
    journal = opened(folder, **({"total_nbytes": 1 << 20} | options))
    for one in frames:
        journal.append([one])
    journal.sync()
    journal.close()
    return frames


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x40
    path.write_bytes(content)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))
