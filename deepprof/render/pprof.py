"""Contexts as a pprof profile (profile.proto of google/pprof, gzipped): for `go tool pprof`, Pyroscope and Parca.

A sample is a context that used something itself: its frames as locations, the innermost first, and a value of every
sample type. The format is Protocol Buffers; the few fields that are needed are written here, so that no library is."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from deepprof.render.flame import MEASURES, FlameMeasure, label

# Numbers of the fields of a Profile that are written; those of the messages within it are where they are used.
SAMPLE_TYPE, SAMPLE, LOCATION, FUNCTION, STRING_TABLE = 1, 2, 4, 5, 6
TIME, DURATION, PERIOD_TYPE, PERIOD, COMMENT, DEFAULT_SAMPLE_TYPE = 9, 10, 11, 12, 13, 14
COMPRESSION = 5
MOST_FRAMES = 1024  # of a stack: what is deeper counts for the context at that depth
LARGEST = 1 << 62  # of a value, which has 64 bits with its sign
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Frame = tuple[str, str | None, int | None]
"""A label, a file and a line."""


def write_pprof(contexts: pl.DataFrame, file: BinaryIO) -> str:
    """Write the contexts of all ranks, with all measures of `deepprof flame`; return a summary of what was written.

    `contexts` are those of an `Analysis`.
    """
    profile = PprofProfile(MEASURES)
    for around, rows in split_ranks(contexts):
        profile.add(rows, around)
    profile.write(file)
    return f"{len(profile.samples):,} samples of {len(profile.frames):,} frames"


def split_ranks(contexts: pl.DataFrame) -> Iterator[tuple[tuple[Frame, ...], pl.DataFrame]]:
    """Yield the contexts of every rank, after the frames that are around them: where there are several, the rank."""
    ranks = contexts["rank"].unique(maintain_order=True).to_list()
    for rank in ranks:
        yield ((f"rank {rank}", None, None),) if len(ranks) > 1 else (), contexts.filter(pl.col("rank") == rank)


class PprofPeriod(Struct, frozen=True):
    """The time that a profile is of: Unix times in ns, and remarks for people."""

    start_ns: int
    duration_ns: int
    comments: Sequence[str] = ()


class PprofProfile(Struct):
    """A profile of which samples are added, with a sample type for each of `measures`; the first one is the default.

    Texts and frames are referred to by number; the first text is empty, frames count from 1, and each frame is a
    location and a function.
    """

    measures: Mapping[str, FlameMeasure]
    samples: list[bytes] = field(default_factory=list)
    frames: dict[Frame, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=lambda: {"": 0})

    def add(
        self,
        contexts: pl.DataFrame,
        around: tuple[Frame, ...] = (),
        labels: Mapping[str, str] | None = None,
        most: int | None = None,
    ) -> int:
        """Add the samples of one rank's contexts, with labels; of more than `most` the smallest are one sample.

        Returns how many were put together.
        """
        own = {f"own of {name}": measure.own for name, measure in self.measures.items()}
        rows = contexts.with_columns(**own)
        values = rows.select(own.keys()).cast(pl.Int64).to_numpy()
        small = _find_small(values, most)
        packed = b"".join(self._label(key, text) for key, text in (labels or {}).items())
        places = _ContextPlaces()
        for number, row in enumerate(rows.iter_rows(named=True)):
            places.add(frame_of(row), row["parent"])
            if values[number].any() and not small[number]:
                frames = (*places.list_frames(number), *around) or (frame_of(row),)
                self._sample(frames, values[number].tolist(), packed)
        if many := int(small.sum()):
            whole = [min(LARGEST, sum(each)) for each in zip(*values[small].tolist(), strict=True)]
            self._sample(((f"{many:,} smaller ones", None, None), *around), whole, packed)
        return many

    def write(self, file: BinaryIO, period: PprofPeriod | None = None) -> None:
        """Write the profile, compressed; the bytes do not depend on when it is written."""
        with gzip.GzipFile("", "wb", COMPRESSION, file, mtime=0) as packed:
            for part in (*self._encode_types(), *self._encode_period(period), *self.samples, *self._encode_tables()):
                packed.write(part)

    def _sample(self, frames: Iterable[Frame], values: Iterable[int], labels: bytes) -> None:
        numbers = [self.frames.setdefault(frame, 1 + len(self.frames)) for frame in frames]
        self.samples.append(_field(SAMPLE, _packed(1, numbers) + _packed(2, values) + labels))

    def _label(self, key: str, text: str) -> bytes:
        return _field(3, _number(1, self._text(key)) + _number(2, self._text(text)))

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _encode_type(self, name: str) -> bytes:
        return _number(1, self._text(name)) + _number(2, self._text(self.measures[name].unit))

    def _encode_types(self) -> Iterator[bytes]:
        """Yield the types of the values, and which is shown first."""
        yield from (_field(SAMPLE_TYPE, self._encode_type(name)) for name in self.measures)
        yield _number(DEFAULT_SAMPLE_TYPE, self._text(next(iter(self.measures))))

    def _encode_period(self, period: PprofPeriod | None) -> Iterator[bytes]:
        """Yield when the profile begins and for how long, what a value of one is of, and remarks."""
        if period is not None:
            yield _number(TIME, period.start_ns) + _number(DURATION, period.duration_ns)
            yield _field(PERIOD_TYPE, self._encode_type(next(iter(self.measures)))) + _number(PERIOD, 1)
            yield from (_number(COMMENT, self._text(comment)) for comment in period.comments)

    def _encode_tables(self) -> Iterator[bytes]:
        """Yield locations, functions, and at last the texts that they have."""
        for (name, source, line), number in self.frames.items():
            place = _field(4, _number(1, number) + _number(2, line or 0))
            yield _field(LOCATION, _number(1, number) + place)
            texts = _number(2, self._text(name)) + _number(4, self._text(source or ""))
            yield _field(FUNCTION, _number(1, number) + texts + _number(5, line or 0))
        for text in self.texts:
            yield _field(STRING_TABLE, text.encode(errors="replace"))


class _ContextPlaces(Struct):
    """The frames of contexts, callers first, and where each hangs: the stacks of all are large where they are deep."""

    frames: list[Frame] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)

    def add(self, frame: Frame, parent: int) -> None:
        """Add the next context; the first one is around all."""
        self.depths.append(self.depths[parent] + 1 if self.depths else 0)
        self.frames.append(frame)
        self.parents.append(parent)

    def list_frames(self, number: int) -> Iterator[Frame]:
        """Yield the frames of a context, the innermost first, but for the one around all."""
        while self.depths[number] > MOST_FRAMES:
            number = self.parents[number]
        while number:
            yield self.frames[number]
            number = self.parents[number]


def _find_small(values: Int64s, most: int | None) -> Bools:
    """Return which rows that used something are beyond the `most` with the largest shares of any value."""
    taken: Bools = np.asarray(values.any(axis=1))
    small = taken.copy()
    if most is None or int(taken.sum()) <= most:
        small[:] = False
        return small
    share = (values / np.maximum(values.sum(axis=0), 1)).max(axis=1)
    small[np.argsort(-share, kind="stable")[: most - 1]] = False  # the last sample is what they are together
    return small


def frame_of(row: dict[str, Any]) -> Frame:
    """Return the frame of a context, a row with the columns of `FRAMES`; a file is next to the name, not in it."""
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
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _field(field, b"".join(map(_varint, values)))
