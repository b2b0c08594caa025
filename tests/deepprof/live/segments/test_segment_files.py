"""What both logs rely on: frames found around damage, and a failed write that leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deepprof.live.segments.frame_format import PAYLOAD_NBYTES, FrameFormat, FrameHeader
from deepprof.live.segments.segment_files import (
    HEAD_NBYTES,
    FrameScanner,
    HeadFormat,
    ScannedFrame,
    SegmentWriter,
    find_numbers,
    name_of,
)

FRAMES = FrameFormat(b"test", "QI", kinds=2, blank=9)
SALT = 77


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    found = os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT)
    yield found
    os.close(found)


def fill(file: int, *payloads: bytes, frames: FrameFormat = FRAMES) -> list[int]:
    """Write a frame of every payload; returns their offsets and that behind the last."""
    writer, offsets = SegmentWriter(file), [HEAD_NBYTES]
    for number, payload in enumerate(payloads):
        header = frames.pack(FrameHeader(1, (number, 5), len(payload)), payload, SALT, offsets[-1])
        writer.write([header, payload], offsets[-1])
        offsets.append(offsets[-1] + len(header) + len(payload))
    return offsets


def scan(file: int, *, search: bool, payloads: bool = True) -> list[ScannedFrame]:
    reader = FrameScanner(replace(FRAMES, is_searched=search), file, SALT)
    return list(reader.scan(os.fstat(file).st_size, payloads=payloads))


@pytest.mark.parametrize("search", [False, True])
def test_frames_come_back(file: int, search: bool) -> None:
    offsets = fill(file, b"a", b"", b"c" * 40_000)
    found = scan(file, search=search)
    assert [(one.offset, one.payload, one.sound) for one in found] == [
        (offsets[0], b"a", True),
        (offsets[1], b"", True),
        (offsets[2], b"c" * 40_000, True),
    ]
    assert [one.header and one.header.numbers for one in found] == [(0, 5), (1, 5), (2, 5)]
    assert [one.payload for one in scan(file, search=search, payloads=False)] == [b"", b"", b""]


def test_a_damaged_payload_costs_its_frame_alone(file: int) -> None:
    offsets = fill(file, b"a", b"b", b"c")
    os.pwrite(file, b"x", offsets[2] - 1)
    found = scan(file, search=False)
    assert [(one.sound, one.torn, one.payload) for one in found] == [
        (True, False, b"a"),
        (False, False, b""),
        (True, False, b"c"),
    ]


def test_only_a_searched_log_is_read_on_behind_a_damaged_header(file: int) -> None:
    offsets = fill(file, b"a", b"b", b"c")
    os.pwrite(file, b"x", offsets[1] + 8)
    *_, rest = scan(file, search=False)
    assert (rest.offset, rest.nbytes, rest.header, rest.torn) == (offsets[1], offsets[3] - offsets[1], None, True)
    found = scan(file, search=True)
    assert [(one.offset, one.sound, one.torn) for one in found] == [
        (offsets[0], True, False),
        (offsets[1], False, False),
        (offsets[2], True, False),
    ]


@pytest.mark.parametrize("nbytes", [1, FRAMES.header_nbytes - 1, FRAMES.header_nbytes, FRAMES.header_nbytes + 2])
def test_a_frame_that_the_end_cuts_is_torn(file: int, nbytes: int) -> None:
    offsets = fill(file, b"a", b"bbb")
    os.ftruncate(file, offsets[1] + nbytes)
    for search in (False, True):
        *_, rest = scan(file, search=search)
        assert (rest.offset, rest.nbytes, rest.sound, rest.torn) == (offsets[1], nbytes, False, True)
        assert (rest.header is not None) == (nbytes >= FRAMES.header_nbytes)


@pytest.mark.parametrize(
    ("header", "is_one"),
    [
        (FrameHeader(1, (0, 0), PAYLOAD_NBYTES), True),
        (FrameHeader(1, (0, 0), PAYLOAD_NBYTES + 1), False),
        (FrameHeader(2, (0, 0), 0), False),
        (FrameHeader(9, (0, 0), PAYLOAD_NBYTES + 1), True),  # a blank
    ],
)
def test_headers_of_no_kind_or_too_long_are_none(header: FrameHeader, is_one: bool) -> None:
    content = FRAMES.seal(header, SALT, 40)
    assert FRAMES.unpack(content, 0, SALT, 40) == (header if is_one else None)
    assert FRAMES.unpack(content, 0, SALT, 41) is FRAMES.unpack(content, 0, SALT + 1, 40) is None


def test_a_blank_is_sound_whatever_it_covers(file: int) -> None:
    offsets = fill(file, b"a", b"b")
    os.pwrite(file, FRAMES.seal(FrameHeader(9, (0, 0), 1), SALT, offsets[0]) + b"?", offsets[0])
    assert [(one.sound, one.payload) for one in scan(file, search=False)] == [(True, b""), (True, b"b")]


def test_what_a_failed_write_left_is_cut_off_before_the_next(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, write = SegmentWriter(file), os.pwritev
    writer.write([b"kept"], 0)

    def write_some(file: int, parts: list[memoryview], offset: int) -> int:
        write(file, [b"".join(parts)[:3]], offset)
        raise OSError(28, "No space left on device")

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as bad:
        bad.setattr(os, "pwritev", write_some)
        bad.setattr(os, "ftruncate", refuse)
        with pytest.raises(OSError, match="No space"):
            writer.write([b"half a frame"], 4)
        with pytest.raises(OSError, match="Input/output"):
            writer.write([b"x"], 4)
    assert os.fstat(file).st_size == 7
    writer.write([b"x"], 4)
    assert os.pread(file, 100, 0) == b"keptx"


def test_heads_and_names(file: int) -> None:
    heads = HeadFormat(b"testhead", "IQ")
    content = heads.pack(3, 1 << 60)
    assert len(content) == HEAD_NBYTES
    for damaged in (b"", content[:-1], b"X" + content[1:], HeadFormat(b"headtest", "IQ").pack(3, 1 << 60)):
        os.ftruncate(file, 0)
        os.pwrite(file, damaged, 0)
        assert heads.read(file) is None
    os.pwrite(file, content, 0)
    assert heads.read(file) == (3, 1 << 60)
    assert find_numbers([name_of(12), "x.seg", name_of(3), f"{name_of(4)}.damaged", "names"]) == [3, 12]
