"""A tool's report in text of any width, and as JSON."""

from __future__ import annotations

import io
import json

import polars as pl
import pytest
from msgspec.structs import replace
from rich.console import Console

from deepprof.render.page import TextPage
from deepprof.render.tool_report import ToolRecords, ToolReport, draw_tool_report, encode_tool_report
from deepprof.version import read_version

RECORDS = ToolRecords(
    ranks=[0, 1], read=12_345, kept=12_340, dropped={"metadata": 5}, missed=2, notes=["2 were missed"]
)


def build_report(**values: object) -> ToolReport:
    return ToolReport(tool="mine", options={"top": 3}, records=RECORDS, report=values)


def draw(report: ToolReport, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    draw_tool_report(TextPage(console), report)
    return console.file.getvalue().splitlines()


def test_values_have_the_unit_of_their_name() -> None:
    report = build_report(
        busy_ns=1_234_567,
        moved_nbytes=2048,
        hit_ratio=0.25,
        calls=12_345,
        mean=0.123456,
        text="so",
        none=None,
        yes=True,
    )
    assert draw(report) == [
        "mine: 12,340 records of 2 ranks",
        "  busy: 1.23 ms",
        "  moved nbytes: 2.00 KiB",
        "  hit: 25.0 %",
        "  calls: 12,345",
        "  mean: 0.1235",
        "  text: so",
        "  none: -",
        "  yes: True",
        "",
        "2 were missed",
    ]


TABLE = pl.DataFrame({"rank": [0, 1], "name": ["gemm", "a" * 90], "time_ns": [1500, None], "note": ["x" * 50, None]})


def test_a_table_has_its_text_first_and_its_numbers_right() -> None:
    lines = draw(build_report(kernels=TABLE), 140)
    assert lines[2:6] == [
        "  kernels, by name",
        f"{'':75}  rank     time{'note':>42}",
        f"    gemm{'':67}     0  1.50 µs  {'x' * 37}...",
        f"    {'a' * 34}...{'a' * 34}     1        -{'-':>42}",
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_page(width) -> None:
    lines = draw(build_report(kernels=TABLE, total_ns=5, text="word " * 40), width)
    assert max(map(len, lines)) <= width
    said = " ".join(map(str.strip, lines))
    assert ("columns that do not fit: " in said) == (width < 60)


def test_a_long_table_says_what_it_leaves_out() -> None:
    lines = draw(build_report(rows=pl.DataFrame({"name": [f"k{at}" for at in range(60)], "calls": range(60)})))
    assert lines[-3] == "    10 more rows (all: --format json)"
    assert sum(line.strip().startswith("k") for line in lines) == 50


def test_tables_without_rows_or_texts() -> None:
    lines = draw(build_report(empty=TABLE.clear(), bare=pl.DataFrame(), numbers=pl.DataFrame({"rank": [3]})))
    assert [line for line in lines[1:-2] if line] == [
        "  empty: no rows",
        "  bare: no rows",
        "  numbers, by rank",
        "    3",
    ]


def test_what_a_terminal_would_interpret_is_not_printed() -> None:
    lines = draw(build_report(text="\x1b[1mbold", table=pl.DataFrame({"name": ["\x1b]0;title\x07"], "n": [1]})))
    assert "\x1b" not in "".join(lines)


def test_json_has_tables_as_rows() -> None:
    report = build_report(kernels=TABLE.select("rank", "time_ns"), calls=7, share=float("nan"), text="é")
    assert json.loads(encode_tool_report(report)) == {
        "schema": "deepprof.tool/1",
        "deepprof": read_version(),
        "tool": "mine",
        "options": {"top": 3},
        "records": {
            "ranks": [0, 1],
            "read": 12_345,
            "kept": 12_340,
            "dropped": {"metadata": 5},
            "missed": 2,
            "notes": ["2 were missed"],
        },
        "report": {
            "kernels": [{"rank": 0, "time_ns": 1500}, {"rank": 1, "time_ns": None}],
            "calls": 7,
            "share": None,
            "text": "é",
        },
    }


def test_numbers_beyond_all_units_are_shown_without_one() -> None:
    assert draw(build_report(far_ns=10**400, high_ratio=1e300))[1].strip() == "far:"
    assert "  high: 1e+300" in draw(build_report(high_ratio=1e300))


def test_texts_that_are_no_unicode_are_replaced() -> None:
    """As in a path whose bytes are not UTF-8, given as an option."""
    report = replace(build_report(said="a\udcff"), options={"path": "b\udcff", "more": ["c\udcff"]})
    found = json.loads(encode_tool_report(report))
    assert (found["report"], found["options"]) == ({"said": "a?"}, {"path": "b?", "more": ["c?"]})
