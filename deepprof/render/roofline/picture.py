"""What a roofline shows: roofs and points, the ranges of its axes, and how the time is along them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, inf, isfinite, log10
from typing import Literal

import polars as pl
from msgspec import Struct, field

from deepprof.metrics.cost.roofs import MEMORY, DevicePeaks, find_rate_type
from deepprof.plurals import counted
from deepprof.render.roofline.rates import format_flops_rate, format_nbytes_rate
from deepprof.render.units import format_ratio

RoofKind = Literal["compute", "memory"]
MOST_DECADES = 9  # of an axis; what is beyond is drawn at its border
MOST_POINTS = 2_000  # of a picture; the table has all rows
FEWEST_DECADES = 2
TINY = 1e-9  # weight of a value without any: of two ranges alike the one with more values counts
NO_ROOFS = "No peaks of this device are known: give them with --peaks to see its roofs."


class RooflineRoof(Struct, frozen=True):
    """A line that nothing is above: FLOP/s of units (`compute`) or bytes/s of a level of memory (`memory`).

    `is_extra` is one that the user asks about, such as a memory at half the rate: what if it were so.
    """

    kind: RoofKind
    name: str
    per_s: float
    is_extra: bool = False

    @property
    def label(self) -> str:
        """Its name and its rate."""
        return f"{self.name} {(format_flops_rate if self.kind == 'compute' else format_nbytes_rate)(self.per_s)}"


class RooflinePoint(Struct, frozen=True):
    """An operator, a layer or a whole model.

    `intensity` is in FLOP per byte; `share_ratio` its part of the time of all. `is_measured` is false where the FLOP,
    the bytes or the time are predicted: such a point is drawn hollow.
    """

    name: str
    intensity: float
    flops_per_s: float
    share_ratio: float
    time_ns: float
    is_measured: bool = True
    bound: str | None = None
    roof_ratio: float | None = None


class RooflinePicture(Struct, frozen=True):
    """A roofline; `notes` are sentences below it. Points are sorted by their share, the largest first."""

    title: str
    roofs: tuple[RooflineRoof, ...] = ()
    points: tuple[RooflinePoint, ...] = ()
    notes: tuple[str, ...] = ()
    device: str = ""


class RooflineAxis(Struct, frozen=True):
    """The range of a logarithmic axis, in decades: `low` and `high` are powers of ten."""

    low: int
    high: int

    def place(self, value: float) -> float:
        """Return where a positive value is, 0 to 1; values beyond the range are on its border."""
        return min(max((log10(value) - self.low) / (self.high - self.low), 0.0), 1.0)

    def holds(self, value: float) -> bool:
        """Return whether a positive value is in the range."""
        return self.low <= log10(value) <= self.high

    @property
    def ticks(self) -> list[int]:
        """The exponents of the ticks."""
        return list(range(self.low, self.high + 1))


def draw_up(
    table: pl.DataFrame, peaks: DevicePeaks | None, title: str, *, extra: Iterable[float] = ()
) -> RooflinePicture:
    """Return the picture of rows that `metrics.cost.roofs.add_roofs` gave their roofs.

    `table` has `name` and the columns of `add_roofs`, and may have `basis` (`measured` or `predicted`). A row without a
    time is where it could be at best, and has no share; where no row has a time, the ideal times count. `extra` are
    rates of a memory in bytes/s to draw next to those of `peaks`.
    """
    is_timed = table["device_ns"].count() > 0
    rows = table.with_columns(
        time_ns=pl.col("device_ns" if is_timed else "ideal_ns").cast(pl.Float64).fill_null(0),
        flops_per_s=pl.coalesce("achieved_flops_per_s", "attainable_flops_per_s"),
        basis=_basis(table),
    )
    whole_ns = float(rows["time_ns"].sum() or 0)
    drawn = rows.filter((pl.col("intensity") > 0) & (pl.col("flops_per_s") > 0)).sort("time_ns", descending=True)
    points = tuple(_read_point(row, whole_ns) for row in drawn.head(MOST_POINTS).iter_rows(named=True))
    shown_ns = sum(point.time_ns for point in points)
    types = table["product_dtype"].drop_nulls().unique(maintain_order=True).to_list()
    roofs = () if peaks is None else list_roofs(peaks, types)
    notes = [NO_ROOFS] if not roofs else [] if peaks is None else [f"Roofs of {peaks.name}: {peaks.source}."]
    notes += _say_hidden(len(table), len(points), shown_ns, whole_ns)
    more = tuple(RooflineRoof("memory", "if memory had", rate, is_extra=True) for rate in extra)
    return RooflinePicture(title, (*roofs, *more), points, tuple(notes), peaks.name if peaks else "")


def _basis(table: pl.DataFrame) -> pl.Expr:
    """Return on what each row rests: what the table states, else whether its time was measured."""
    if "basis" in table.columns:
        return pl.col("basis").cast(pl.String)
    return pl.when(pl.col("device_ns").is_null()).then(pl.lit("predicted")).otherwise(pl.lit("measured"))


def _read_point(row: dict[str, object], whole_ns: float) -> RooflinePoint:
    time_ns = _number(row["time_ns"])
    return RooflinePoint(
        name=str(row["name"]),
        intensity=_number(row["intensity"]),
        flops_per_s=_number(row["flops_per_s"]),
        share_ratio=time_ns / whole_ns if whole_ns else 0.0,
        time_ns=time_ns,
        is_measured=row["basis"] == "measured",
        bound=None if row["bound"] is None else str(row["bound"]),
        roof_ratio=None if row["roof_ratio"] is None else _number(row["roof_ratio"]),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _say_hidden(rows: int, points: int, shown_ns: float, whole_ns: float) -> list[str]:
    if rows == points:
        return []
    rest = format_ratio(max(1 - shown_ns / whole_ns, 0.0)) if whole_ns else "0 %"
    why = "their FLOP, bytes or time are unknown or 0" if points < MOST_POINTS else f"no more than {MOST_POINTS:,} are"
    return [f"{counted(rows - points, 'row')} with {rest} of the time not drawn: {why}."]


def list_roofs(peaks: DevicePeaks, dtypes: Iterable[str]) -> tuple[RooflineRoof, ...]:
    """Return the roofs of a device: each level of its memory, its vector units in float32, and its units for `dtypes`.

    Types with the same rate on the same units share a roof.
    """
    memory = [
        RooflineRoof("memory", level, rate)
        for level, rate in sorted(peaks.memory_nbytes_per_s.items(), key=lambda item: (item[0] != MEMORY, item[1]))
    ]
    names: dict[tuple[str, float], list[str]] = {}
    if single := peaks.vector_flops_per_s.get("float32"):
        names["vector", single] = ["float32"]
    for rate_type in dict.fromkeys(find_rate_type(dtype) for dtype in dtypes):
        if rate_type is not None and (rate := peaks.find_product_rate(rate_type)):
            units = "matrix" if rate_type in peaks.matrix_flops_per_s else "vector"
            shared = names.setdefault((units, rate), [])
            shared += [rate_type] if rate_type not in shared else []
    return (
        *memory,
        *(RooflineRoof("compute", f"{', '.join(types)} {units}", rate) for (units, rate), types in names.items()),
    )


def find_axes(picture: RooflinePicture) -> tuple[RooflineAxis, RooflineAxis]:
    """Return the axes of intensity and of FLOP/s: they hold all points and the places where roofs meet."""
    compute, memory = (_of_kind(picture.roofs, kind) for kind in ("compute", "memory"))
    ridges = [one.per_s / other.per_s for one in compute for other in memory]
    points = picture.points
    across = _find_axis([(point.intensity, point.share_ratio) for point in points], ridges, 0.05)
    upward = _find_axis(
        [(point.flops_per_s, point.share_ratio) for point in points], [roof.per_s for roof in compute], 0.2
    )
    return across, upward


def _find_axis(weighted: Iterable[tuple[float, float]], needed: Iterable[float], margin: float) -> RooflineAxis:
    """Return whole decades around positive values, with a part of a decade to spare at both ends.

    Where they are further apart than `MOST_DECADES`, it is the range with most of their weight; values that are
    `needed` weigh as much as all others.
    """
    values = [*weighted, *((value, 1.0) for value in needed)]
    known = sorted((log10(value), weight) for value, weight in values if value > 0 and isfinite(value)) or [(0.0, 0.0)]
    first, last = _choose_range(known, MOST_DECADES - 2)
    low, high = floor(known[first][0] - margin), ceil(known[last][0] + margin)
    return RooflineAxis(min(low, high - FEWEST_DECADES), high)


def _choose_range(known: Sequence[tuple[float, float]], width: float) -> tuple[int, int]:
    """Return the first and the last of sorted values that are within `width` of each other and weigh most together."""
    best, chosen, first, weight = -1.0, (0, 0), 0, 0.0
    for last, (value, own) in enumerate(known):
        weight += own + TINY
        while known[first][0] < value - width:
            weight -= known[first][1] + TINY
            first += 1
        if weight > best:
            best, chosen = weight, (first, last)
    return chosen


def _of_kind(roofs: Iterable[RooflineRoof], kind: str) -> list[RooflineRoof]:
    return [roof for roof in roofs if roof.kind == kind]


class RooflineLine(Struct, frozen=True):
    """A roof as a straight line in the picture, from one (intensity, FLOP/s) to another."""

    roof: RooflineRoof
    start: tuple[float, float]
    end: tuple[float, float]


def draw_lines(picture: RooflinePicture, across: RooflineAxis, upward: RooflineAxis) -> list[RooflineLine]:
    """Return the roofs within the axes: of memory up to the highest compute roof, of units from their first ridge on.

    Those that are outside the axes are left out.
    """
    left, right, bottom, top = 10.0**across.low, 10.0**across.high, 10.0**upward.low, 10.0**upward.high
    compute, memory = (_of_kind(picture.roofs, kind) for kind in ("compute", "memory"))
    ceiling = max((roof.per_s for roof in compute), default=inf)
    steepest = max((roof.per_s for roof in memory), default=inf)
    lines = []
    for roof in memory:
        first, last = max(left, bottom / roof.per_s), min(right, min(ceiling, top) / roof.per_s)
        lines.append(RooflineLine(roof, (first, first * roof.per_s), (last, last * roof.per_s)))
    for roof in compute:
        if bottom <= roof.per_s <= top:
            lines.append(RooflineLine(roof, (max(left, roof.per_s / steepest), roof.per_s), (right, roof.per_s)))
    return [line for line in lines if line.start[0] < line.end[0]]


class MarginalBars(Struct, frozen=True):
    """The time along an axis: the share of the whole in each of equal parts of it, and the greatest of them."""

    shares: tuple[float, ...]
    most: float = field(default=0.0)


def sum_along(axis: RooflineAxis, values: Iterable[tuple[float, float]], parts: int) -> MarginalBars:
    """Return how the time is along an axis of `parts` parts: of pairs of a value and a share."""
    shares = [0.0] * parts
    for value, share in values:
        shares[min(int(axis.place(value) * parts), parts - 1)] += share
    return MarginalBars(tuple(shares), max(shares, default=0.0))


def count_beyond(picture: RooflinePicture, across: RooflineAxis, upward: RooflineAxis) -> int:
    """Return how many points are beyond the range of an axis, and are drawn on its border."""
    return sum(not (across.holds(point.intensity) and upward.holds(point.flops_per_s)) for point in picture.points)
