"""The roofline as one SVG file: text that can be selected, for light and dark, explained by titles."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from math import atan2, cos, degrees, pi, sin, sqrt
from xml.sax.saxutils import escape

from msgspec import Struct

from deepprof.plurals import counted
from deepprof.render.plain import printable, shorten
from deepprof.render.roofline.picture import (
    MarginalBars,
    RooflineAxis,
    RooflineLine,
    RooflinePicture,
    RooflinePoint,
    count_beyond,
    draw_lines,
    find_axes,
    sum_along,
)
from deepprof.render.roofline.rates import format_flops_rate, format_intensity
from deepprof.render.units import format_duration, format_ratio

WIDTH, HEIGHT = 900.0, 600.0
LEFT, RIGHT, TOP, BOTTOM = 92.0, 92.0, 104.0, 84.0  # around the plot
STRIP, GAP = 44.0, 6.0  # of the bars of time next to it
LARGEST, SMALLEST = 26.0, 2.5  # radius of a point that takes all, or hardly any, of the time
FAINTEST, FULLEST = 0.35, 0.85  # opacity, by share
LABELS = 12  # points with their names next to them, where there is space
NAMED_FROM = 0.01  # of the time
NAME = 34  # characters of such a name
PER_CHAR, TEXT = 7.1, 13.0  # of a letter: its width, and a line's height
PARTS_ACROSS, PARTS_UPWARD = 48, 32  # of the bars
LINE = 18.0  # of the notes
BOUNDS = ("compute", "memory", "launch")
SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
# Okabe and Ito's colours; a form for every bound too.
STYLE = """
svg { font: 12px system-ui, sans-serif; }
text { fill: #1c2126; }
.back { fill: #ffffff; }
.title { font-size: 15px; font-weight: 600; }
.quiet { fill: #59616a; }
.halo { stroke: #ffffff; stroke-width: 3px; paint-order: stroke; stroke-linejoin: round; }
.grid { stroke: #e4e6e3; }
.axis { stroke: #8a9199; }
.roof { fill: none; stroke: #1c2126; stroke-width: 1.6px; }
.extra { stroke-dasharray: 6 4; stroke-width: 1.2px; }
.bar { fill: #0072b2; fill-opacity: 0.55; }
.point { stroke-width: 1.6px; }
.hollow { fill-opacity: 0; }
.compute { fill: #0072b2; stroke: #0072b2; }
.memory { fill: #d55e00; stroke: #d55e00; }
.launch { fill: #009e73; stroke: #009e73; }
.unknown { fill: #707780; stroke: #707780; }
.hollow.point { stroke-width: 2px; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7ea; }
  .back { fill: #15171a; }
  .quiet { fill: #a3acb6; }
  .halo { stroke: #15171a; }
  .grid { stroke: #2a2f35; }
  .axis { stroke: #6c747d; }
  .roof { stroke: #e4e7ea; }
  .bar, .compute { fill: #56b4e9; }
  .compute { stroke: #56b4e9; }
  .unknown { fill: #a3acb6; stroke: #a3acb6; }
}
""".strip()
Box = tuple[float, float, float, float]  # left, top, right, bottom


class _Plot(Struct, frozen=True):
    """Where the axes are on the drawing."""

    across: RooflineAxis
    upward: RooflineAxis
    left: float = LEFT
    top: float = TOP
    right: float = WIDTH - RIGHT
    bottom: float = HEIGHT - BOTTOM

    def x(self, intensity: float) -> float:
        """Return the place of an intensity."""
        return self.left + (self.right - self.left) * self.across.place(intensity)

    def y(self, flops_per_s: float) -> float:
        """Return the place of a rate."""
        return self.bottom - (self.bottom - self.top) * self.upward.place(flops_per_s)


def draw_roofline_svg(picture: RooflinePicture) -> str:
    """Return the picture as its own file."""
    across, upward = find_axes(picture)
    plot, lines = _Plot(across, upward), draw_lines(picture, across, upward)
    notes = [
        row
        for note in _list_notes(picture, across, upward)
        for row in textwrap.wrap(note, int((WIDTH - 48) / PER_CHAR))
    ]
    height = HEIGHT + LINE * len(notes)
    taken: list[Box] = []
    roofs = list(_draw_roofs(plot, lines, taken))  # their labels first: those of points give way
    parts = [
        *_open(height, picture),
        *_draw_grid(plot),
        *_draw_bars(plot, picture),
        *roofs,
        *(_draw_point(plot, point) for point in picture.points),
        *_draw_names(plot, picture.points, taken),
        *_draw_legend(picture.points),
        *(write_text(24, HEIGHT + LINE * row, note, "quiet") for row, note in enumerate(notes)),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _list_notes(picture: RooflinePicture, across: RooflineAxis, upward: RooflineAxis) -> list[str]:
    beyond = count_beyond(picture, across, upward)
    more = [
        f"{counted(beyond, 'point')} beyond the range of the axes {'is' if beyond == 1 else 'are'} drawn on its border."
    ]
    empty = ["There is no row whose FLOP, bytes and time are known."] if not picture.points else []
    return [*empty, *picture.notes, *(more if beyond else [])]


def _open(height: float, picture: RooflinePicture) -> Iterator[str]:
    size = f'width="{WIDTH:.0f}" height="{height:.0f}" viewBox="0 0 {WIDTH:.0f} {height:.0f}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="roofline-title roofline-desc">'
    yield f'<title id="roofline-title">{escape_text(picture.title)}</title>'
    yield f'<desc id="roofline-desc">{escape_text(_describe_picture(picture))}</desc>'
    yield f"<style>{STYLE}</style>"
    yield '<rect class="back" width="100%" height="100%"/>'
    yield write_text(24, 30, shorten(picture.title, 110), "title")


def _describe_picture(picture: RooflinePicture) -> str:
    roofs = "; ".join(roof.label for roof in picture.roofs) or "none known"
    first = "; ".join(_explain(point) for point in picture.points[:3])
    return f"Roofline of {counted(len(picture.points), 'point')}. Roofs: {roofs}. The largest: {first or 'none'}."


def _explain(point: RooflinePoint) -> str:
    words = [
        f"{point.name}: {format_ratio(point.share_ratio)} of the time, {format_duration(point.time_ns)}",
        f"{format_flops_rate(point.flops_per_s)} at {format_intensity(point.intensity)} FLOP/byte",
    ]
    words += [f"bound by {point.bound}"] if point.bound else []
    words += [f"{format_ratio(point.roof_ratio)} of its roof"] if point.roof_ratio is not None else []
    return ", ".join([*words, "measured" if point.is_measured else "predicted"])


def _draw_grid(plot: _Plot) -> Iterator[str]:
    """Yield the lines of the decades, their numbers, and what the axes are."""
    step = 1 + (len(plot.upward.ticks) - 1) // 12
    for exponent in plot.across.ticks:
        x = plot.x(10.0**exponent)
        yield f'<path class="grid" d="M{x:.1f} {plot.top:.1f}V{plot.bottom:.1f}"/>'
        yield write_text(x, plot.bottom + 18, _name_power(exponent), "quiet", anchor="middle")
    for exponent in plot.upward.ticks[::step]:
        y = plot.y(10.0**exponent)
        yield f'<path class="grid" d="M{plot.left:.1f} {y:.1f}H{plot.right:.1f}"/>'
        yield write_text(plot.left - 8, y + 4, f"{_name_rate(exponent)}", "quiet", anchor="end")
    yield f'<path class="axis" fill="none" d="M{plot.left:.1f} {plot.top:.1f}V{plot.bottom:.1f}H{plot.right:.1f}"/>'
    yield write_text(
        (plot.left + plot.right) / 2, plot.bottom + 38, "arithmetic intensity, FLOP per byte", anchor="middle"
    )
    middle = (plot.top + plot.bottom) / 2
    yield _turn(write_text(20, middle, "FLOP/s", anchor="middle"), -90, 20, middle)


def _name_power(exponent: int) -> str:
    """Return a power of ten: `0.1`, `1`, `100`, `10⁶`."""
    return format_intensity(10.0**exponent) if -3 <= exponent <= 4 else "10" + str(exponent).translate(SUPERSCRIPT)


def _name_rate(exponent: int) -> str:
    """Return a power of ten with a prefix: `100 G`."""
    base = exponent - exponent % 3
    if base not in PREFIXES:
        return _name_power(exponent)
    return f"{10 ** (exponent - base)} {PREFIXES[base]}".rstrip()


def _draw_bars(plot: _Plot, picture: RooflinePicture) -> Iterator[str]:
    """Yield the time along both axes, above and at the right of the plot."""
    across = sum_along(plot.across, ((point.intensity, point.share_ratio) for point in picture.points), PARTS_ACROSS)
    upward = sum_along(plot.upward, ((point.flops_per_s, point.share_ratio) for point in picture.points), PARTS_UPWARD)
    width = (plot.right - plot.left) / PARTS_ACROSS
    for part, length, said in _list_bars(across):
        x, y = plot.left + width * part, plot.top - GAP - length
        yield _bar(x, y, width - 1, length, said)
    height = (plot.bottom - plot.top) / PARTS_UPWARD
    for part, length, said in _list_bars(upward):
        yield _bar(plot.right + GAP, plot.bottom - height * (part + 1), length, height - 1, said)
    if picture.points:
        yield write_text(plot.right + GAP, plot.top - GAP - 2, "time", "quiet")


def _list_bars(bars: MarginalBars) -> Iterator[tuple[int, float, str]]:
    """Yield each part with time in it: its number, the length of its bar, and what it means."""
    for part, share in enumerate(bars.shares):
        if share > 0:
            yield part, max(STRIP * share / bars.most, 1.0), f"{format_ratio(share)} of the time"


def _bar(x: float, y: float, width: float, height: float, said: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="bar" {place}><title>{escape_text(said)}</title></rect>'


def _draw_roofs(plot: _Plot, lines: Sequence[RooflineLine], taken: list[Box]) -> Iterator[str]:
    """Yield the roofs, and their labels where there is space; all places of labels are added to `taken`."""
    for line in lines:
        (x1, y1), (x2, y2) = ((plot.x(x), plot.y(y)) for x, y in (line.start, line.end))
        kind = "roof extra" if line.roof.is_extra else "roof"
        said = f"<title>{escape_text(line.roof.label)}</title>"
        yield f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}">{said}</path>'
    level = [(line, plot.x(line.start[0]), plot.y(line.start[1])) for line in lines if line.roof.kind == "compute"]
    for line, x, y in level:
        others = [(start - 4, other - 1, plot.right, other + 1) for of, start, other in level if of is not line]
        yield from _label_level(plot, line.roof.label, (x, y), others, taken)
    for line in lines:
        if line.roof.kind == "memory":
            (x1, y1), (x2, y2) = ((plot.x(x), plot.y(y)) for x, y in (line.start, line.end))
            yield from _label_slope(line.roof.label, (x1, y1), (x2, y2), taken)


def _label_level(
    plot: _Plot, label: str, start: tuple[float, float], others: Sequence[Box], taken: list[Box]
) -> Iterator[str]:
    """Yield the label of a level roof: above its right end, or left of its begin where others are close above it."""
    width, (x, y) = PER_CHAR * len(label), start
    for right, baseline in ((plot.right - 4, y - 5), (x - 8, y + 4)):
        box = (right - width, baseline - TEXT + 2, right, baseline + 2)
        if box[0] > plot.left and not _overlaps(box, taken) and not _overlaps(box, others):
            taken.append(box)
            yield write_text(right, baseline, label, "halo", anchor="end")
            return


def _label_slope(label: str, start: tuple[float, float], end: tuple[float, float], taken: list[Box]) -> Iterator[str]:
    """Yield the label of a sloping roof, along it; it is left to the line's title where there is no space."""
    run, rise = end[0] - start[0], start[1] - end[1]
    length, width = sqrt(run * run + rise * rise), PER_CHAR * len(label)
    angle = atan2(rise, run)
    for part in (0.12, 0.3, 0.5, 0.02):
        if part * length + width > length:
            continue
        x, y = start[0] + run * part, start[1] - rise * part
        boxes = [_around(x + cos(angle) * at, y - sin(angle) * at) for at in range(0, int(width) + 1, 12)]
        if not any(_overlaps(box, taken) for box in boxes):
            taken += boxes
            x, y = x - sin(angle) * 5, y - cos(angle) * 5  # above the line
            yield _turn(write_text(x, y, label, "halo"), -degrees(angle), x, y)
            return


def _around(x: float, y: float) -> Box:
    """Return the space of a letter above a sloping line."""
    return x - 8, y - 16, x + 8, y + 2


def _draw_point(plot: _Plot, point: RooflinePoint) -> str:
    """Return a point: its area is its share of the time, its form and colour what bounds it."""
    radius = _radius(point)
    x, y = plot.x(point.intensity), plot.y(point.flops_per_s)
    kind = point.bound if point.bound in BOUNDS else "unknown"
    opacity = FAINTEST + (FULLEST - FAINTEST) * min(sqrt(max(point.share_ratio, 0.0)) * 2, 1.0)
    fill = "" if not point.is_measured else f' fill-opacity="{opacity:.2f}"'
    style = f'class="point {kind}{"" if point.is_measured else " hollow"}"{fill} stroke-opacity="{opacity:.2f}"'
    return f"{_form(kind, x, y, radius, style)[:-2]}><title>{escape_text(_explain(point))}</title></{_TAGS[kind]}>"


_TAGS = {"compute": "circle", "memory": "rect", "launch": "path", "unknown": "circle"}


def _form(kind: str, x: float, y: float, radius: float, style: str) -> str:
    """Return the form of a bound, each of the same area: a circle, a square, a triangle."""
    if kind == "memory":
        half = radius * sqrt(pi) / 2
        return f'<rect {style} x="{x - half:.1f}" y="{y - half:.1f}" width="{2 * half:.1f}" height="{2 * half:.1f}"/>'
    if kind == "launch":
        side = radius * sqrt(4 * pi / sqrt(3))
        up = side / sqrt(3)
        return f'<path {style} d="M{x:.1f} {y - up:.1f}l{side / 2:.1f} {1.5 * up:.1f}h{-side:.1f}Z"/>'
    return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>'


def _draw_names(plot: _Plot, points: Sequence[RooflinePoint], taken: list[Box]) -> Iterator[str]:
    """Yield the names of the points that use most of the time, each next to its point where no other text is."""
    for point in points[:LABELS]:
        if point.share_ratio < NAMED_FROM:
            return
        label = shorten(printable(point.name), NAME)
        for x, y, anchor in _places_of_name(plot, point):
            left = x - PER_CHAR * len(label) * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
            box = (left, y - TEXT + 3, left + PER_CHAR * len(label), y + 3)
            inside = box[0] > plot.left and box[2] < plot.right and box[1] > plot.top and box[3] < plot.bottom
            if inside and not _overlaps(box, taken):
                taken.append(box)
                yield write_text(x, y, label, "halo", anchor=anchor)
                break


def _places_of_name(plot: _Plot, point: RooflinePoint) -> Iterator[tuple[float, float, str]]:
    """Yield where the name of a point may be: at its right, at its left, above and below it."""
    x, y, radius = plot.x(point.intensity), plot.y(point.flops_per_s), _radius(point) + 4
    yield x + radius, y + 4, "start"
    yield x - radius, y + 4, "end"
    yield x, y - radius - 2, "middle"
    yield x, y + radius + TEXT - 2, "middle"


def _radius(point: RooflinePoint) -> float:
    """Return the radius of a point as a circle: its area is its share of the time."""
    return max(LARGEST * sqrt(min(max(point.share_ratio, 0.0), 1.0)), SMALLEST)


def _overlaps(box: Box, others: Sequence[Box]) -> bool:
    left, top, right, bottom = box
    return any(left < other[2] and other[0] < right and top < other[3] and other[1] < bottom for other in others)


def _draw_legend(points: Sequence[RooflinePoint]) -> Iterator[str]:
    x, y = LEFT, HEIGHT - 22
    known = {point.bound if point.bound in BOUNDS else "unknown" for point in points}
    for kind in (*BOUNDS, "unknown"):
        if kind in known:
            yield _form(kind, x, y - 4, 5, f'class="point {kind}"')
            label = f"bound by {kind}" if kind != "unknown" else "bound unknown"
            yield write_text(x + 12, y, label, "quiet")
            x += 30 + PER_CHAR * len(label)
    if any(not point.is_measured for point in points):
        yield _form("unknown", x, y - 4, 5, 'class="point unknown hollow"')
        yield write_text(x + 12, y, "hollow: predicted", "quiet")
        x += 30 + PER_CHAR * 17
    if points:
        yield write_text(x, y, "area: share of the time", "quiet")


def write_text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> str:
    """Return a line of text."""
    style = f' class="{kind}"' if kind else ""
    at = f'x="{x:.1f}" y="{y:.1f}"' + ("" if anchor == "start" else f' text-anchor="{anchor}"')
    return f"<text{style} {at}>{escape_text(text)}</text>"


def _turn(text: str, angle: float, x: float, y: float) -> str:
    """Return a text turned around a place, by degrees clockwise."""
    return f'<g transform="rotate({angle:.1f} {x:.1f} {y:.1f})">{text}</g>'


def escape_text(text: str) -> str:
    """Return a text as XML shows it: without characters that no document may hold, or that turn it around."""
    return escape(printable(text), {'"': "&quot;"})
