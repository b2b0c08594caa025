"""The kernels of a job for people, as JSON, and as lines for a table of patterns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from deepprof.collectors.names.functors import shorten_with_function
from deepprof.plurals import counted
from deepprof.render.rows import TextRow, draw_rows
from deepprof.render.units import ABSENT, format_duration, format_ratio
from deepprof.version import read_version

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

SCHEMA = "deepprof.kernel_list/1"
HEADER = ("calls", "time", "share", "category", "precision", "unit", "library")
UNITS = {"tensor_core": "matrix", "simt": "ordinary"}
MIN_NAME_CHARS = 30
LONGEST_EXAMPLE = 500  # characters of a name in a line for a table
NOTHING = "No kernel was recorded"
ALL_KNOWN = "All kernels are in a table of patterns"


def write_kernels(kernels: pl.DataFrame, ranks: int) -> str:
    """Return the kernels as JSON: a table with the schema `KERNEL_TIMES`."""
    rows = kernels.to_dicts()
    content: dict[str, Any] = {"schema": SCHEMA, "version": read_version(), "ranks": ranks, "kernels": rows}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def print_kernels(kernels: pl.DataFrame, console: Console, most: int) -> None:
    """Print the first `most` kernels."""
    from deepprof.render.page import TextPage

    page = TextPage(console)
    if kernels.is_empty():
        page.line(NOTHING)
        return
    rows = kernels.head(most).to_dicts()
    shown = [TextRow(label, _list_values(row)) for row, label in zip(rows, _label(rows), strict=True)]
    draw_rows(page, HEADER, shown, indent=0, min_label_chars=MIN_NAME_CHARS)
    if kernels.height > most:
        page.line(f"{counted(kernels.height - most, 'more kernel')}; --top {kernels.height} shows all", "dim")


def _label(rows: list[dict[str, Any]]) -> list[str]:
    """Return short names of kernels; where several have one, with the operator that launched each, or in full."""
    short = [shorten_with_function(row["name"]) for row in rows]
    operated = [f"{name} [{row['operator']}]" for name, row in zip(short, rows, strict=True)]
    once = Counter(short), Counter(operated)
    return [
        name if once[0][name] == 1 else launched if once[1][launched] == 1 and row["operator"] else row["name"]
        for name, launched, row in zip(short, operated, rows, strict=True)
    ]


def _list_values(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the values of a kernel's row; what is not sure has a question mark."""
    doubt = "" if row["sure"] or row["category"] == "unknown" else "?"
    return (
        f"{row['calls']:,}",
        format_duration(row["time_ns"]),
        format_ratio(row["share_ratio"]),
        row["category"] + doubt,
        row["precision"] or ABSENT,
        UNITS.get(row["unit"], ABSENT),
        row["library"] or ABSENT,
    )


def write_lines(kernels: Iterable[dict[str, Any]]) -> str:
    """Return a line for a table of patterns for every kernel: its pattern, category and source are to be completed."""
    lines = [_write_line(row) for row in kernels]
    return "".join(f"{line}\n" for line in lines) or f"# {ALL_KNOWN}\n"


def _write_line(row: dict[str, Any]) -> str:
    """Return the line for one kernel, with its time and calls as a comment."""
    parts = {"match": write_stub(row["name"]), "category": row["category"], "example": row["name"][:LONGEST_EXAMPLE]}
    written = ", ".join(f"{key} = {_quote(value)}" for key, value in parts.items())
    spent = f"{format_duration(row['time_ns'])} in {counted(row['calls'], 'call')}"
    return f"    {{ {written}, source = {_quote('how this is known')} }},  # {spent}"


def write_stub(name: str) -> str:
    """Return a pattern for the beginning of a name, up to its types, with any number where it has one."""
    head = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0][: LONGEST_EXAMPLE // 2] or name[:1]
    escaped = "".join(each if re.fullmatch(r"[0-9A-Za-z_: ]", each) else re.escape(each) for each in head)
    return re.sub(r"[0-9]+", lambda _: r"\d+", escaped)


def _quote(text: str) -> str:
    written = json.dumps(text, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04X}", written)
