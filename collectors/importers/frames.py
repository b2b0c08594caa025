"""Parquet and Arrow files as polars frames, within limits: the sizes that a file states are checked before it is read.

A few bytes of Parquet may encode billions of equal rows. No table of events is like that: its times differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import LIMIT_NBYTES, RATIO_FROM_NBYTES, RATIO_LIMIT, open_file

PARQUET, ARROW_FILE, ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
ROWS_PER_BYTE = 8  # of the file; the times of one row use more than a bit
ROWS_FLOOR = 1_000_000  # fewer rows are not checked
VALUE_NBYTES = 8
EXPORT_AGAIN = "export it again"


class FrameFile:
    """One table in a Parquet file or an Arrow one (IPC file or stream); every member raises `TraceError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_file(path) as file:
            head = file.read(len(ARROW_FILE))
            self.nbytes = file.seek(0, 2)
        self.kind = next((kind for kind in (PARQUET, ARROW_FILE, ARROW_STREAM) if head.startswith(kind)), None)
        if self.kind is None:
            raise TraceError(path, "is neither a Parquet nor an Arrow file", EXPORT_AGAIN)
        if self.nbytes > LIMIT_NBYTES:
            raise TraceError(path, f"holds more than the limit of {LIMIT_NBYTES} bytes", "record fewer iterations")

    @cached_property
    def schema(self) -> pl.Schema:
        """Return the columns and their types."""
        with decoding(self.path):
            if self.kind == PARQUET:
                return pl.Schema(pl.read_parquet_schema(self.path))
            return self._load(None, 0).schema

    @cached_property
    def rows(self) -> int:
        """Return the number of rows; raise `TraceError` when the file is too small for this many."""
        with decoding(self.path):
            if self.kind == PARQUET:
                rows = int(pl.scan_parquet(self.path, glob=False).select(pl.len()).collect().item())
            else:
                rows = self._load(list(self.schema)[:1], None).height
        if rows > max(ROWS_FLOOR, ROWS_PER_BYTE * self.nbytes):
            raise TraceError(self.path, f"is no trace: it states {rows} rows in {self.nbytes} bytes", EXPORT_AGAIN)
        return rows

    def read(self, columns: Sequence[str]) -> pl.DataFrame:
        """Return `columns`, which must exist, rows in stored order; raise when they use more than `LIMIT_NBYTES`.

        Columns of lists and structures are returned as nulls: they hold no field of a record, and may be of any size.
        """
        if not columns or not self.rows:
            return pl.DataFrame(schema={name: self.schema[name] for name in columns})
        if self.rows * len(columns) * VALUE_NBYTES > LIMIT_NBYTES:
            problem = f"has {self.rows} rows, which take more than the limit of {LIMIT_NBYTES} bytes"
            raise TraceError(self.path, problem, "record fewer iterations")
        flat = [name for name in columns if not self.schema[name].is_nested()]
        nulls = pl.DataFrame({name: pl.repeat(None, self.rows, dtype=pl.Null, eager=True) for name in columns})
        if not flat:
            return nulls
        with decoding(self.path):
            frame = self._load(flat, None)
            _check_texts(self.path, frame, self.nbytes)
            return nulls.with_columns(frame.select(flat))

    def _load(self, columns: list[str] | None, rows: int | None) -> pl.DataFrame:
        if self.kind == PARQUET:
            return pl.read_parquet(self.path, columns=columns, glob=False, use_statistics=False)
        with self.path.open("rb") as file:  # a path would be mapped, and then a file that shrinks crashes the process
            read: Any = pl.read_ipc if self.kind == ARROW_FILE else pl.read_ipc_stream
            frame: pl.DataFrame = read(file, columns=columns, n_rows=rows)
            return frame


def is_table_file(head: bytes) -> bool:
    """Return whether content that starts with `head` is Parquet or Arrow."""
    return head.startswith((PARQUET, ARROW_FILE, ARROW_STREAM))


def whole_numbers(values: pl.Series) -> pl.Series:
    """Return `values` as Int64; null if one is no whole number in that range. Times and spans are nanoseconds."""
    kind = values.dtype
    if isinstance(kind, pl.Datetime | pl.Duration):
        return _in_nanoseconds(values)
    if kind.is_float():
        return values.set(values != values.floor(), None).cast(pl.Int64, strict=False)
    if kind in {pl.String, pl.Categorical, pl.Enum}:
        return values.cast(pl.String).str.to_integer(strict=False)
    if kind.is_integer() or kind == pl.Boolean:
        return values.cast(pl.Int64, strict=False)
    return pl.repeat(None, len(values), dtype=pl.Int64, eager=True).rename(values.name)


def _in_nanoseconds(values: pl.Series) -> pl.Series:
    """Return times or spans as Int64 nanoseconds; null for values beyond that range (the year 9999)."""
    unit: str = getattr(values.dtype, "time_unit", None) or "us"
    factor = {"ns": 1, "us": 10**3, "ms": 10**6}[unit]
    limit = (2**63 - 1) // factor
    stored = values.cast(pl.Int64)
    return stored.set(~stored.is_between(-limit, limit).fill_null(value=False), None) * factor


def plain_texts(values: pl.Series) -> pl.Series:
    """Return `values` as String, bytes with bad UTF-8 replaced; null for values that are neither text nor number."""
    kind = values.dtype
    if kind == pl.Binary:
        distinct = values.drop_nulls().unique()
        table = pl.DataFrame({"bytes": distinct, "text": [value.decode("utf-8", "replace") for value in distinct]})
        return pl.DataFrame({"bytes": values}).join(table, on="bytes", how="left", maintain_order="left")["text"]
    if kind.is_nested() or isinstance(kind, pl.Duration | pl.Object):
        return pl.repeat(None, len(values), dtype=pl.String, eager=True)
    return values.cast(pl.String, strict=False)


def _check_texts(path: Path, frame: pl.DataFrame, stored: int) -> None:
    """Raise `TraceError` when the texts of `frame`, from a file of `stored` bytes, take far more memory than that."""
    listed = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Categorical | pl.Enum)]
    lengths = (cs.binary().bin.size(), cs.string().str.len_bytes(), pl.col(listed).cat.len_bytes())
    texts = frame.select(*lengths).select(pl.all().cast(pl.Int64).sum())
    nbytes = sum(int(total or 0) for total in texts.row(0)) if texts.width else 0
    if nbytes > min(LIMIT_NBYTES, max(RATIO_FROM_NBYTES, RATIO_LIMIT * stored)):
        raise TraceError(path, f"is no trace: it holds {nbytes} bytes of text in {stored} bytes", EXPORT_AGAIN)


@contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Turn the errors of polars for an invalid file into a `TraceError`."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError, ValueError, OverflowError, MemoryError, TypeError) as error:
        raise _damage(path, error) from error
    except pl.exceptions.PanicException as error:  # its readers panic on invalid data; no Exception, so caught apart
        raise _damage(path, error) from error


def _damage(path: Path, error: BaseException) -> TraceError:
    """Return the error for a file that polars cannot read, with the start of the message of `error`."""
    said = " ".join((str(error) or type(error).__name__).split())[:120]
    return TraceError(path, f"is a damaged table ({said})", EXPORT_AGAIN)
