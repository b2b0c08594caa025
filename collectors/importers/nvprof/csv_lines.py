"""Lines of nvprof's CSV as columns of texts: each line is split correctly, whatever the other lines contain.

A quote that is never closed, as in a file that breaks off, affects its own line and no other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.importers.value_columns import GROUPED

NEWLINE, QUOTE, FIELD = 0x0A, 0x22, "\x1f"
Bytes = npt.NDArray[np.uint8]


class NvprofCsvLines(Struct, frozen=True, eq=False):
    """Lines split at their separators: `fields` has a String column per column of the header, in the same order.

    `separators` is the number of separators in every line, `closed` whether its quotes are closed.
    """

    fields: pl.DataFrame
    separators: pl.Series
    closed: pl.Series


def split_lines(content: bytes, columns: list[str], separator: bytes) -> NvprofCsvLines:
    """Return the lines of `content` that are not empty, split into `columns`."""
    raw = np.frombuffer(content.rstrip(b"\n").replace(FIELD.encode(), b" "), np.uint8)
    ends = np.append(np.flatnonzero(raw == NEWLINE), len(raw))
    quotes = raw == QUOTE
    inside = np.bitwise_xor.accumulate(quotes.view(np.uint8)) if len(raw) else raw
    before = np.concatenate([np.zeros(1, np.uint8), inside[ends[:-1]]])  # a line starts outside of quotes
    lengths = np.diff(ends, prepend=-1)
    outside = inside == np.repeat(before, lengths)[: len(raw)]
    separators = (raw == separator[0]) & outside
    counts = np.diff(np.searchsorted(np.flatnonzero(separators), ends), prepend=0)
    spaced = np.where(separators, np.uint8(ord(FIELD)), raw)[~quotes]
    texts = spaced.tobytes().decode("utf-8", "replace").split("\n")
    split = pl.Series(texts, dtype=pl.String).str.split_exact(FIELD, max(len(columns) - 1, 1))
    fields = split.struct.unnest()[:, : len(columns)]
    closed = np.append(outside, True)[np.maximum(ends - 1, 0)]
    filled = pl.Series(lengths > 1)
    fields = fields.rename(dict(zip(fields.columns, columns, strict=True))).filter(filled)
    return NvprofCsvLines(fields, pl.Series(counts).filter(filled), pl.Series(closed).filter(filled))


def split_fields(line: bytes, separator: bytes) -> list[str]:
    """Return the fields of one line, without the space around them."""
    texts = line.decode("utf-8", "replace").split(separator.decode())
    return [text.strip().strip('"').strip() for text in texts]


def numbers(texts: pl.Series, separator: bytes) -> pl.Series:
    """Return `texts` as Float64, null for a text that is no finite number.

    A spreadsheet may have rewritten the file with grouped thousands ("1,234.5") or, if another character separates the
    fields, with a decimal comma.
    """
    plain = texts.str.strip_chars()
    values = plain.cast(pl.Float64, strict=False)
    if values.null_count() > (plain.is_null() | (plain == "")).sum():
        if separator != b",":
            plain = plain.str.replace(r"^([+-]?\d+),(\d+)$", "$1.$2")
        ungrouped = plain.str.replace_all(",", "", literal=True)
        plain = ungrouped.zip_with(plain.str.contains(GROUPED), plain)
        values = plain.cast(pl.Float64, strict=False)
    return values.set(~values.is_finite().fill_null(value=False), None)
