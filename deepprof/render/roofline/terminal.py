"""The roofline in a terminal: roofs of dots, a letter for each of the largest points, and the time along the axes."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_uppercase
from typing import TYPE_CHECKING

from deepprof.render.plain import printable, shorten
from deepprof.render.roofline.picture import (
    RooflineAxis,
    RooflinePicture,
    count_beyond,
    draw_lines,
    find_axes,
    sum_along,
)
from deepprof.render.roofline.rates import format_flops_rate, format_intensity
from deepprof.render.units import ABSENT, format_duration, format_ratio

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

ROWS = 20
WIDEST, NARROWEST = 110, 16  # columns of the plot
LABEL, SIDE = 8, 9  # columns at its left, and of the bars at its right
WITH_SIDE = 60  # columns of a page from which on there are bars at the right
LETTERS = ascii_uppercase
BLOCKS, ASCII_BLOCKS = " ▁▂▃▄▅▆▇█", " ..::||##"
BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a cell: four rows of two
Cells = list[list[str]]


def draw_roofline(page: TextPage, picture: RooflinePicture) -> None:
    """Print the picture, then its roofs, the points by their letters, and the notes."""
    page.line(picture.title, "bold")
    across, upward = find_axes(picture)
    has_side = page.width >= WITH_SIDE
    columns = max(min(page.width - LABEL - (SIDE if has_side else 0) - 1, WIDEST), NARROWEST)
    cells = _draw_cells(picture, across, upward, columns, page.ascii)
    shares = [(point.intensity, point.share_ratio) for point in picture.points]
    page.draw(" " * (LABEL + 1) + _draw_columns(across, shares, columns, page.ascii))
    for row, line in enumerate(cells):
        page.draw(
            _name_row(upward, row)
            + "|"
            + "".join(line)
            + (_draw_side(upward, picture, row, page.ascii) if has_side else "")
        )
    page.draw(" " * LABEL + "+" + "-" * columns)
    page.draw(" " * (LABEL + 1) + _name_columns(across, columns))
    page.draw(f"{'':{LABEL}} FLOP per byte; upward FLOP/s"[: page.width], "dim")
    for roof in picture.roofs:
        page.line(f"{'if ' if roof.is_extra else ''}roof: {roof.label}", "dim")
    _list_points(page, picture)
    for note in (*picture.notes, *_say_beyond(count_beyond(picture, across, upward))):
        page.line(note, "dim")


def _draw_cells(
    picture: RooflinePicture, across: RooflineAxis, upward: RooflineAxis, columns: int, is_ascii: bool
) -> Cells:
    """Return the plot: roofs, over them points, the largest last."""
    dots = [[0] * columns for _ in range(ROWS)]
    for line in draw_lines(picture, across, upward):
        ends = [(across.place(x), upward.place(y)) for x, y in (line.start, line.end)]
        for step in range(8 * columns + 1):
            part = step / (8 * columns)
            x, y = (begin + (end - begin) * part for begin, end in zip(*ends, strict=True))
            dot_x, dot_y = min(int(x * 2 * columns), 2 * columns - 1), min(int((1 - y) * 4 * ROWS), 4 * ROWS - 1)
            dots[dot_y // 4][dot_x // 2] |= DOTS[dot_y % 4][dot_x % 2]
    cells = [[_show_dots(cell, is_ascii) for cell in row] for row in dots]
    for number, point in reversed(list(enumerate(picture.points))):
        column = min(int(across.place(point.intensity) * columns), columns - 1)
        row = min(int((1 - upward.place(point.flops_per_s)) * ROWS), ROWS - 1)
        cells[row][column] = _sign(number, point.is_measured, is_ascii)
    return cells


def _show_dots(cell: int, is_ascii: bool) -> str:
    if not cell:
        return " "
    return "." if is_ascii else chr(BRAILLE + cell)


def _sign(number: int, is_measured: bool, is_ascii: bool) -> str:
    """Return the sign of a point: a letter, a small one if it is predicted; a dot or a ring after the last letter."""
    if number < len(LETTERS):
        return LETTERS[number] if is_measured else LETTERS[number].lower()
    if is_ascii:
        return "*" if is_measured else "o"
    return "•" if is_measured else "○"


def _draw_columns(axis: RooflineAxis, shares: list[tuple[float, float]], columns: int, is_ascii: bool) -> str:
    """Return the time along the intensity, as one line of blocks."""
    bars = sum_along(axis, shares, columns)
    return "".join(_block(share, bars.most, is_ascii) for share in bars.shares).rstrip()


def _block(share: float, most: float, is_ascii: bool) -> str:
    """Return the block of a share: of any time at least the lowest one."""
    blocks = ASCII_BLOCKS if is_ascii else BLOCKS
    return blocks[max(round(share / most * (len(blocks) - 1)), 1)] if share > 0 else " "


def _draw_side(axis: RooflineAxis, picture: RooflinePicture, row: int, is_ascii: bool) -> str:
    """Return the bar of the time next to a row, nothing where there is none."""
    bars = sum_along(axis, ((point.flops_per_s, point.share_ratio) for point in picture.points), ROWS)
    share = bars.shares[ROWS - 1 - row]
    return " " + ("#" if is_ascii else "█") * max(round(share / bars.most * (SIDE - 1)), 1) if share > 0 else ""


def _name_row(axis: RooflineAxis, row: int) -> str:
    """Return what is left of a row: the power of ten whose place is in it."""
    for exponent in axis.ticks:
        if min(int((1 - axis.place(10.0**exponent)) * ROWS), ROWS - 1) == row:
            return f"{format_flops_rate(10.0**exponent).removesuffix('FLOP/s').strip():>{LABEL - 1}} "
    return " " * LABEL


def _name_columns(axis: RooflineAxis, columns: int) -> str:
    """Return the numbers under the plot, those that have space."""
    line = ""
    for exponent in axis.ticks:
        text = format_intensity(10.0**exponent)
        at = min(int(axis.place(10.0**exponent) * columns), columns - len(text))
        if at >= len(line) + (2 if line else 0):
            line = line.ljust(at) + text
    return line


def _list_points(page: TextPage, picture: RooflinePicture) -> None:
    if not picture.points:
        page.line("There is no row whose FLOP, bytes and time are known.")
        return
    name = max(page.width - 51, 12)
    if page.width >= 70:
        page.draw(f"  {'name':<{name}} {'share':>7} {'time':>8} {'FLOP/s':>13} {'bound':>8} {'of roof':>8}", "dim")
    for number, point in enumerate(picture.points[: len(LETTERS)]):
        sign, title = _sign(number, point.is_measured, page.ascii), shorten(printable(point.name), name)
        share, rate = format_ratio(point.share_ratio), format_flops_rate(point.flops_per_s)
        roof = ABSENT if point.roof_ratio is None else format_ratio(point.roof_ratio)
        if page.width >= 70:
            time = format_duration(point.time_ns)
            page.draw(f"{sign} {title:<{name}} {share:>7} {time:>8} {rate:>13} {point.bound or ABSENT:>8} {roof:>8}")
        else:
            page.line(f"{sign} {title}: {share}, {rate}, {roof} of its roof", hang=2)
    if len(picture.points) > len(LETTERS):
        page.line(f"and {len(picture.points) - len(LETTERS):,} smaller ones", "dim")
    if any(not point.is_measured for point in picture.points):
        page.line("Small letters and rings: predicted, not measured.", "dim")


def _say_beyond(beyond: int) -> Iterator[str]:
    """Yield how many points are drawn on the border."""
    if beyond:
        yield f"{beyond:,} of the points lie beyond the range of the axes and are drawn on their border."
