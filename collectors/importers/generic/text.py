"""Delimited text (comma, tab, semicolon, bar) as columns of texts, from files of any writer."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import polars as pl
from msgspec import Struct

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import read_bytes
from deepprof.collectors.importers.frames import decoding

SEPARATORS = (",", "\t", ";", "|")
PREAMBLE = 50  # lines before the header, in which a tool describes itself
FIELDS = 3  # at least in a header: a line with fewer is as likely to be prose
COLUMNS = 1_000
NAME_LENGTH = 100
BOM = "\ufeff"


class TextHeader(Struct, frozen=True):
    """The header of a delimited text: its line, counted from 0, the separator, and the names of the columns."""

    line: int
    separator: str
    columns: tuple[str, ...]


def find_header(head: bytes, fits: Callable[[Sequence[str]], bool]) -> TextHeader | None:
    """Return the first header in `head`, the start of a text, whose columns satisfy `fits`."""
    if b"\0" in head:
        return None
    lines = head.decode("utf-8", "replace").removeprefix(BOM).split("\n")[: PREAMBLE + 1]
    for number, line in enumerate(lines):
        for separator in SEPARATORS:
            columns = split(line, separator)
            if len(columns) <= COLUMNS and fits(columns):
                return TextHeader(number, separator, columns)
    return None


def guess_header(head: bytes) -> TextHeader | None:
    """Return what looks like a header: several different names, followed by a line of as many fields."""
    header = find_header(head, lambda columns: len(set(columns)) == len(columns) >= FIELDS and _all_names(columns))
    if header is None:
        return None
    lines = head.decode("utf-8", "replace").split("\n")[header.line + 1 :]
    following = next((line for line in lines if line.strip()), "")
    return header if len(split(following, header.separator)) == len(header.columns) else None


def read_texts(path: Path, header: TextHeader, columns: Sequence[str]) -> pl.DataFrame:
    """Return `columns` as String, rows in stored order, without lines that are empty in all of them.

    Fields beyond the header are ignored, missing ones are null. Memory is about four times the content. Raises
    `TraceError` when the file cannot be read, contains more than `LIMIT_NBYTES` or is damaged.
    """
    if len(set(header.columns)) < len(header.columns):
        twice = next(name for name in header.columns if header.columns.count(name) > 1)
        if twice in columns:
            raise TraceError(path, f"has two columns called {twice!r}", "rename one of them")
    content = read_bytes(path)
    # By position: polars makes up names for columns without one, and for a name that occurs twice. It must read the
    # header, or it needs the number of columns from the line after it, which may be empty or longer.
    wanted = [name for name in header.columns if name in columns]
    with decoding(path):
        frame = pl.read_csv(
            BytesIO(content),
            columns=[header.columns.index(name) for name in wanted],
            separator=header.separator,
            skip_lines=header.line,
            infer_schema=False,
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
            raise_if_empty=False,
        )
        frame.columns = wanted
        frame = frame.select(pl.all().str.strip_chars())
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))


def split(line: str, separator: str) -> tuple[str, ...]:
    """Return the fields of `line`, without the blanks around them."""
    try:
        fields = next(csv.reader([line.rstrip("\r")], delimiter=separator), [])
    except csv.Error:
        return ()
    return tuple(field.strip() for field in fields)


def _all_names(fields: Sequence[str]) -> bool:
    """Return whether `fields` may name columns."""
    return all(any(map(str.isalpha, field)) and len(field) <= NAME_LENGTH and field.isprintable() for field in fields)
