"""The roofline as a file."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO

import polars as pl
import pytest

from deepprof.collectors.errors import UsageError
from deepprof.render.roofline.picture import draw_up
from deepprof.render.roofline.roofline_files import MOST_ROWS, render_roofline
from tests.deepprof.render.roofline.drawings import PEAKS, PRODUCT, SUM, UNKNOWN, roofed

TABLE = roofed(PRODUCT, SUM, UNKNOWN).with_columns(dims=pl.Series([[2, 3], None, [4]]))
PICTURE = draw_up(TABLE, PEAKS, "of <a> test")


def test_json_has_all_rows_and_roofs() -> None:
    content = json.loads(render_roofline(PICTURE, TABLE, "a.json"))
    assert content["schema"] == "deepprof.roofline/1"
    assert [row["name"] for row in content["rows"]] == ["mm", "add", "custom"]
    assert content["rows"][0]["bound"] == "compute"
    assert content["rows"][2]["flops"] is None
    assert {"kind": "memory", "name": "memory", "per_s": 100e9, "is_extra": False} in content["roofs"]
    assert content["device"] == "made up"


def test_csv_has_all_rows() -> None:
    rows = list(csv.DictReader(StringIO(render_roofline(PICTURE, TABLE, "a.CSV").decode())))
    assert [row["name"] for row in rows] == ["mm", "add", "custom"]
    assert [row["dims"] for row in rows] == ["[2,3]", "null", "[4]"]
    assert rows[2]["flops"] == ""
    assert float(rows[0]["ideal_ns"]) == 40_000


def test_svg_and_html_hold_the_picture() -> None:
    svg, page = (render_roofline(PICTURE, TABLE, f"a.{kind}").decode() for kind in ("svg", "html"))
    assert svg.startswith("<svg")
    assert svg.split("<desc", 1)[1] in page
    assert "<td>mm</td>" in page
    assert "of &lt;a&gt; test" in page
    assert re.findall(r"https?://[^\"' ]+", page) == ["http://www.w3.org/2000/svg"]
    assert "default-src 'none'" in page
    assert "<script" not in page


def test_names_are_text() -> None:
    table = roofed(("<img src=x onerror=1>", *SUM[1:]))
    page = render_roofline(draw_up(table, PEAKS, "t"), table, "a.html").decode()
    assert "<img" not in page


def test_the_page_is_capped() -> None:
    table = roofed(*[SUM] * (MOST_ROWS + 2))
    page = render_roofline(draw_up(table, PEAKS, "t"), table, "a.html").decode()
    assert page.count("<td>add</td>") == MOST_ROWS
    assert "2 smaller points" in page


def test_another_suffix_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\.svg, \.html, \.json, \.csv"):
        render_roofline(PICTURE, TABLE, "a.png")
