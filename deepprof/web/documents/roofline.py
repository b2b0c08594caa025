"""The roofline of a loop: what its kernels do each second, next to what the device allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import polars as pl

from deepprof.metrics.cost.roofline_tables import LoopRoofline
from deepprof.render.roofline.picture import (
    RooflineAxis,
    RooflinePicture,
    RooflinePoint,
    draw_lines,
    find_axes,
    list_roofs,
    sum_along,
)
from deepprof.render.utilization import describe_utilization, explain_roofs
from deepprof.web.documents.texts import TextTable, tidy

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

PARTS = 40  # of an axis, for the time along it
NO_PEAKS = "No peaks of this device are known: deepprof roofline TRACE --peaks compares it with other ones."
MOST_GROUPS = 1_000  # of a document: those that use most time


class RoofLine(msgspec.Struct, frozen=True, kw_only=True):
    """A roof as a straight line: `begin` and `end` are an intensity and FLOP/s each."""

    kind: Literal["compute", "memory"]
    label: str
    begin: tuple[float, float]
    end: tuple[float, float]


class DecadeAxis(msgspec.Struct, frozen=True, kw_only=True):
    """A logarithmic axis from 10^low to 10^high, and the share of the time in equal parts of it."""

    low: int
    high: int
    shares: list[float]


class GroupColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of calls of one operator with the same operands in the same layer, means per iteration, the longest first.

    Names, shapes, types, layers, kernels and bounds are numbers of `strings`, -1 for none; null numbers are unknown.
    `share_ratio` is of the time of all kernels without collectives.
    """

    operator: list[int]
    dims: list[int]
    dtype: list[int]
    layer: list[int]
    kernel: list[int]
    bound: list[int]
    calls: list[float]
    time_ns: list[float]
    share_ratio: list[float]
    flops: list[float | None]
    nbytes: list[float | None]
    intensity: list[float | None]
    flops_per_s: list[float | None]
    nbytes_per_s: list[float | None]
    roof_ratio: list[float | None]
    headroom_ns: list[float | None]


class RooflineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A loop's work next to its device's peaks; `notes` are sentences, `left_out` is how many groups are not here."""

    schema: Literal["deepprof.view.roofline/1"] = "deepprof.view.roofline/1"
    loop: int
    device: str | None
    roofs: list[RoofLine]
    intensity_axis: DecadeAxis
    rate_axis: DecadeAxis
    notes: list[str]
    groups: GroupColumns
    left_out: int
    left_out_ns: float
    strings: list[str]


def write_roofline(analysis: Analysis, number: int) -> RooflineDocument | None:
    """Return the roofline of the loop `number`, None where it has none."""
    loop = analysis.loops[number]
    if loop.roofline is None:
        return None
    found, texts, whole_ns = loop.roofline, TextTable(), float(loop.roofline.groups["device_ns"].sum())
    shown, rest = found.groups.head(MOST_GROUPS), found.groups.slice(MOST_GROUPS)
    picture = _draw(found, shown, whole_ns)
    across, upward = find_axes(picture)
    lines = draw_lines(picture, across, upward)
    return RooflineDocument(
        loop=number,
        device=None if found.device is None else tidy(found.device),
        roofs=[RoofLine(kind=each.roof.kind, label=each.roof.label, begin=each.start, end=each.end) for each in lines],
        intensity_axis=_write_axis(across, [(point.intensity, point.share_ratio) for point in picture.points]),
        rate_axis=_write_axis(upward, [(point.flops_per_s, point.share_ratio) for point in picture.points]),
        notes=[tidy(note) for note in _list_notes(found)],
        groups=_write_groups(shown, whole_ns, texts),
        left_out=rest.height,
        left_out_ns=float(rest["device_ns"].sum()),
        strings=texts.strings,
    )


def _draw(found: LoopRoofline, groups: pl.DataFrame, whole_ns: float) -> RooflinePicture:
    """Return the picture of the groups whose operations, bytes and time are known; roofs only of known peaks."""
    known = groups.filter((pl.col("intensity") > 0) & (pl.col("achieved_flops_per_s") > 0))
    rows = known.select("intensity", "achieved_flops_per_s", "device_ns").iter_rows()
    points = tuple(RooflinePoint("", intensity, rate, ns / whole_ns, ns) for intensity, rate, ns in rows)
    types = found.groups["product_dtype"].drop_nulls().unique(maintain_order=True).to_list()
    return RooflinePicture("", () if found.peaks is None else list_roofs(found.peaks, types), points)


def _write_axis(axis: RooflineAxis, shares: list[tuple[float, float]]) -> DecadeAxis:
    return DecadeAxis(low=axis.low, high=axis.high, shares=list(sum_along(axis, shares, PARTS).shares))


def _list_notes(found: LoopRoofline) -> list[str]:
    peaks = NO_PEAKS if found.peaks is None else f"Roofs of {found.peaks.name}: {found.peaks.source}."
    return [describe_utilization(found), peaks, *explain_roofs(found)]


def _write_groups(groups: pl.DataFrame, whole_ns: float, texts: TextTable) -> GroupColumns:
    """Return the columns of groups; `whole_ns` is the time of all."""
    shares = groups["device_ns"] / whole_ns if whole_ns else groups["device_ns"].fill_null(0) * 0
    return GroupColumns(
        operator=texts.column(groups["operator"]),
        dims=texts.column(groups["dims"]),
        dtype=texts.column(groups["product_dtype"]),
        layer=texts.column(groups["layer"]),
        kernel=texts.column(groups["kernel"]),
        bound=texts.column(groups["bound"]),
        calls=groups["calls"].to_list(),
        time_ns=groups["device_ns"].to_list(),
        share_ratio=shares.to_list(),
        flops=groups["flops"].to_list(),
        nbytes=groups["nbytes"].to_list(),
        intensity=_finite(groups["intensity"]),
        flops_per_s=_finite(groups["achieved_flops_per_s"]),
        nbytes_per_s=_finite(groups["achieved_nbytes_per_s"]),
        roof_ratio=_finite(groups["roof_ratio"]),
        headroom_ns=groups["headroom_ns"].to_list(),
    )


def _finite(values: pl.Series) -> list[float | None]:
    """Return values without those that JSON cannot hold."""
    return values.to_frame("value").select(pl.when(pl.col("value").is_finite()).then("value")).to_series().to_list()
