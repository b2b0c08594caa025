"""One piece of rows in an Arrow stream: the sizes that it states, compared with the bytes that are there.

The sender's head is not passed on: only its checked numbers are, in a head that is written anew (`write_head`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from deepprof.live.wire.arrow_messages import ROWS, VERSION_5
from deepprof.live.wire.arrow_schema import TEXT_VIEW
from deepprof.live.wire.errors import MalformedArrowError
from deepprof.live.wire.flatbuffer import FlatTable

LENGTH, NODES, BUFFERS, COMPRESSION, PARTS = 0, 1, 2, 3, 4  # fields of a batch of rows
OFFSET_NBYTES, VIEW_NBYTES = 8, 16  # size of an offset and of a view, the two ways to locate a text
INLINE_NBYTES = 12  # bytes of a text that fit into its view; no category is longer

Buffer = tuple[int, int]  # its offset in the body, and its length in bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows whose sizes were checked.

    `nodes` are the numbers of rows and of nulls, column after column; `columns` are the buffers of every column.
    `parts` is the number of text buffers of every column whose texts are stored as views. `text_nbytes` are the bytes
    of all texts, each counted as often as it is referred to."""

    rows: int
    nodes: tuple[int, ...]
    columns: tuple[tuple[Buffer, ...], ...]
    parts: tuple[int, ...]
    body: memoryview
    text_nbytes: int


def measure_rows(batch: FlatTable, body: memoryview, widths: Sequence[int], text: str) -> Piece:
    """Return the piece that `batch` describes; raises `MalformedArrowError` unless all that it claims is in `body`.

    `widths` are the bits of a value per column, 0 for a text column, which is stored as `text`.
    """
    if batch.place(COMPRESSION):
        raise MalformedArrowError("is compressed")
    rows, nodes = batch.number(LENGTH, "q"), batch.numbers(NODES, "q", 2)
    _check_nodes(rows, nodes, len(widths))
    buffers = _pair(batch.numbers(BUFFERS, "q", 2))
    parts = batch.numbers(PARTS, "q") if text == TEXT_VIEW else ()
    _check_places(buffers, len(body))
    columns = tuple(group(buffers, _count_buffers(widths, text, parts)))
    for number, (column, width) in enumerate(zip(columns, widths, strict=True)):
        needed = (rows * width + 7) // 8 if width else _text_places(rows, text)
        if column[1][1] < needed or (nodes[2 * number + 1] and 8 * column[0][1] < rows):
            raise MalformedArrowError(f"column {number} has fewer values than the {rows} rows claimed")
    texts = [column for column, width in zip(columns, widths, strict=True) if not width]
    nbytes = sum(_measure_views(body, column, rows) if text == TEXT_VIEW else column[2][1] for column in texts)
    return Piece(rows, nodes, columns, parts, body, nbytes)


def _check_nodes(rows: int, nodes: Sequence[int], columns: int) -> None:
    """Raise `MalformedArrowError` unless every column has `rows` rows and at most as many nulls."""
    if len(nodes) != 2 * columns:
        raise MalformedArrowError(f"rows of {len(nodes) // 2} columns, there are {columns}")
    if rows < 0 or any(length != rows for length in nodes[::2]):
        raise MalformedArrowError(f"claims {rows} rows, and columns of {min(nodes[::2])} to {max(nodes[::2])}")
    if min(nodes[1::2]) < 0 or max(nodes[1::2]) > rows:
        raise MalformedArrowError("claims more nulls than rows")


def _pair(numbers: Sequence[int]) -> list[Buffer]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _check_places(buffers: Sequence[Buffer], nbytes: int) -> None:
    """Raise `MalformedArrowError` unless the buffers are one after another, without overlap, in a body of `nbytes`."""
    end = 0
    for offset, length in buffers:
        if length < 0 or not end <= offset <= nbytes - length:
            raise MalformedArrowError(
                f"a buffer of {length} bytes at {offset} is not in its body, or lies on another one"
            )
        end = offset + length


def _count_buffers(widths: Sequence[int], text: str, parts: Sequence[int]) -> list[int]:
    """Return how many buffers each column has: nulls and values, or for a text nulls, locations and bytes (`parts`)."""
    if text == TEXT_VIEW and (len(parts) != widths.count(0) or min(parts, default=0) < 0):
        raise MalformedArrowError("does not say in how many parts its texts lie")
    more = iter(parts)
    return [2 if width else 2 + next(more) if text == TEXT_VIEW else 3 for width in widths]


def group(buffers: Sequence[Buffer], counts: Sequence[int]) -> Iterator[tuple[Buffer, ...]]:
    """Yield the buffers of every column."""
    if len(buffers) != sum(counts):
        raise MalformedArrowError(f"{len(buffers)} buffers, its columns have {sum(counts)}")
    at = 0
    for count in counts:
        yield tuple(buffers[at : at + count])
        at += count


def _text_places(rows: int, text: str) -> int:
    """Return the size in bytes of the offsets or views that locate the texts of `rows` rows."""
    return VIEW_NBYTES * rows if text == TEXT_VIEW else OFFSET_NBYTES * (rows + 1) if rows else 0


def _measure_views(body: memoryview, column: tuple[Buffer, ...], rows: int) -> int:
    """Return the bytes of the texts that `rows` views refer to; a shared text counts for every view."""
    return int(np.frombuffer(body, "<u4", 4 * rows, column[1][0])[::4].sum(dtype=np.int64)) if rows else 0


def read_texts(piece: Piece, text: str) -> Iterator[bytes]:
    """Yield the texts of the only column; a text that is too long for a category or out of bounds comes out changed."""
    places, body = piece.columns[0][1][0], piece.body
    if text == TEXT_VIEW:
        for at in range(places, places + VIEW_NBYTES * piece.rows, VIEW_NBYTES):
            yield bytes(body[at + 4 : at + 4 + min(struct.unpack_from("<I", body, at)[0], INLINE_NBYTES + 1)])
        return
    start, nbytes = piece.columns[0][2]
    offsets = struct.unpack_from(f"<{piece.rows + 1}q", body, places)
    for first, last in pairwise(offsets):
        yield bytes(body[start + first : start + last]) if 0 <= first <= last <= nbytes else b""


def write_head(piece: Piece) -> bytes:
    """Return the head of the message that holds `piece`, whose body follows unchanged.

    The layout is fixed, in this order: index and table of the message, index and table of the rows, three lists.
    """
    buffers = [number for column in piece.columns for buffer in column for number in buffer]
    nodes_at, buffers_at = 84, 92 + 8 * len(piece.nodes)
    parts_at = buffers_at + 8 + 8 * len(buffers)
    parts = (parts_at - 76, 20) if piece.parts else (0, 0)
    return b"".join(
        (
            struct.pack("<I6H", 16, 12, 20, 16, 18, 4, 8),
            struct.pack("<iIqhB5x", 12, 56 - 20, len(piece.body), VERSION_5, ROWS),
            struct.pack("<7H2x", 14, 24, 8, 4, 16, 0, parts[1]),
            struct.pack("<iIqII4x", 16, nodes_at - 60, piece.rows, buffers_at - 72, parts[0]),
            struct.pack(f"<I{len(piece.nodes)}q4x", len(piece.nodes) // 2, *piece.nodes),
            struct.pack(f"<I{len(buffers)}q4x", len(buffers) // 2, *buffers),
            struct.pack(f"<I{len(piece.parts)}q", len(piece.parts), *piece.parts),
        )
    )
