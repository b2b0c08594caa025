"""The dictionaries of an Arrow stream: each must hold the categories of its column, in their order."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

import polars as pl

from deepprof.live.wire.arrow_messages import ArrowMessage
from deepprof.live.wire.arrow_rows import Piece, measure_rows
from deepprof.live.wire.arrow_schema import TEXT_VIEW
from deepprof.live.wire.errors import MalformedArrowError

__all__ = ["check_codes", "dictionary_id"]

ID, ROWS, DELTA = 0, 1, 2  # fields of a dictionary
INLINE_NBYTES = 12  # bytes of a text that fit into its view; no category is longer


def dictionary_id(message: ArrowMessage) -> int:
    """Return the id of the dictionary that a message of the kind DICTIONARY holds."""
    return message.head.number(ID, "q")


def check_codes(message: ArrowMessage, expected: pl.Series, text: str) -> None:
    """Raise `MalformedArrowError` unless the dictionary holds exactly the `expected` texts, stored as `text`."""
    rows = message.head.table(ROWS)
    if rows is None or message.head.number(DELTA, "B"):
        raise MalformedArrowError("a dictionary comes in parts")
    piece = measure_rows(rows, message.body, (0,), text)
    if piece.rows != len(expected) or list(read_texts(piece, text)) != [word.encode() for word in expected]:
        raise MalformedArrowError(f"a dictionary is not {', '.join(expected)}")


def read_texts(piece: Piece, text: str) -> Iterator[bytes]:
    """Yield the texts of the only column; a text that is too long for a category or out of bounds comes out changed."""
    places, body = piece.columns[0][1][0], piece.body
    if text == TEXT_VIEW:
        for row in range(piece.rows):
            at = places + 16 * row
            yield bytes(body[at + 4 : at + 4 + min(struct.unpack_from("<I", body, at)[0], INLINE_NBYTES + 1)])
        return
    start, nbytes = piece.columns[0][2]
    offsets = struct.unpack_from(f"<{piece.rows + 1}q", body, places)
    for first, last in pairwise(offsets):
        yield bytes(body[start + first : start + last]) if 0 <= first <= last <= nbytes else b""
