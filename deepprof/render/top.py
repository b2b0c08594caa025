"""Which kernels and which copies use the time, for people and as JSON: the first rows, and the rest as a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from deepprof.metrics.cost.roofline_tables import LoopRoofline
from deepprof.metrics.top_tables import TopWork
from deepprof.plurals import counted
from deepprof.render.rows import TextRow, cut_names, draw_rows, fit_columns
from deepprof.render.units import ABSENT, format_bytes, format_duration, format_ratio
from deepprof.render.utilization import RooflineBlock, describe_roofline
from deepprof.results.analysis_result import AnalysisResult

if TYPE_CHECKING:
    import polars as pl

    from deepprof.render.page import TextPage

SHOWN = 5  # rows of a table in text
INDENT = 4  # as in the table of parts
ROWS = 20  # of a list in JSON
NAME_LENGTH = 256  # characters in JSON: short names of templates within templates can be long
DIRECTIONS = {
    "HtoD": "from host",
    "DtoH": "to host",
    "DtoD": "on device",
    "PtoP": "to peers",
    "HtoH": "between hosts",
    None: "direction unknown",
}
SPANS = {"iterations": " of an iteration", "marked step": " of the marked step", "recording": " of the recording"}


class _TopKernelBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel name: calls and time per iteration; `mean_ns` and `max_ns` of a single call."""

    name: str
    variants: int
    calls: float
    time_ns: int
    share_ratio: float
    mean_ns: int
    max_ns: int


class _OtherKernelsBlock(msgspec.Struct, frozen=True, kw_only=True):
    """All names that have no row, together."""

    names: int
    calls: float
    time_ns: int
    share_ratio: float


class _TopCopyBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of one direction from or to one kind of host memory, per iteration."""

    direction: str | None
    memory: str | None
    calls: float
    bytes: int | None
    time_ns: int
    share_ratio: float
    gigabytes_per_s: float | None


class TopWorkBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What uses the time of a loop, or of a device without one; `loop` is an index into `loops`, null without one.

    `roofline` is that of a device without a loop; that of a loop is in `loops`.
    """

    loop: int | None
    rank: int
    device: int
    stream: int | None
    over: Literal["iterations", "marked step", "recording"]
    iterations: int
    mean_ns: int
    kernels: list[_TopKernelBlock]
    other_kernels: _OtherKernelsBlock
    copies: list[_TopCopyBlock]
    roofline: RooflineBlock | None


def describe_top(analysis: AnalysisResult) -> list[TopWorkBlock]:
    """Return a block per loop, and per device without one."""
    without: dict[tuple[int | None, ...], LoopRoofline | None] = {
        (each.rank, each.device): each.roofline for each in analysis.stretches
    }
    return [
        _describe_work(place, top, without.get((place["rank"], place["device"])) if place["loop"] is None else None)
        for place, top in analysis.top_work
    ]


def _describe_work(place: Mapping[str, Any], top: TopWork, roofline: LoopRoofline | None) -> TopWorkBlock:
    first, rest = top.kernels.head(ROWS), top.kernels.slice(ROWS)
    spelled = [name.encode("utf-8", "replace").decode() for name in first["name"]]
    return TopWorkBlock(
        **place,
        over=top.over,
        iterations=top.iterations,
        mean_ns=round(top.mean_ns),
        kernels=[
            _TopKernelBlock(**(row | {"name": name}))
            for row, name in zip(first.iter_rows(named=True), cut_names(spelled, NAME_LENGTH), strict=True)
        ],
        other_kernels=_OtherKernelsBlock(
            names=int(rest["variants"].sum()),
            calls=round(float(rest["calls"].sum()), 3),
            time_ns=int(rest["time_ns"].sum()),
            share_ratio=round(float(rest["share_ratio"].sum()), 6),
        ),
        copies=[
            _TopCopyBlock(**{"bytes" if key == "nbytes" else key: value for key, value in row.items()})
            for row in top.copies.iter_rows(named=True)
        ],
        roofline=describe_roofline(roofline),
    )


def print_top(top: TopWork | None, page: TextPage, work: str, where: str = "") -> None:
    """Print the kernels and the copies that use most time; `work` is what kernels are called, `where` the place."""
    if top is None:
        return
    span = SPANS[top.over] + (f" on {where}" if where else "")
    if top.kernels.height:
        page.skip()
        page.line(f"{work}s that take the most time{span}", "dim", indent=2, hang=2)
        rows = [_describe_row(row) for row in top.kernels.head(SHOWN).iter_rows(named=True)]
        _draw(("calls", "time", "share", "each"), rows, page)
        _print_rest(top.kernels.slice(SHOWN), page, work)
    if top.copies.height:
        page.skip()
        page.line(f"copies{span}, including hidden ones", "dim", indent=2, hang=2)
        _draw(
            ("size", "time", "share", "GB/s"),
            [_describe_copy(row) for row in top.copies.head(SHOWN).iter_rows(named=True)],
            page,
        )


def _draw(header: Sequence[str], rows: Sequence[TextRow], page: TextPage) -> None:
    """Draw the rows with as many of their first columns as fit on the page."""
    fitting = fit_columns(page, header, rows, indent=INDENT)
    draw_rows(
        page, header[:fitting], [TextRow(row.label, row.values[:fitting], row.style) for row in rows], indent=INDENT
    )


def _describe_row(row: Mapping[str, Any]) -> TextRow:
    calls = row["calls"]
    values = (
        f"{calls:,.0f}" if calls == round(calls) else f"{calls:,.1f}" if calls >= 0.05 else "<0.1",
        format_duration(row["time_ns"]),
        format_ratio(row["share_ratio"]),
        format_duration(row["mean_ns"]),
    )
    return TextRow(row["name"], values)


def _describe_copy(row: Mapping[str, Any]) -> TextRow:
    memory = f", {row['memory']}" if row["memory"] else ""
    values = (
        format_bytes(row["nbytes"]),
        format_duration(row["time_ns"]),
        format_ratio(row["share_ratio"]),
        _format_rate(row["gigabytes_per_s"]),
    )
    return TextRow(f"{DIRECTIONS[row['direction']]}{memory}", values)


def _format_rate(rate: float | None) -> str:
    """Return GB/s with three digits."""
    if rate is None:
        return ABSENT
    return "<0.01" if rate < 0.01 else f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def _print_rest(rest: pl.DataFrame, page: TextPage, work: str) -> None:
    """Print how much time the names that are not shown take."""
    if rest.height:
        names = counted(int(rest["variants"].sum()), f"other {work}")
        share, time = float(rest["share_ratio"].sum()), int(rest["time_ns"].sum())
        page.line(f"{names}: {format_duration(time)}, {format_ratio(share)}", "dim", indent=4, hang=2)
