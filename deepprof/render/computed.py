"""What devices compute, by category, precision and unit: for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import polars as pl
from msgspec import Struct

from deepprof.metrics.kernels.computed_work import find_matrix_unit_ratio, round_parts
from deepprof.metrics.kernels.kind_words import CATEGORY_WORDS, describe_kind
from deepprof.metrics.loop import Loop
from deepprof.plurals import counted
from deepprof.render.rows import GAP, TextRow, draw_rows
from deepprof.render.units import format_duration, format_ratio
from deepprof.render.wording import Wording
from deepprof.results.analysis_result import AnalysisResult

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

SHOWN = 6  # rows in text
SMALL = 0.005  # of the computing time: smaller rows share a line
INDENT = 4  # as in the table of parts
HEADER = ("time", "share")
KINDS = ("category", "precision", "unit")
SHARE_STEPS = 1_000_000  # in which shares are rounded
GRAPHS = "in whole graphs, recorded as one event each"
MORE = "; deepprof kernels --unknown lists them"


class LoopWorkRow(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of one kind in a mean iteration; null: no product, or unknown."""

    category: str
    precision: str | None
    unit: str | None
    kernels: float
    time_ns: int
    share_ratio: float
    sure_ratio: float | None


class WorkRow(LoopWorkRow, frozen=True, kw_only=True):
    """The kernels of one kind on one device in the whole recording."""

    rank: int
    device: int
    kernels: int


def describe_recorded_work(analysis: AnalysisResult) -> list[WorkRow]:
    """Return what each device computes in the whole recording."""
    groups = analysis.work.filter(pl.col("loop").is_null()).partition_by("rank", "device", maintain_order=True)
    places = [group.select("rank", "device").row(0, named=True) for group in groups]
    return [
        msgspec.convert(msgspec.structs.asdict(row) | place | {"kernels": round(row.kernels)}, WorkRow)
        for place, group in zip(places, groups, strict=True)
        for row in _describe_rows(group)
    ]


def describe_loop_work(loop: Loop) -> list[LoopWorkRow]:
    """Return what the device computes in a mean iteration."""
    return [] if loop.work is None else _describe_rows(loop.work.table)


def _describe_rows(table: pl.DataFrame) -> list[LoopWorkRow]:
    """Return the rows of a table `WORK`, rounded so that times and shares add up as the exact ones do."""
    time = table["time_ns"].to_numpy()
    whole = float(time.sum())
    times = round_parts(time, whole)
    shares = round_parts(time / whole * SHARE_STEPS, SHARE_STEPS) if whole > 0 else [0] * len(time)
    return [
        LoopWorkRow(
            category=row["category"],
            precision=row["precision"],
            unit=row["unit"],
            kernels=round(row["kernels"], 3),
            time_ns=times[number],
            share_ratio=shares[number] / SHARE_STEPS,
            sure_ratio=None if row["sure_ratio"] is None else round(row["sure_ratio"], 4),
        )
        for number, row in enumerate(table.iter_rows(named=True))
    ]


class ComputedTime(Struct, frozen=True, eq=False):
    """A table `WORK`, and what of its time is exposed communication, or in launches of whole graphs."""

    table: pl.DataFrame
    exposed_ns: float
    graph_ns: float = 0.0

    @property
    def rows(self) -> pl.DataFrame:
        """The rows without exposed communication, the longest first; what uses less than 1 ns has none."""
        hidden = pl.when(pl.col("category") == "communication").then(self.exposed_ns).otherwise(0.0)
        rows = self.table.select(*KINDS, time_ns=pl.col("time_ns") - hidden)
        return rows.filter(pl.col("time_ns") >= 1).sort("time_ns", *KINDS, descending=[True, False, False, False])


def print_recorded_work(analysis: AnalysisResult, page: TextPage, words: Wording) -> None:
    """Print what all devices compute in the whole recording."""
    sums = analysis.work.filter(pl.col("loop").is_null()).group_by(KINDS).agg(pl.col("time_ns").sum())
    exposed = float(analysis.breakdown["exposed_communication_ns"].sum())
    computes = "devices compute" if analysis.breakdown.height > 1 else "device computes"
    print_work(ComputedTime(sums, exposed), page, words, computes)


def print_loop_work(loop: Loop, exposed_ns: float, page: TextPage, words: Wording) -> None:
    """Print what the device of a loop computes; `exposed_ns` is the exposed communication of a mean iteration."""
    if loop.work is not None:
        print_work(ComputedTime(loop.work.table, exposed_ns, loop.work.graph_ns), page, words)


def print_work(computed: ComputedTime, page: TextPage, words: Wording, computes: str = "device computes") -> None:
    """Print what is computed without exposed communication: rows that add up to the row `compute` of the parts."""
    subject = "operators compute" if words.on_cpu else computes
    rows = computed.rows
    whole = float(rows["time_ns"].sum())
    if whole < 1:
        return
    page.skip()
    unknown = _describe_unknown(rows, computed.graph_ns, words)
    if rows.height == 1 and len(unknown) < 2:
        page.line(_describe_only(rows, subject, unknown), "dim", indent=2, hang=2)
        return
    page.line(f"what the {subject}, shares of {format_duration(whole)}", "dim", indent=2, hang=2)
    known = rows.filter(pl.col("category") != "unknown")
    large = known.filter(pl.col("time_ns") >= SMALL * whole)
    shown = large.head(SHOWN if large.height > SHOWN + 1 else SHOWN + 1)
    _draw_kinds(shown, whole, page)
    others = known.slice(shown.height)
    rest = [(float(others["time_ns"].sum()), counted(others.height, "other kind"), "")] if others.height else []
    for time, name, advice in sorted([*rest, *unknown], key=lambda line: -line[0]):
        text = f"{name}: {format_duration(time)}, {format_ratio(time / whole)}{advice}"
        page.line(text, "dim", indent=INDENT, hang=2)
    ratio = find_matrix_unit_ratio(rows)
    if ratio is not None and SMALL <= ratio <= 1 - SMALL:
        page.line(f"matrix units have {format_ratio(ratio)} of the time of products", "dim", indent=INDENT, hang=2)


def _describe_unknown(rows: pl.DataFrame, graph_ns: float, words: Wording) -> list[tuple[float, str, str]]:
    """Return time, name and advice of what is unknown: whole graphs, and kernels by their names."""
    time = float(rows.filter(pl.col("category") == "unknown")["time_ns"].sum()) - graph_ns
    found = [(time, CATEGORY_WORDS["unknown"], "" if words.on_cpu else MORE), (graph_ns, GRAPHS, "")]
    return [line for line in found if line[0] >= 1]


def _describe_only(rows: pl.DataFrame, subject: str, unknown: Sequence[tuple[float, str, str]]) -> str:
    """Return the sentence for a device that computes one kind only."""
    if unknown:
        ((_, name, advice),) = unknown
        return f"what the {subject} is {name}{advice}"
    (kind,) = rows.select(KINDS).rows()
    return f"the {subject} only {describe_kind(*kind)}"


def _draw_kinds(rows: pl.DataFrame, whole: float, page: TextPage) -> None:
    """Draw a row per kind; where whole words do not fit next to the values, precisions have their short names."""
    values = [(format_duration(ns), format_ratio(ns / whole)) for ns in rows["time_ns"].to_list()]
    kinds = rows.select(KINDS).rows()
    labels = [describe_kind(*kind) for kind in kinds]
    if not _fit(labels, values, page):
        labels = [describe_kind(*kind, short=True) for kind in kinds]
    if labels:
        longest = max(map(len, labels))
        texts = [TextRow(label, value) for label, value in zip(labels, values, strict=True)]
        draw_rows(page, HEADER, texts, indent=INDENT, min_label_chars=longest)


def _fit(labels: Sequence[str], values: Sequence[tuple[str, ...]], page: TextPage) -> bool:
    columns = [labels, *zip(HEADER, *values, strict=True)]
    return INDENT + sum(max(map(len, column), default=0) + GAP for column in columns) - GAP <= page.width
