"""Contexts as a pprof profile (profile.proto of google/pprof, gzipped): for `go tool pprof`, Pyroscope and Parca.

A sample is a context that took something itself: its frames as locations, the innermost first, and a value of each
sample type. The format is Protocol Buffers; the few fields that are needed are written here, so that no library is.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import polars as pl

from deepprof.render.flame import MEASURES, label

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

# Numbers of the fields of a Profile that are written; those of the messages within it stand where they are used.
SAMPLE_TYPE, SAMPLE, LOCATION, FUNCTION, STRING_TABLE, DEFAULT_SAMPLE_TYPE = 1, 2, 4, 5, 6, 14
COMPRESSION = 5
Frame = tuple[str, str | None, int | None]
"""A label, a file and a line."""


def write_pprof(analysis: Analysis, file: BinaryIO) -> str:
    """Write the contexts of all ranks, with all measures of `deepprof flame`; return a summary of what was written."""
    written = _PprofTables()
    samples = [_field(SAMPLE, sample) for sample in _list_samples(analysis, written)]
    with gzip.GzipFile("", "wb", COMPRESSION, file, mtime=0) as packed:
        for name, measure in MEASURES.items():
            kind = _number(1, written.text(name)) + _number(2, written.text(measure.unit))
            packed.write(_field(SAMPLE_TYPE, kind))
        packed.write(_number(DEFAULT_SAMPLE_TYPE, written.text("device")))
        for part in (*samples, *written.encode()):
            packed.write(part)
    return f"{len(samples):,} samples of {len(written.frames):,} frames"


class _PprofTables:
    """Texts and frames by number, as the profile refers to them; the first text is empty, frames count from 1."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {"": 0}
        self.frames: dict[Frame, int] = {}

    def text(self, text: str) -> int:
        """Return the number of a text."""
        return self.texts.setdefault(text, len(self.texts))

    def frame(self, frame: Frame) -> int:
        """Return the number of a frame, which is that of its location and function."""
        return self.frames.setdefault(frame, 1 + len(self.frames))

    def encode(self) -> Iterator[bytes]:
        """Yield locations, functions, and at last the texts that they have."""
        for (name, source, line), number in self.frames.items():
            place = _field(4, _number(1, number) + _number(2, line or 0))
            yield _field(LOCATION, _number(1, number) + place)
            texts = _number(2, self.text(name)) + _number(4, self.text(source or ""))
            yield _field(FUNCTION, _number(1, number) + texts + _number(5, line or 0))
        for text in self.texts:
            yield _field(STRING_TABLE, text.encode(errors="replace"))


def _list_samples(analysis: Analysis, written: _PprofTables) -> Iterator[bytes]:
    """Yield the samples of all ranks; of several, each rank is a frame around its contexts."""
    ranks = analysis.contexts["rank"].unique(maintain_order=True).to_list()
    own = [measure.own.alias(f"own of {name}") for name, measure in MEASURES.items()]
    for rank in ranks:
        around = ((f"rank {rank}", None, None),) if len(ranks) > 1 else ()
        contexts = analysis.contexts.filter(pl.col("rank") == rank).with_columns(own)
        yield from _samples_of(contexts, around, written)


def _samples_of(contexts: pl.DataFrame, around: tuple[Frame, ...], written: _PprofTables) -> Iterator[bytes]:
    """Yield the samples of one rank's contexts."""
    stacks = [around]
    for number, row in enumerate(contexts.iter_rows(named=True)):
        if number:
            stacks.append((frame_of(row), *stacks[row["parent"]]))
        values = [row[f"own of {name}"] for name in MEASURES]
        if any(values):
            frames = stacks[number] or (frame_of(row),)
            yield _packed(1, map(written.frame, frames)) + _packed(2, values)


def frame_of(row: dict[str, Any]) -> Frame:
    """Return the frame of a context, a row with the columns of `FRAMES`; a file stands beside the name, not in it."""
    name = row["name"] if row["file"] else label(row)
    return name, row["file"], row["line"]


def _varint(value: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _number(field: int, value: int) -> bytes:
    """Return a field that is a number."""
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    """Return a field that is a text or a message."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    """Return a field of several numbers."""
    return _field(field, b"".join(map(_varint, values)))
