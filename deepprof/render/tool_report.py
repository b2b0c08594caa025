"""What a tool reports, for people and as JSON (`deepprof.tool/1`): numbers and texts by name, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from deepprof.plurals import counted
from deepprof.render.json import readable
from deepprof.render.rows import TextRow, draw_rows, fit_columns
from deepprof.render.units import ABSENT, format_bytes, format_duration, format_ratio
from deepprof.version import read_version

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

SCHEMA = "deepprof.tool/1"
SHOWN = 50  # rows of a table in text
CELL_CHARS = 40
FARTHEST = 1 << 63  # beyond it no unit helps
UNITS = {"_ns": format_duration, "nbytes": format_bytes, "_ratio": format_ratio}


class ToolRecords(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool was given: `read` = `kept` + Σ `dropped`; `missed` were no longer in a daemon's window."""

    ranks: list[int]
    read: int
    kept: int
    dropped: dict[str, int]
    missed: int = 0
    notes: list[str] = []


class ToolReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a tool's run, with its options and what it was given."""

    schema: str = SCHEMA
    deepprof: str = msgspec.field(default_factory=read_version)
    tool: str
    options: dict[str, Any]
    records: ToolRecords
    report: Mapping[str, Any]


def encode_tool_report(report: ToolReport) -> str:
    """Return the report as JSON, each table as a list of rows; raises `TypeError` for what JSON cannot hold."""
    tables = {readable(name): _list_rows(value) for name, value in report.report.items()}
    records = msgspec.structs.replace(report.records, notes=_clean(report.records.notes))
    changed = {"report": tables, "options": _clean(report.options), "records": records}
    encoded = msgspec.json.encode(msgspec.structs.replace(report, **changed))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _list_rows(value: Any) -> Any:
    return value.to_dicts() if isinstance(value, pl.DataFrame) else _clean(value)


def _clean(value: Any) -> Any:
    """Return a value with texts that JSON can hold, as those of paths that are not UTF-8 are not."""
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return readable(value) if isinstance(value, str) else value


def draw_tool_report(page: TextPage, report: ToolReport) -> None:
    """Draw the report: numbers and texts first, then each table, at last what is to be stated of the records."""
    records = report.records
    ranks = counted(len(records.ranks), "rank")
    page.line(f"{report.tool}: {counted(records.kept, 'record')} of {ranks}")
    for name, value in report.report.items():
        if not isinstance(value, pl.DataFrame):
            page.line(f"{_label(name)}: {_format(name, value)}", indent=2, hang=2)
    for name, value in report.report.items():
        if isinstance(value, pl.DataFrame):
            page.skip()
            _draw_table(page, name, value)
    if records.notes:
        page.skip()
    for note in records.notes:
        page.line(note, "dim", hang=2)


def _draw_table(page: TextPage, name: str, table: pl.DataFrame) -> None:
    """Draw the first rows of a table, with as many columns as fit."""
    if table.is_empty():
        page.line(f"{_label(name)}: no rows", "dim", indent=2)
        return
    key = next((column for column, dtype in table.schema.items() if dtype == pl.String), table.columns[0])
    values = [column for column in table.columns if column != key]
    rows = [
        TextRow(_format(key, row[key]), tuple(_cut(_format(column, row[column])) for column in values))
        for row in table.head(SHOWN).iter_rows(named=True)
    ]
    page.line(f"{_label(name)}, by {_label(key)}", "dim", indent=2)
    header = [_cut(_label(column)) for column in values]
    fitting = fit_columns(page, header, rows, indent=4) if values else 0
    if fitting:
        draw_rows(page, header[:fitting], [TextRow(row.label, row.values[:fitting]) for row in rows], indent=4)
    else:
        for row in rows:
            page.line(row.label, indent=4, hang=2)
    _say_rest(page, table.height - len(rows), values[fitting:])


def _say_rest(page: TextPage, rows: int, columns: list[str]) -> None:
    rest = [counted(rows, "more row")] if rows > 0 else []
    rest += [f"columns that do not fit: {', '.join(map(_label, columns))}"] if columns else []
    if rest:
        page.line(f"{'; '.join(rest)} (all: --format json)", "dim", indent=4, hang=2)


def _label(name: str) -> str:
    """Return the name of a value without its unit, which is next to the number."""
    unit = next((unit for unit in UNITS if unit.startswith("_") and name.endswith(unit)), "")
    return name.removesuffix(unit).replace("_", " ")


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARS else f"{text[: CELL_CHARS - 3]}..."


def _format(name: str, value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    write = next((write for unit, write in UNITS.items() if name.endswith(unit)), None)
    if write is not None and abs(value) < FARTHEST:
        return write(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
