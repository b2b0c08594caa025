"""A snapshot as JSON: what `json.dump` makes of `torch.cuda.memory._snapshot()`, with the keys of the pickle.

JSON repeats the frames of every entry. The text of equal frames is equal: it is decoded once for all that have it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Raw, Struct

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.json_bounds import check_values
from deepprof.collectors.importers.torch_snapshot.snapshot_items import TEXT_NBYTES
from deepprof.collectors.importers.torch_snapshot.snapshot_parts import (
    FAILED,
    MOST,
    RECORD_LESS,
    WRITE_AGAIN,
    SnapshotTables,
    find_blocks_in_use,
)
from deepprof.collectors.importers.torch_snapshot.snapshot_stacks import FRAMES, NO_STACKS, StackGroups, number_frames
from deepprof.collectors.importers.value_columns import integers, texts

BATCH = 2**16  # rows that are objects at a time
DAMAGED = (msgspec.DecodeError, ValueError, RecursionError)
TEXTS, NESTED = frozenset({"action", "state", "name", "stage"}), frozenset({"blocks"})
Scalar = str | int | float | bool | None
NULL = Raw(b"null")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Document(Struct, gc=False):
    """The top level; the elements of its lists are views of the text."""

    segments: list[Raw]
    device_traces: list[list[Raw]]
    external_annotations: list[Raw] | None = None


class _SegmentRow(Struct, gc=False):
    """An element of `segments`."""

    device: Scalar = None
    address: Scalar = None
    total_size: Scalar = None
    stream: Scalar = None
    blocks: list[Raw] | None = None


class _BlockRow(Struct, gc=False):
    """An element of `blocks` of a segment."""

    address: Scalar = None
    size: Scalar = None
    requested_size: Scalar = None
    state: Scalar = None
    frames: Raw = NULL


class _EntryRow(Struct, gc=False):
    """An element of a history."""

    action: Scalar = None
    addr: Scalar = None
    size: Scalar = None
    stream: Scalar = None
    time_us: Scalar = None
    device_free: Scalar = None
    frames: Raw = NULL


class _MarkRow(Struct, gc=False):
    """An element of `external_annotations`."""

    name: Scalar = None
    stage: Scalar = None
    device: Scalar = None
    time_us: Scalar = None


class _FrameRow(Struct, gc=False):
    """An element of `frames`."""

    filename: Scalar = None
    name: Scalar = None
    line: Scalar = None


FRAME_DECODER = msgspec.json.Decoder(_FrameRow)


class _FrameTexts(dict[bytes, int]):
    """The distinct texts of lists of frames, numbered in the order of their first use."""

    def __missing__(self, text: bytes) -> int:
        self[text] = len(self)
        return len(self) - 1


def read_json(path: Path, content: bytes | bytearray, *, details: bool) -> SnapshotTables:
    """Return the parts of the snapshot whose JSON is `content`, without `details` the call stacks of failures alone.

    Raises `TraceError` for what is no snapshot. Uses about 400 bytes for every entry besides the content, and once
    more the text of distinct lists of frames."""
    check_values(path, content)
    if content.count(b",") > MOST:
        raise TraceError(path, f"holds too much: more than {MOST} values", RECORD_LESS)
    document, reader = _decode_document(path, content), _RowReader(details=details)
    segments, blocks = _take_segments(reader, document)
    traces = enumerate([[], *document.device_traces], -1)
    entries = pl.concat([reader.tabulate(each, _EntryRow)[0].with_columns(device=pl.lit(n)) for n, each in traces])
    marks, _ = reader.tabulate(document.external_annotations or [], _MarkRow)
    return SnapshotTables(
        entries=entries.cast({"device": pl.Int64}),
        segments=segments,
        blocks=blocks,
        annotations=marks,
        stacks=_group_frames(reader.frame_texts),
        odd=reader.odd,
    )


def _decode_document(path: Path, content: bytes | bytearray) -> _Document:
    """Return the top level of `content`."""
    try:
        start = len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0
        return msgspec.json.decode(memoryview(content)[start:], type=_Document)
    except msgspec.ValidationError as error:
        raise TraceError(path, f"is JSON of something else than a memory snapshot ({error})", WRITE_AGAIN) from error
    except DAMAGED as error:
        raise TraceError(path, f"is truncated or damaged JSON ({error})", "copy it again") from error


class _RowReader:
    """Makes columns of the objects in lists; `odd` counts what is none in their place."""

    def __init__(self, *, details: bool) -> None:
        self.details, self.odd = details, 0
        self.frame_texts = _FrameTexts()

    def tabulate(self, elements: Sequence[Raw], kind: type[Struct]) -> tuple[pl.DataFrame, npt.NDArray[np.bool_]]:
        """Return the columns of the elements that are of a kind, and which are."""
        decoder, frames, fits = msgspec.json.Decoder(kind), [], []
        for start in range(0, max(1, len(elements)), BATCH):
            rows = [_decode_one(decoder, each) for each in elements[start : start + BATCH]]
            frames.append(self.list_columns(kind, [row for row in rows if row is not None]))
            fits += [row is not None for row in rows]
        self.odd += len(fits) - sum(fits)
        return pl.concat(frames), np.array(fits, bool)

    def list_columns(self, kind: type[Struct], rows: Sequence[Struct]) -> pl.DataFrame:
        """Return the columns of decoded rows; of frames the number of their text, as `stack`."""
        columns = dict[str, pl.Series]()
        for name in kind.__struct_fields__:
            values = [getattr(row, name) for row in rows]
            if name == "frames":
                columns["stack"] = self.number_frames(rows)
            elif name not in NESTED:
                columns[name] = texts(values).str.head(TEXT_NBYTES) if name in TEXTS else integers(values)
        return pl.DataFrame(columns)

    def number_frames(self, rows: Sequence[Any]) -> pl.Series:
        """Return the number of every row's text of frames; without details null but for those of failures."""
        asked = (self.details or getattr(row, "action", None) == FAILED for row in rows)
        numbers = [self.frame_texts[bytes(row.frames)] if each else None for row, each in zip(rows, asked, strict=True)]
        return pl.Series(numbers, dtype=pl.Int64)


def _decode_one(decoder: msgspec.json.Decoder[Any], text: Raw) -> Any:
    """Return a row, None for what is none."""
    with suppress(*DAMAGED):
        return decoder.decode(text)
    return None


def _take_segments(reader: _RowReader, document: _Document) -> tuple[pl.DataFrame, pl.DataFrame]:
    segments, fits = reader.tabulate(document.segments, _SegmentRow)
    segments = segments.rename({"total_size": "nbytes"}).with_columns(pl.col("device", "stream").fill_null(0))
    decoder = msgspec.json.Decoder(_SegmentRow)
    known = (decoder.decode(each) for each, fit in zip(document.segments, fits, strict=True) if fit)
    lists = [segment.blocks or [] for segment in known]
    of = np.repeat(np.arange(len(lists)), np.array([len(each) for each in lists], np.int64))
    blocks, fits = reader.tabulate([block for each in lists for block in each], _BlockRow)
    return segments, find_blocks_in_use(blocks, segments, of[fits])


def _group_frames(distinct: _FrameTexts) -> StackGroups:
    """Return the groups, whose numbers are those of their texts; none if there is too much."""
    numbers, chain, depth, frame = dict[tuple[Any, ...], int](), array("q"), array("q"), array("q")
    for group, text in enumerate(distinct):
        rows = _decode_frames(text)
        chain.extend([group] * len(rows))
        depth.extend(range(len(rows)))
        frame.extend(numbers.setdefault((row.name, row.filename, row.line), len(numbers)) for row in rows)
        if len(numbers) > FRAMES or len(frame) > MOST:
            return NO_STACKS
    ids, frames = number_frames([_sound_frame(*key) for key in numbers])
    columns = {"chain": np.asarray(chain), "depth": np.asarray(depth), "frame": ids[np.asarray(frame)]}
    return StackGroups(pl.DataFrame(columns, schema=NO_STACKS.chains.schema), frames)


def _decode_frames(text: bytes) -> list[_FrameRow]:
    """Return the frames in a list; none in what is no list."""
    with suppress(*DAMAGED):
        return msgspec.json.decode(text, type=list[_FrameRow])
    with suppress(*DAMAGED):
        rows = (_decode_one(FRAME_DECODER, each) for each in msgspec.json.decode(text, type=list[Raw]))
        return [row for row in rows if row is not None]
    return []


def _sound_frame(name: Scalar, filename: Scalar, line: Scalar) -> tuple[str | None, str | None, int]:
    known, file = (value[:TEXT_NBYTES] if isinstance(value, str) else None for value in (name, filename))
    return known, file, line if isinstance(line, int) else 0
