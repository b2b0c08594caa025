"""The roofline in a terminal, in its width and encoding."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper

import pytest
from rich.console import Console

from deepprof.render.page import TextPage
from deepprof.render.roofline.picture import RooflinePicture, draw_up
from deepprof.render.roofline.terminal import LABEL, LETTERS, ROWS, draw_roofline
from tests.deepprof.render.roofline.drawings import PEAKS, PRODUCT, SUM, UNKNOWN, roofed


def printed(picture: RooflinePicture, width: int = 80, encoding: str = "utf-8") -> list[str]:
    console = Console(file=TextIOWrapper(BytesIO(), encoding=encoding), width=width)
    with console.capture() as captured:
        draw_roofline(TextPage(console), picture)
    return captured.get().splitlines()


PICTURE = draw_up(roofed(PRODUCT, SUM, UNKNOWN, (*SUM[:5], None)), PEAKS, "title")


def plot_of(lines: list[str]) -> list[str]:
    return [line[LABEL + 1 :] for line in lines if line[LABEL : LABEL + 1] == "|"]


def test_points_stand_where_they_belong() -> None:
    lines = printed(PICTURE)
    plot = plot_of(lines)
    assert len(plot) == ROWS
    (across,) = {row.index("B") for row in plot if "B" in row}  # mm: 400 of 0.1 to 1000
    columns = 80 - LABEL - 10
    assert across == int((2.602 + 1) / 4 * columns)
    (row,) = [number for number, row in enumerate(plot) if "A" in row[:columns]]
    assert row == int((1 - (9.92 - 9) / 5) * ROWS)  # add: 8.33 GFLOP/s of 1 G to 100 T
    assert sum("c" in row for row in plot) == 1  # predicted
    assert any(line.startswith("B mm") and "compute" in line and "50.0 %" in line for line in lines)
    assert "Small letters and rings: predicted, not measured." in lines


@pytest.mark.parametrize("width", [30, 40, 80, 140])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_line_is_wider_than_the_page(width: int, encoding: str) -> None:
    lines = printed(PICTURE, width, encoding)
    assert max(map(len, lines)) <= width
    if encoding == "ascii":
        assert "\n".join(lines).isascii()


def test_ascii_has_roofs_too() -> None:
    assert sum(row.count(".") for row in plot_of(printed(PICTURE, encoding="ascii"))) > 20


def test_no_colour_in_a_pipe() -> None:
    assert "\x1b" not in "\n".join(printed(PICTURE))


def test_more_points_than_letters() -> None:
    rows = [("x" * 200, SUM[1], SUM[2] * (n + 1), 0, None, 100_000 - n) for n in range(40)]
    lines = printed(draw_up(roofed(*rows), PEAKS, "title"))
    assert f"and {40 - len(LETTERS)} smaller ones" in lines
    assert any("•" in line for line in plot_of(lines))


def test_nothing_to_show() -> None:
    lines = printed(RooflinePicture("empty"))
    assert lines[0] == "empty"
    assert "There is no row whose FLOP, bytes and time are known." in lines
