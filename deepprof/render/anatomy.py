"""What iterations are made of, for people and as JSON: the stages with bars, and the most expensive layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from deepprof.plurals import counted
from deepprof.render.rows import MIN_LABEL_CHARS, TextRow, draw_rows, fit_columns
from deepprof.render.units import ABSENT, format_confidence, format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from deepprof.metrics.annotation.anatomy_tables import Anatomy
    from deepprof.metrics.loop import Loop
    from deepprof.render.page import TextPage

SHOWN = 5  # layers in text
ROWS = 200  # layers in JSON, those that use most themselves
NAME_LENGTH = 256  # characters of a path in JSON
SMALL = 0.001  # of an iteration, and of the host's time: smaller stages are not shown
UNKNOWN, OTHER, MOSTLY = "unknown", "other", 0.95  # where this much is unknown there is nothing to show
ALIKE = 1.1  # times the median: blocks that all last as long are one line
SURE = 0.85  # with less confidence a stage is marked
WIDEST, BAR, ASCII_BAR = 12, "█", "#"
INDENT = 4
STAGE_COLUMNS = ("device", "share", "of which idle", "host", "")
ON_CPU = ("time", "share", "between operators", "", "")
SOURCES = {
    "modules": "modules",
    "scopes": "name scopes",
    "operators": "the model's operators",
    "blocks": "blocks that repeat",
}


class _StageBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a usual iteration: means that add up, and the spread of its time on the device."""

    stage: str
    busy_ns: int
    idle_ns: int
    host_ns: int | None
    kernels: float
    device_ns: dict[str, int]
    confidence: float | None


class _LayerBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of a usual iteration: medians, with all layers within; `own_busy_ns` is without them."""

    path: str
    depth: int
    busy_ns: int
    own_busy_ns: int
    forward_ns: int
    backward_ns: int
    idle_ns: int
    kernels: float


class AnatomyBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What iterations of a loop are made of; `layers` are the first ones by their own time, `layers_total` how many."""

    representative_iteration: int | None
    stages: list[_StageBlock]
    layers_from: str | None
    layers_total: int
    layers: list[_LayerBlock]


def describe_anatomy(loop: Loop) -> AnatomyBlock | None:
    """Return the block of a loop, None where its stages were not searched for."""
    anatomy = loop.anatomy
    if anatomy is None:
        return None
    layers = anatomy.layers.sort("own_busy_ns", descending=True, maintain_order=True).head(ROWS)
    return AnatomyBlock(
        representative_iteration=anatomy.representative,
        stages=[_describe_stage(row) for row in anatomy.stages.iter_rows(named=True)],
        layers_from=anatomy.source,
        layers_total=max(0, anatomy.layers.height - 1),
        layers=[_describe_layer(row) for row in layers.filter(layers["depth"] > 0).iter_rows(named=True)],
    )


def _describe_stage(row: Mapping[str, Any]) -> _StageBlock:
    return _StageBlock(
        stage=row["stage"],
        busy_ns=round(row["mean_busy_ns"]),
        idle_ns=round(row["mean_idle_ns"]),
        host_ns=None if row["mean_host_ns"] is None else round(row["mean_host_ns"]),
        kernels=round(row["kernels"], 3),
        device_ns={"median": row["device_ns"], "p5": row["low_ns"], "p95": row["high_ns"]},
        confidence=None if row["confidence"] is None else round(row["confidence"], 3),
    )


def _describe_layer(row: Mapping[str, Any]) -> _LayerBlock:
    path = row["path"][:NAME_LENGTH].encode("utf-8", "replace").decode()
    known = {name: row[name] for name in _LayerBlock.__struct_fields__ if name in row}
    return _LayerBlock(**(known | {"path": path, "kernels": round(row["kernels"], 3)}))


def print_anatomy(loop: Loop, page: TextPage, *, on_cpu: bool = False) -> None:
    """Print the stages of a loop's iterations and its most expensive layers; `on_cpu` speaks of no device."""
    anatomy = loop.anatomy
    if anatomy is None or not loop.usual.height:
        return
    _print_stages(anatomy, loop, page, on_cpu=on_cpu)
    _print_layers(anatomy, page)


def _print_stages(anatomy: Anatomy, loop: Loop, page: TextPage, *, on_cpu: bool) -> None:
    """Print the stages in their order; nothing where hardly any is known."""
    time = _times_of(anatomy.stages)
    whole = float(time.sum())
    unknown = float(time.filter(anatomy.stages["stage"] == UNKNOWN).sum())
    known = anatomy.stages.filter(anatomy.stages["stage"] != UNKNOWN)
    if unknown >= MOSTLY * whole or not float(_times_of(known.filter(known["stage"] != OTHER)).sum()):
        return
    page.skip()
    typical = "" if anatomy.representative is None else f"; iteration {anatomy.representative} is the typical one"
    page.line(f"stages, mean of {counted(loop.usual.height, 'iteration')}{typical}", "dim", indent=2, hang=2)
    large = known.filter((_times_of(known) >= SMALL * whole) | (known["mean_host_ns"] >= SMALL * whole))
    shares = [each / whole for each in _times_of(large)]
    rows = [_stage_row(row, share, page) for row, share in zip(large.iter_rows(named=True), shares, strict=True)]
    kept = [column for column in range(len(STAGE_COLUMNS)) if not on_cpu or column != STAGE_COLUMNS.index("host")]
    header = ON_CPU if on_cpu else STAGE_COLUMNS
    shown = [TextRow(row.label, tuple(row.values[column] for column in kept)) for row in rows]
    _draw([header[column] for column in kept], shown, page)
    if unknown >= SMALL * whole:
        text = f"in no known stage: {format_duration(unknown)}, {format_ratio(unknown / whole)}"
        page.line(text, "dim", indent=INDENT, hang=2)


def _times_of(stages: pl.DataFrame) -> pl.Series:
    """Return the mean time of every stage on the device."""
    return stages["mean_busy_ns"] + stages["mean_idle_ns"]


def _stage_row(row: Mapping[str, Any], share: float, page: TextPage) -> TextRow:
    bar = (ASCII_BAR if page.ascii else BAR) * round(WIDEST * share)
    values = (
        format_duration(row["mean_busy_ns"] + row["mean_idle_ns"]),
        format_ratio(share),
        format_duration(row["mean_idle_ns"]),
        ABSENT if row["mean_host_ns"] is None else format_duration(row["mean_host_ns"]),
        f"{bar:<{WIDEST}}",
    )
    return TextRow(row["stage"] + describe_doubt(row["confidence"]), values)


def describe_doubt(confidence: float | None) -> str:
    """Return what follows the name of a stage that is not sure."""
    return "" if confidence is None or confidence >= SURE else f" ({format_confidence(confidence)} sure)"


def _print_layers(anatomy: Anatomy, page: TextPage) -> None:
    """Print the layers that use most time themselves, and how they are available."""
    layers = anatomy.layers.filter(anatomy.layers["depth"] > 0)
    first = (
        layers.filter(layers["own_busy_ns"] > 0).sort("own_busy_ns", descending=True, maintain_order=True).head(SHOWN)
    )
    if first.is_empty():
        return
    whole = max(1.0, float(_times_of(anatomy.stages).sum()))
    page.skip()
    if anatomy.source == "blocks" and (lines := _describe_blocks(layers)):
        for line in lines:
            page.line(line, "dim", indent=2, hang=2)
        return
    source = SOURCES.get(anatomy.source or "", "")
    page.line(
        f"the layers with the most own time, of {counted(layers.height, 'layer')} known by {source}; forward and "
        "backward include inner layers",
        "dim",
        indent=2,
        hang=2,
    )
    rows = [_layer_row(row, whole) for row in first.iter_rows(named=True)]
    _draw(("own", "share", "forward", "backward"), rows, page)


def _describe_blocks(layers: pl.DataFrame) -> list[str]:
    """Return a line for the blocks of every kind; none if some last much longer than others of their kind."""
    kinds = layers.with_columns(kind=layers["name"].str.extract(r"\((.*)\)$").fill_null(""))
    groups = kinds.group_by("kind", maintain_order=True).agg(
        blocks=pl.len(), median=pl.median("own_busy_ns"), longest=pl.max("own_busy_ns")
    )
    if (groups["longest"] > ALIKE * groups["median"]).any():
        return []
    lines = groups.sort("median", descending=True).head(SHOWN).iter_rows(named=True)
    return [
        f"{counted(row['blocks'], 'repeated block')}, mostly {row['kind']}: {format_duration(row['median'])} each"
        for row in lines
    ]


def _layer_row(row: Mapping[str, Any], whole: float) -> TextRow:
    passes = (row["forward_ns"], row["backward_ns"])
    shown = tuple(format_duration(each) if each else ABSENT for each in passes)
    return TextRow(row["path"], (format_duration(row["own_busy_ns"]), format_ratio(row["own_busy_ns"] / whole), *shown))


def _draw(header: Sequence[str], rows: Sequence[TextRow], page: TextPage) -> None:
    """Draw the rows with as many of their first columns as fit on the page next to the labels."""
    label = min(MIN_LABEL_CHARS, max(len(row.label) for row in rows))
    fitting = fit_columns(page, header, rows, indent=INDENT + label)
    short = [TextRow(row.label, row.values[:fitting], row.style) for row in rows]
    draw_rows(page, header[:fitting], short, indent=INDENT)
