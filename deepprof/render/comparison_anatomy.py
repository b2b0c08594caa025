"""The stages and layers of two runs side by side, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deepprof.plurals import counted
from deepprof.render.anatomy import SURE
from deepprof.render.comparison_rows import HEADER, MARKS, SMALL, cells, print_hidden
from deepprof.render.rows import GAP, INDENT, MIN_LABEL_CHARS, TextRow, draw_rows, fit_columns
from deepprof.render.units import ABSENT, format_confidence, format_difference, format_duration
from deepprof.render.wording import Wording
from deepprof.results.comparison_result import LayerChange, LayersInBoth, LoopPair, StageChange

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

ON_HOST = ("host A", "host B", "difference")
IN_PASSES = ("forward", "backward")


def print_stages(pair: LoopPair, page: TextPage, words: Wording) -> None:
    """Print the stages of both runs where one of them changed; on a CPU they are nowhere else than on the host."""
    stages = pair.stages
    if stages.problem is not None:
        page.line(f"not compared by stage: {stages.problem}", "dim", indent=2, hang=2)
        return
    if not any(abs(row.difference_ns) >= _least(pair) for row in stages.rows):
        return
    on_host = not words.on_cpu and all(row.host_difference_ns is not None for row in stages.rows)
    whole = cells(sum(row.a_ns for row in stages.rows), sum(row.b_ns for row in stages.rows))
    marked = any(row.presence != "both" for row in stages.rows)
    together = TextRow("  " * marked + "together", (*whole, *_host_cells(stages.rows)), "bold")
    page.skip()
    page.line(f"Stages, per mean iteration{' (+ new, - gone)' * marked}", "bold")
    header = (*HEADER, *ON_HOST) if on_host else HEADER
    _draw(page, header, [*(_describe_stage(row, marked=marked) for row in stages.rows), together])


def _least(pair: LoopPair) -> float:
    """Return the smallest change that is worth a row."""
    return SMALL * max(pair.a_mean_ns, pair.b_mean_ns)


def _describe_stage(row: StageChange, *, marked: bool) -> TextRow:
    """Return the row of a stage, `marked` where only one run has one; it states where one of the runs is not sure."""
    sure = min((each for each in (row.a_confidence, row.b_confidence) if each is not None), default=1.0)
    doubt = "" if sure >= SURE else f" ({format_confidence(sure)} sure)"
    mark = f"{MARKS[row.presence]} " * marked
    return TextRow(f"{mark}{row.stage}{doubt}", (*cells(row.a_ns, row.b_ns), *_host_cells([row])))


def _host_cells(rows: Sequence[StageChange]) -> tuple[str, str, str]:
    return cells(sum(row.a_host_ns or 0 for row in rows), sum(row.b_host_ns or 0 for row in rows))


def print_layers(pair: LoopPair, page: TextPage, limit: int, words: Wording) -> None:
    """Print the layers whose own time changed, and how many only one of the runs has."""
    layers = pair.layers
    if layers is None:
        return
    if layers.problem is not None:
        page.skip()
        page.line(f"Not compared by layer: {layers.problem}", "dim", hang=2)
        return
    rows = [row for row in layers.rows if abs(row.difference_ns) >= _least(pair)]
    if not rows and layers.a_only_ns + layers.b_only_ns < _least(pair):
        return
    page.skip()
    where = "" if words.on_cpu else " on the device"
    page.line(f"Layers, their own time{where} and how it changed forward and backward, per iteration", "bold")
    if rows:
        _draw(page, (*HEADER, *IN_PASSES), list(map(_describe_layer, rows[:limit])))
    print_hidden(len(rows) - limit, page)
    _print_unmatched(layers, page)


def _describe_layer(row: LayerChange) -> TextRow:
    passes = (row.b_forward_ns - row.a_forward_ns, row.b_backward_ns - row.a_backward_ns)
    shown = (format_difference(each) if each else ABSENT for each in passes)
    return TextRow(row.path, (*cells(row.a_ns, row.b_ns), *shown))


def _print_unmatched(layers: LayersInBoth, page: TextPage) -> None:
    """Print how many layers only one of the runs has, and what they need."""
    sides = (("A", layers.a_only, layers.a_only_ns), ("B", layers.b_only, layers.b_only_ns))
    said = [f"{counted(many, 'layer')} only in {run} ({format_duration(ns)})" for run, many, ns in sides if many]
    if said:
        page.line(", ".join(said), "dim", indent=2)


def _draw(page: TextPage, header: Sequence[str], rows: Sequence[TextRow]) -> None:
    """Draw the rows with all columns if they fit next to the labels, else with the first ones."""
    room = min(MIN_LABEL_CHARS, max(len(page.show(row.label)) for row in rows))
    wide = [replace(row, values=row.values[: len(header)]) for row in rows]
    fits = fit_columns(page, header, wide, indent=INDENT + room + GAP) == len(header)
    shown = len(header) if fits else len(HEADER)
    draw_rows(page, header[:shown], [replace(row, values=row.values[:shown]) for row in wide])
