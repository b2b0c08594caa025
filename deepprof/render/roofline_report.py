"""The roofline of a trace for people and as JSON: what is available, at which peaks, and the rows far from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from deepprof.collectors.names.short import shorten
from deepprof.diagnosis.diagnosed_job import WorkWithoutLoop
from deepprof.metrics.cost.loop_products import write_shapes
from deepprof.metrics.cost.roofline_rows import By
from deepprof.metrics.cost.roofline_tables import LoopRoofline
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.loop import Loop
from deepprof.plurals import counted
from deepprof.render.roofline.picture import RooflinePicture, draw_up
from deepprof.render.roofline.rates import format_flops_rate, format_nbytes_rate
from deepprof.render.roofline.roofline_files import render_roofline
from deepprof.render.roofline.terminal import draw_roofline
from deepprof.render.rows import TextRow, draw_rows
from deepprof.render.units import ABSENT, format_duration, format_ratio
from deepprof.render.utilization import compare_fastest, describe_roofline, explain_roofs
from deepprof.results.analysis_result import AnalysisResult
from deepprof.version import read_version

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console


SCHEMA = "deepprof.roofline.trace/1"
NOBODY = {"operator": "(no operator)", "layer": "(no layer)", "kernel": "(unnamed)"}
MIN_NAME_CHARS = 40  # of an operator with its shapes; with less they are cut where they differ
HEADER = ("calls", "time", "share", "bound", "of roof", "beyond", "rate")


class RooflineReport(Struct, frozen=True):
    """A roofline and its place; `over` is what its means are over: iterations, a marked step or the recording."""

    rank: int
    device: int
    stream: int | None
    over: str
    iterations: int
    mean_ns: float
    roofline: LoopRoofline


def list_reports(analysis: AnalysisResult) -> Iterator[RooflineReport]:
    """Yield the rooflines of loops, and of what is measured on devices without one."""
    measured: Sequence[Loop | WorkWithoutLoop] = (*analysis.loops, *analysis.stretches)
    for each in measured:
        if each.roofline is not None and each.top is not None:
            times = each.roofline.iterations["iteration_ns"]
            mean_ns = float(times.sum()) / max(1, len(times))
            yield RooflineReport(each.rank, each.device, each.stream, each.top.over, len(times), mean_ns, each.roofline)


def encode_roofline(report: RooflineReport, rows: pl.DataFrame, by: By) -> str:
    """Return the report as indented JSON that ends with a newline."""
    found = report.roofline
    known = describe_roofline(found)
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "deepprof": read_version(),
        "rank": report.rank,
        "stream": report.stream,
        "over": report.over,
        "mean_ns": round(report.mean_ns),
        **({} if known is None else msgspec.structs.asdict(known)),
        "mfu_ratio": found.mfu_ratio,
        "hfu_ratio": found.hfu_ratio,
        "mfu_fastest_ratio": found.mfu_fastest_ratio,
        "used": found.iterations.to_dicts(),
        "by": by,
        "rows": rows.to_dicts(),
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def write_roofline(report: RooflineReport, rows: pl.DataFrame, by: By, path: str) -> str:
    """Return the picture of the rows, as the name of the file states."""
    return render_roofline(*_draw_up(report, rows, by), path).decode()


def _draw_up(report: RooflineReport, rows: pl.DataFrame, by: By) -> tuple[RooflinePicture, pl.DataFrame]:
    import polars as pl

    names = pl.Series("name", [_name_row(row, by) for row in rows.iter_rows(named=True)], dtype=pl.String)
    table = rows.with_columns(names, attainable_flops_per_s=pl.lit(None, pl.Float64))
    title = f"Roofline of rank {report.rank}, device {report.device}, by {by}"
    return draw_up(table, report.roofline.peaks, title), table


def print_roofline(report: RooflineReport, rows: pl.DataFrame, by: By, console: Console, most: int) -> None:
    """Print what is available, the first `most` rows, and where peaks are known the picture of all rows."""
    from deepprof.render.page import TextPage

    page = TextPage(console)
    for sentence in _describe(report):
        page.line(sentence, hang=2)
    if rows.is_empty():
        return
    page.skip()
    names = [_name_row(row, by) for row in rows.head(most).iter_rows(named=True)]
    values = [_list_values(row) for row in rows.head(most).iter_rows(named=True)]
    shown = [TextRow(name, cells) for name, cells in zip(names, values, strict=True)]
    draw_rows(page, HEADER, shown, indent=0, min_label_chars=MIN_NAME_CHARS)
    if rows.height > most:
        page.line(f"{counted(rows.height - most, f'more {by}')}; --top {rows.height} shows all", "dim")
    if report.roofline.peaks is not None:
        page.skip()
        draw_roofline(page, _draw_up(report, rows, by)[0])


def _describe(report: RooflineReport) -> Iterator[str]:
    found, mean = report.roofline, format_duration(report.mean_ns)
    several = f"{counted(report.iterations, 'iteration')}, mean {mean}"
    over = several if report.over == "iterations" else f"one {report.over} of {mean}"
    yield f"rank {report.rank}, device {report.device} ({found.device or 'unnamed'}): {over}"
    if found.peaks is not None:
        types = found.groups["product_dtype"].drop_nulls().unique().sort()
        yield f"Peaks: {_describe_peaks(found.peaks, types)} ({found.peaks.source})"
    products = found.product_coverage_ratio
    of_products = "" if products is None else f", and of {format_ratio(products)} of that of products"
    yield (
        f"Operations and bytes are known of {format_ratio(found.coverage_ratio)} of the kernels' time{of_products}; "
        "collectives are left out"
    )
    used = f"MFU {format_ratio(found.mfu_ratio)}{compare_fastest(found)}, HFU {format_ratio(found.hfu_ratio)}"
    why = found.why_no_hfu or found.why_no_mfu
    yield used if why is None else f"{used}: {why}"
    if found.headroom_ns is not None:
        yield f"At its peaks the device would need {format_duration(found.headroom_ns)} less for what is known"
    yield from explain_roofs(found)
    if found.peaks is None:
        whose = "this device" if found.device is None else found.device
        yield f"No roofs: give the peaks of {whose} with --peaks NAME or FILE, or measure them with deepprof peak"


def _describe_peaks(peaks: DevicePeaks, types: Iterable[str]) -> str:
    """Return the rates of a device in a line: of ordinary units in float32, of products in `types`, of its memory."""
    rates = {name: peaks.find_product_rate(name) for name in types}
    single = peaks.vector_flops_per_s.get("float32")
    flops = {"float32": single} | {name: rate for name, rate in rates.items() if rate is not None}
    known = (f"{format_flops_rate(rate)} {name}" for name, rate in flops.items() if rate is not None)
    nbytes = (f"{level} {format_nbytes_rate(rate)}" for level, rate in peaks.memory_nbytes_per_s.items())
    return f"{peaks.name}: {', '.join((*known, *nbytes))}"


def _name_row(row: dict[str, Any], by: By) -> str:
    """Return the label of a row: an operator with the shapes of its first operands, a short kernel name, a layer."""
    name = row["name"] or NOBODY[by]
    if by == "kernel":
        return shorten(name)
    return f"{name} {write_shapes(row['dims'])}".rstrip() if by == "operator" else name


def _list_values(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['calls']:,.0f}" if row["calls"] >= 1 else f"{row['calls']:.2f}",
        format_duration(row["device_ns"]),
        format_ratio(row["share_ratio"]),
        row["bound"] or ABSENT,
        format_ratio(row["roof_ratio"]),
        format_duration(row["headroom_ns"]),
        _write_rate(row),
    )


def _write_rate(row: dict[str, Any]) -> str:
    """Return operations per second of what arithmetic limits, else bytes per second."""
    if row["bound"] == "compute":
        return format_flops_rate(row["achieved_flops_per_s"])
    return format_nbytes_rate(row["achieved_nbytes_per_s"])
