"""The columns that the schema of an Arrow stream states, compared with those of the record table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import polars as pl

from deepprof.collectors.trace import TABLES
from deepprof.live.wire.errors import MalformedArrowError
from deepprof.live.wire.flatbuffer import FlatTable, read_root

ENDIANNESS, FIELDS = 0, 1  # fields of a schema
NAME, TYPE_KIND, TYPE, DICTIONARY, CHILDREN = 0, 2, 3, 4, 5  # of a column
BITS, SIGNED = 0, 1  # of an integer
DICTIONARY_ID, INDEX = 0, 1  # of a dictionary
HEAD = 2  # of a message
COLUMNS = 64  # most columns that are read; the widest table has 15
TEXT, TEXT_VIEW = "large_utf8", "utf8_view"
CODE = "dictionary of uint8 to "
WORDS = MappingProxyType({6: "bool", 20: TEXT, 24: TEXT_VIEW})
INTEGERS = MappingProxyType(
    {str(kind): str(kind).lower() for kind in (pl.Int32, pl.Int64, pl.UInt16, pl.UInt32, pl.UInt64)}
)
WIDTHS = MappingProxyType({"bool": 1, "int32": 32, "uint16": 16, "uint32": 32, "int64": 64, "uint64": 64})


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a table are stored in a stream.

    `widths` are the bits of a value per column, 0 for a text; `codes` maps a dictionary's id to its column. `text` is
    TEXT or TEXT_VIEW, the type of all text columns of the stream.
    """

    widths: tuple[int, ...]
    codes: Mapping[int, str]
    text: str


@lru_cache(maxsize=64)  # all streams of a sender for one table begin with the same schema message
def read_layout(raw: bytes, table: str) -> Layout:
    """Return the layout that the schema message with the head `raw` states.

    Raises `MalformedArrowError` unless it has exactly the columns of `table`.
    """
    schema = read_root(raw).table(HEAD)
    if schema is None or schema.number(ENDIANNESS, "h") != 0:
        raise MalformedArrowError("its numbers are not little-endian")
    columns = schema.tables(FIELDS, COLUMNS)
    expected = TABLES[table]
    if len(columns) != len(expected):
        raise MalformedArrowError(f"{len(columns)} columns, {table} has {len(expected)}")
    text = _text_layout(columns)
    kinds = [_describe_dtype(dtype, text) for dtype in expected.values()]
    for number, (column, name, kind) in enumerate(zip(columns, expected, kinds, strict=True)):
        found = column.text(NAME), _describe_column(column)
        if found != (name, kind):
            raise MalformedArrowError(f"column {number} is {found[0]} ({found[1]}), {table} has {name} ({kind}) there")
    return Layout(tuple(_width(kind) for kind in kinds), MappingProxyType(_map_codes(columns, expected)), text)


def _text_layout(columns: Iterable[FlatTable]) -> str:
    """Return the text type of the first text or dictionary column; TEXT where there is none."""
    found = (WORDS.get(column.number(TYPE_KIND, "B")) for column in columns)
    return next((kind for kind in found if kind in {TEXT, TEXT_VIEW}), TEXT)


def _describe_dtype(dtype: pl.DataType, text: str) -> str:
    """Return in words how a column of `dtype` is stored in a stream whose texts are stored as `text`."""
    if isinstance(dtype, pl.Enum):
        return CODE + text
    return text if dtype == pl.String else INTEGERS.get(str(dtype), "bool")


def _describe_column(column: FlatTable) -> str:
    kind, details, dictionary = column.number(TYPE_KIND, "B"), column.table(TYPE), column.table(DICTIONARY)
    if column.vector(CHILDREN)[1] or details is None:
        return "a nested type"
    word = _integer(details) if kind == 2 else WORDS.get(kind, f"Arrow type {kind}")
    if dictionary is None:
        return word
    index = dictionary.table(INDEX)
    return f"dictionary of {_integer(index) if index else 'int32'} to {word}"


def _integer(details: FlatTable) -> str:
    return f"{'' if details.number(SIGNED, 'B') else 'u'}int{details.number(BITS, 'i')}"


def _width(kind: str) -> int:
    return 8 if kind.startswith(CODE) else WIDTHS.get(kind, 0)


def _map_codes(columns: Iterable[FlatTable], expected: pl.Schema) -> dict[int, str]:
    pairs = [(column.table(DICTIONARY), name) for column, name in zip(columns, expected, strict=True)]
    codes = {dictionary.number(DICTIONARY_ID, "q"): name for dictionary, name in pairs if dictionary is not None}
    if len(codes) < sum(dictionary is not None for dictionary, _ in pairs):
        raise MalformedArrowError("two columns share a dictionary")
    return codes
