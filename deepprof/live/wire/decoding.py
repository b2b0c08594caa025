"""Arrow streams to tables: no byte reaches polars before all sizes are checked.

polars panics on damaged heads, and allocates whatever memory they claim. So the stream is taken apart here, compared
with the schema of its table, and given to polars with heads that were written here; polars checks the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import BytesIO

import polars as pl

from deepprof.collectors.trace import TABLES, empty_table
from deepprof.live.wire.arrow_messages import DICTIONARY, END, ROWS, SCHEMA, ArrowMessage, frame_head, split_stream
from deepprof.live.wire.arrow_rows import Piece, measure_rows, read_texts, write_head
from deepprof.live.wire.arrow_schema import TEXT_VIEW, Layout, read_layout
from deepprof.live.wire.errors import MalformedArrowError

CODES_ID, CODES_ROWS, CODES_DELTA = 0, 1, 2  # fields of a dictionary

Pieces = tuple[str, list[Piece]]
"""How the texts of a stream are stored (TEXT or TEXT_VIEW), and its rows."""


def encode_table(rows: pl.DataFrame) -> bytes:
    """Return `rows` as an Arrow IPC stream of one piece, as `records.proto` requires."""
    buffer = BytesIO()
    rows.rechunk().write_ipc_stream(buffer, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
    return buffer.getvalue()


def measure_table(table: str, data: bytes) -> Pieces:
    """Return where in `data` the rows of `table` are, without reading any; takes memory for a few numbers only.

    Raises `MalformedArrowError` for anything but an Arrow stream of exactly the table's columns whose content
    is as large as it claims.
    """
    messages = split_stream(data)
    first = next(messages, None)
    if first is None or first.kind != SCHEMA or len(first.body):
        raise MalformedArrowError("does not begin with a schema")
    layout = read_layout(first.raw, table)
    return layout.text, list(_measure_pieces(messages, table, layout))


def _measure_pieces(messages: Iterable[ArrowMessage], table: str, layout: Layout) -> Iterator[Piece]:
    """Yield the pieces of rows; raises `MalformedArrowError` unless all dictionaries come before them, each once."""
    missing = dict(layout.codes)
    for message in messages:
        if message.kind == DICTIONARY:
            column = missing.pop(message.head.number(CODES_ID, "q"), None)
            if column is None:
                raise MalformedArrowError("a dictionary comes twice, or is no column's")
            _check_codes(message, _categories(table, column), layout.text)
        elif message.kind == ROWS and not missing:
            yield measure_rows(message.head, message.body, layout.widths, layout.text)
        else:
            raise MalformedArrowError("its messages are not a schema, its dictionaries, and rows")


def _check_codes(message: ArrowMessage, expected: pl.Series, text: str) -> None:
    """Raise `MalformedArrowError` unless a dictionary contains exactly the `expected` texts, in their order."""
    rows = message.head.table(CODES_ROWS)
    if rows is None or message.head.number(CODES_DELTA, "B"):
        raise MalformedArrowError("a dictionary comes in parts")
    piece = measure_rows(rows, message.body, (0,), text)
    if piece.rows != len(expected) or list(read_texts(piece, text)) != [word.encode() for word in expected]:
        raise MalformedArrowError(f"a dictionary is not {', '.join(expected)}")


def _categories(table: str, column: str) -> pl.Series:
    """Return the categories of a column, in their order."""
    dtype = TABLES[table][column]
    return dtype.categories if isinstance(dtype, pl.Enum) else pl.Series([], dtype=pl.String)


def decode_table(table: str, pieces: Pieces) -> pl.DataFrame:
    """Return measured rows as a table with the schema of `table`, in one chunk.

    Raises `MalformedArrowError` for impossible values: texts that are not UTF-8, codes without a category.
    """
    text, measured = pieces
    stream: list[bytes | memoryview] = [_beginning(table, text)]
    for piece in measured:
        stream += [frame_head(write_head(piece)), piece.body]
    try:
        rows = pl.read_ipc_stream(b"".join([*stream, END]))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise MalformedArrowError(f"its values make no sense ({error})") from error
    if rows.schema != TABLES[table]:
        raise MalformedArrowError(f"is not the table {table}")
    return rows.rechunk() if len(measured) > 1 else rows


@lru_cache(maxsize=2 * len(TABLES))
def _beginning(table: str, text: str) -> bytes:
    """Return the schema and dictionaries of `table` as this version of polars writes them, texts stored as `text`."""
    buffer, level = BytesIO(), pl.CompatLevel.newest() if text == TEXT_VIEW else pl.CompatLevel.oldest()
    empty_table(TABLES[table]).write_ipc_stream(buffer, compression="uncompressed", compat_level=level)
    messages = (message for message in split_stream(buffer.getvalue()) if message.kind != ROWS)
    return b"".join(part for message in messages for part in (frame_head(message.raw), message.body))
