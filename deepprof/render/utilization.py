"""How much of a device's peak a loop uses: its sentence in the text report, and its block in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from deepprof.plurals import counted
from deepprof.render.units import format_duration, format_ratio

if TYPE_CHECKING:
    from deepprof.metrics.cost.roofline_tables import LoopRoofline


class RooflineBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a loop's usual iterations next to the device's peaks; null: unknown."""

    device: str | None
    peaks: str | None
    peaks_source: str | None
    iterations: int
    coverage_ratio: float | None
    product_coverage_ratio: float | None
    headroom_ns_per_iteration: int | None
    mfu_ratio: float | None
    hfu_ratio: float | None
    mfu_fastest_ratio: float | None
    fastest_dtype: str | None
    why_no_mfu: str | None
    why_no_hfu: str | None


def describe_roofline(found: LoopRoofline | None) -> RooflineBlock | None:
    """Return the block of a roofline, None where there is none."""
    if found is None:
        return None
    return RooflineBlock(
        device=found.device,
        peaks=None if found.peaks is None else found.peaks.name,
        peaks_source=None if found.peaks is None else found.peaks.source,
        iterations=found.iterations.height,
        coverage_ratio=_round(found.coverage_ratio),
        product_coverage_ratio=_round(found.product_coverage_ratio),
        headroom_ns_per_iteration=None if found.headroom_ns is None else round(found.headroom_ns),
        mfu_ratio=_round(found.mfu_ratio),
        hfu_ratio=_round(found.hfu_ratio),
        mfu_fastest_ratio=_round(found.mfu_fastest_ratio),
        fastest_dtype=found.fastest_dtype,
        why_no_mfu=found.why_no_mfu,
        why_no_hfu=found.why_no_hfu,
    )


def list_utilization(found: LoopRoofline | None) -> dict[int, dict[str, float | None]]:
    """Return MFU and HFU of every iteration by its index; what is unknown is None, or left out."""
    if found is None:
        return {}
    rows = found.iterations.select("index", "mfu_ratio", "hfu_ratio").to_dicts()
    return {row.pop("index"): {name: _round(value) for name, value in row.items()} for row in rows}


def describe_utilization(found: LoopRoofline, over: str = "an iteration") -> str:
    """Return a sentence on what MFU and HFU of `over` rest on, or why they are unknown."""
    known = f"FLOP and bytes are known for {format_ratio(found.coverage_ratio)} of the computing time"
    room = "" if found.headroom_ns is None else f" {format_duration(found.headroom_ns)} of {over} could be saved"
    beside = f"at the peaks of {found.peaks.name}{room}" if found.peaks else "the device's peaks are not known"
    missing = found.why_no_mfu or found.why_no_hfu
    why = "" if missing is None else f"; no {'MFU' if found.why_no_hfu is None else 'MFU or HFU'}: {missing}"
    used = "" if found.mfu_ratio is None else f"; MFU {format_ratio(found.mfu_ratio)}{compare_fastest(found)}"
    return f"{known}; {beside}{used}{why}"


def compare_fastest(found: LoopRoofline) -> str:
    """Return the MFU next to the peak of the fastest type, to follow the MFU; empty where they are equal."""
    if found.mfu_fastest_ratio is None:
        return ""
    fastest = format_ratio(found.mfu_fastest_ratio)
    return "" if fastest == format_ratio(found.mfu_ratio) else f" ({fastest} of the peak in {found.fastest_dtype})"


def explain_roofs(found: LoopRoofline) -> list[str]:
    """Return a sentence for every reason why groups of calls use less time than their roof allows."""
    above = found.groups.filter(found.groups["above_roof"].is_not_null())
    reasons = above.group_by("above_roof", maintain_order=True).agg(pl.col("device_ns").sum(), groups=pl.len())
    whole = float(found.groups["device_ns"].sum())
    return [
        f"{format_ratio(ns / whole)} of the kernels' time ({counted(groups, 'group')} of calls) is above 100 % of its "
        f"roof: {reason}; sums leave it out"
        for reason, ns, groups in reasons.iter_rows()
    ]


def _round(ratio: float | None) -> float | None:
    """Return a ratio with four digits, as shares are in the report."""
    return None if ratio is None else round(ratio, 4)
