"""The costs of a model as text: what it is, its sums, and a table of its layers, operators or types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepprof.plurals import counted
from deepprof.render.roofline.rates import format_amount
from deepprof.render.rows import TextRow, draw_rows
from deepprof.render.units import ABSENT, format_bytes, format_ratio

if TYPE_CHECKING:
    from deepprof.metrics.cost.model_costs import Grouping, ModelTotals
    from deepprof.render.model_report import ModelReport
    from deepprof.render.page import TextPage

SHOWN_INPUTS = 4
HEADS = ("parameters", "FLOP", "share", "bytes", "FLOP/byte")
OF_MODEL = "(the model itself)"


def print_model(report: ModelReport, by: Grouping, page: TextPage) -> None:
    """Print the costs of a model."""
    totals = report.totals
    page.line(f"{report.path}: {_describe_inputs(report)}")
    parameters = f"{_format_count(totals.parameters)} parameters"
    page.line(f"{counted(totals.nodes, 'operator')}, {parameters}, {format_bytes(totals.weight_nbytes)} of weights")
    moved = _add_known(totals.read_nbytes, totals.written_nbytes)
    products = f"{format_amount(totals.product_flops, 'FLOP')} of them in products"
    fused = f"{format_bytes(report.fused_nbytes)} ({_format_intensity(totals.flops, report.fused_nbytes)})"
    moves = f"moves {format_bytes(moved)} ({_format_intensity(totals.flops, moved)} FLOP/byte), fused {fused}"
    page.line(f"{format_amount(totals.flops, 'FLOP')}, {products}; {moves}")
    _print_unknown(totals, page)
    rows = [_describe_row(row, by, totals.flops) for row in report.select_rows(by).to_dicts()]
    if rows:
        page.skip()
        draw_rows(page, HEADS, rows)


def _describe_inputs(report: ModelReport) -> str:
    graph = report.graph
    shown = [
        f"{name} {'x'.join(map(str, graph.tensors[name].shape)) or 'a number'} {graph.tensors[name].dtype}"
        for name in graph.inputs[:SHOWN_INPUTS]
    ]
    more = len(graph.inputs) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") or "no inputs"


def _print_unknown(totals: ModelTotals, page: TextPage) -> None:
    """Print what has no rule: the sums leave it out."""
    if not totals.unknown_kinds:
        return
    kinds = ", ".join(f"{kind} ({count})" for kind, count in totals.unknown_kinds.items())
    shares = (
        f"{format_ratio(totals.node_coverage_ratio)} of the operators with {format_ratio(totals.nbytes_coverage_ratio)}"
    )
    page.line(f"Unknown, and left out of all sums, is what these cost: {kinds}. Covered: {shares} of the bytes.")


def _describe_row(row: dict[str, Any], by: Grouping, whole: int | None) -> TextRow:
    """Return a row; `≥` marks sums that leave an operator out."""
    label = f"{row['node']} ({row['kind']})" if by == "operator" else row["name"]
    least = "≥" if row["flops"] is not None and row.get("nodes_without_rule") else ""
    moved = _add_known(row["read_nbytes"], row["written_nbytes"])
    share = None if row["flops"] is None or not whole else row["flops"] / whole
    flops, nbytes = (
        ABSENT if row["flops"] is None else least + text for text in (_format_count(row["flops"]), format_bytes(moved))
    )
    return TextRow(
        label or OF_MODEL,
        (_format_count(row["parameters"]), flops, format_ratio(share), nbytes, _format_intensity(row["flops"], moved)),
    )


def _add_known(left: int | None, right: int | None) -> int | None:
    """Return a sum, None where a part is unknown."""
    return None if left is None or right is None else left + right


def _format_intensity(flops: int | None, nbytes: int | None) -> str:
    """Return operations per byte, absent where nothing moves or something is unknown."""
    return ABSENT if flops is None or not nbytes else f"{flops / nbytes:.1f}"


def _format_count(count: float | None) -> str:
    """Return a number as in `8.21 G`."""
    return format_amount(count, "").rstrip()
