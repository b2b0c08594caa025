"""Any table of events, CSV or Parquet: for files that no other importer has, with a mapping of their columns.

A table whose columns have DeepProf's own names (`start_ns`, `end_ns` or `duration_ns`, `name` …) needs no mapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.files import open_file, read_head
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.frames import FrameFile, is_table_file
from deepprof.collectors.importers.generic.columns import OWN, GenericColumns, listed, suggest
from deepprof.collectors.importers.generic.text import TextHeader, find_header, guess_header, read_texts
from deepprof.collectors.importers.generic.values import (
    RANGES,
    activities,
    copy_kinds,
    durations,
    numbers,
    places,
    texts,
)
from deepprof.collectors.trace import HOST_CATEGORIES, Trace

__all__ = ["Csv", "Parquet", "explain", "read_mapped"]

LENGTHS = {"end", "duration"}
SHOWN = 8


class Csv:
    """Importer of delimited texts whose columns have DeepProf's own names."""

    name = "csv"
    suffixes = (".csv", ".tsv", ".csv.gz")

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head` has a header of DeepProf's own names; never raises."""
        return bool(head) and find_header(head, _is_own) is not None

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`; raises as `read_mapped` does."""
        return read_mapped(path, _own_columns(path))


class Parquet:
    """Importer of Parquet and Arrow files whose columns have DeepProf's own names."""

    name = "parquet"
    suffixes = (".parquet", ".arrow")

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether the table in `path` has columns of DeepProf's own names; never raises."""
        try:
            return is_table_file(head) and _is_own(list(FrameFile(path).schema))
        except TraceError:
            return False

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`; raises as `read_mapped` does."""
        return read_mapped(path, _own_columns(path))


def _is_own(found: Sequence[str]) -> bool:
    """Return whether the columns `found` have the names that need no mapping."""
    names = {name.lower() for name in found}
    return {OWN.start, OWN.name} <= names and bool({OWN.end, OWN.duration} & names)


def _own_columns(path: Path) -> GenericColumns:
    """Return the mapping of the columns in `path` that have DeepProf's own names, in upper or lower case."""
    found = {name.lower(): name for name in reversed(_list_columns(path, None))}
    if not _is_own(tuple(found)):
        problem, advice = _describe(_list_columns(path, None))
        raise TraceError(path, problem, advice)
    known = {key: found[column] for key, column in OWN.named().items() if column in found}
    return GenericColumns(**known)  # type: ignore[arg-type]  # texts, all but `unit`, which it lacks


def _list_columns(path: Path, columns: GenericColumns | None) -> list[str]:
    """Return the columns of the table in `path`: those of its schema, or of its header."""
    head = read_head(path)
    if is_table_file(head):
        return list(FrameFile(path).schema)
    header = _match_header(head, columns)
    if header is None:
        raise TraceError(path, "is no table with a header", "give a CSV or Parquet file whose first line names columns")
    return list(header.columns)


def _match_header(head: bytes, columns: GenericColumns | None) -> TextHeader | None:
    """Return the header in `head` that has all of `columns`, or DeepProf's own names, or else what looks like one."""
    wanted = set(columns.named().values()) if columns else set()
    fitting = find_header(head, lambda found: wanted <= set(found) if wanted else _is_own(found))
    return fitting or guess_header(head)


def explain(head: bytes, path: Path) -> TraceError | None:
    """Return the error for a table that starts with `head` and that no importer accepts; None if it is no table."""
    try:
        if is_table_file(head):
            problem, advice = _describe(list(FrameFile(path).schema))
        elif head and (header := guess_header(head)):
            problem, advice = _describe(list(header.columns))
        else:
            return None
    except TraceError as error:
        return error
    return TraceError(path, problem, advice)


def _describe(found: list[str]) -> tuple[str, str]:
    """Return the problem with a table of the columns `found`, and the advice to map them."""
    return (
        f"is a table of {listed(found)}, in no format that DeepProf knows",
        f"say which is which: --columns {suggest(found)}",
    )


def read_mapped(path: Path, columns: GenericColumns) -> Trace:
    """Return the trace in the table `path`, whose columns `columns` names; the clock is "session".

    Memory is about six times the content of a text file, and the named columns of Parquet and Arrow; content and
    columns are at most `LIMIT_NBYTES`. Raises `TraceError` when a column does not exist, or the file cannot be read
    or is damaged.
    """
    with open_file(path):  # raises a clear error for a directory or a missing file
        head = read_head(path)
    columns.check(path, _list_columns(path, columns))
    wanted = list(dict.fromkeys(columns.named().values()))
    if is_table_file(head):
        rows, comma, kind = FrameFile(path).read(wanted), False, "parquet"
    else:
        header = _match_header(head, columns)
        assert header is not None  # noqa: S101  list_columns has found it
        rows, comma, kind = read_texts(path, header, wanted), header.separator == ";", "csv"
    return _make_trace(path, kind, rows, columns, decimal_comma=comma)


def _make_trace(path: Path, kind: str, rows: pl.DataFrame, columns: GenericColumns, *, decimal_comma: bool) -> Trace:
    """Return the trace of `rows`, which hold the columns that `columns` names."""
    tally, notes = Tally(), list[str]()
    frame = _convert(rows, columns, notes, decimal_comma=decimal_comma)
    side = pl.col("kind").is_in([*HOST_CATEGORIES, RANGES])
    device = frame.filter(~side).rename({"kind": "activity"})
    copies = pl.when(pl.col("activity") == "memcpy").then("copy_kind").alias("copy_kind")
    host = frame.filter(pl.col("kind").is_in(HOST_CATEGORIES)).rename({"kind": "category"})
    ranges = frame.filter(pl.col("kind") == RANGES).drop("device", "stream", strict=False)
    if device.is_empty() and rows.height:
        notes.append("no row of the table is of a device")
    records = Records(device=device.with_columns(copies), host=host, annotations=ranges, tally=tally)
    return assemble(path, kind, records, read=rows.height, clock="session", notes=tuple(notes))


def _convert(rows: pl.DataFrame, columns: GenericColumns, notes: list[str], *, decimal_comma: bool) -> pl.DataFrame:
    """Return `rows` with the column names of a `Trace`, and `kind`, which selects the table of every row."""
    given = {key: rows[column] for key, column in columns.named().items()}
    times = {
        key: durations(given[key], columns.unit, decimal_comma=decimal_comma)
        for key in ("start", "end", "duration")
        if key in given
    }
    end = times["end"] if "end" in times else pl.repeat(None, rows.height, dtype=pl.Int64, eager=True)
    if "duration" in times:
        end = pl.select(pl.coalesce(end, times["start"] + times["duration"])).to_series()
    names = texts(given["name"])
    frame: dict[str, pl.Series] = {"start_ns": times["start"], "end_ns": end, "name": names}
    frame["kind"] = activities(given.get("activity"), names)
    told = copy_kinds(given["copy_kind"]) if "copy_kind" in given else None
    frame["copy_kind"] = copy_kinds(names) if told is None else told.zip_with(told.is_not_null(), copy_kinds(names))
    frame |= {key: numbers(given[key]) for key in ("nbytes", "correlation") if key in given}
    for key in ("device", "stream", "thread"):
        if key in given:
            frame[key], named = places(given[key])
            notes.extend(_explain_numbers(key, named))
    return pl.DataFrame(frame)


def _explain_numbers(key: str, named: list[str]) -> list[str]:
    """Return a note on the numbers given to the texts `named`, no note if there are none."""
    if not named:
        return []
    numbered = ", ".join(f"{at} is {text[:40]!r}" for at, text in enumerate(named[:SHOWN]))
    return [f"{key} has no numbers, so its values are numbered: {numbered}{' …' if len(named) > SHOWN else ''}"]
