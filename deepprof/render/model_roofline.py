"""The roofline of a model on a backend: a row for each batch, the layers that took longest, and the picture of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from msgspec.structs import replace

from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.plurals import counted
from deepprof.render.roofline.picture import RooflinePicture, draw_up
from deepprof.render.roofline.rates import format_amount, format_flops_rate, format_intensity, format_nbytes_rate
from deepprof.render.roofline.terminal import draw_roofline
from deepprof.render.units import ABSENT, format_duration, format_ratio

if TYPE_CHECKING:
    from deepprof.metrics.cost.model_roofline import ModelRun
    from deepprof.render.page import TextPage

MOST_LAYERS = 15  # of the text; JSON and CSV have all
GAP = 2  # columns between two of a table
NO_ROOFS = "No peaks are known: run `deepprof peak`, or give --peaks, to see bounds and distances."


def draw_model_roofline(
    runs: Sequence[ModelRun], title: str, peaks: DevicePeaks | None
) -> tuple[RooflinePicture, pl.DataFrame]:
    """Return the picture of the layers of the largest batch, and the table of all layers and whole models.

    In the table a whole model has no `place`, and `title` as its name. A note of the picture states why its bytes are
    predicted.
    """
    largest = max(runs, key=lambda run: run.profile.batch)
    shown = largest.layers.with_columns(name=pl.Series([_name_layer(row) for row in largest.layers.to_dicts()]))
    profile = largest.profile
    head = f"{title} on {profile.backend} {profile.version}, batch {profile.batch}"
    tables = [table for run in runs for table in (run.whole.with_columns(name=pl.lit(title)), run.layers)]
    picture, reason = draw_up(shown, peaks, head), profile.uncounted_reason
    notes = (*picture.notes, *(() if reason is None else (f"Bytes are predicted, not counted: {reason}.",)))
    return replace(picture, notes=notes), pl.concat(tables, how="diagonal")


def print_model_roofline(runs: Sequence[ModelRun], title: str, peaks: DevicePeaks | None, page: TextPage) -> None:
    """Print a row for every batch, how far the mapping holds, the layers that lasted longest, and the picture."""
    profile = runs[0].profile
    average = f"layers: {profile.average} of {counted(profile.runs, 'run')}"
    page.line(f"{title} on {profile.backend} {profile.version}, {profile.device}; {average}", "bold")
    if peaks is None:
        page.line(NO_ROOFS, "dim")
    page.skip()
    page.table([_list_whole(run) for run in runs], gap=GAP)
    for run in runs:
        page.line(f"Batch {run.profile.batch}: {'; '.join(_describe_mapping(run))}.", "dim")
    page.skip()
    _print_layers(max(runs, key=lambda run: run.profile.batch), page)
    page.skip()
    picture, _ = draw_model_roofline(runs, title, peaks)
    draw_roofline(page, picture)


def _list_whole(run: ModelRun) -> dict[str, str]:
    row = run.whole.row(0, named=True)
    return {
        "batch": str(run.profile.batch),
        "time": format_duration(row["device_ns"]),
        "FLOP": format_amount(row["flops"], "").rstrip(),
        "bytes": format_amount(row["nbytes"], "B"),
        "bytes are": str(row["basis"]),
        **_list_rates(row),
    }


def _list_rates(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "FLOP/B": format_intensity(row["intensity"]),
        "FLOP/s": format_flops_rate(row["achieved_flops_per_s"]).removesuffix("FLOP/s").rstrip(),
        "B/s": format_nbytes_rate(row["achieved_nbytes_per_s"]).removesuffix("B/s").rstrip(),
        "bound": str(row["bound"] or ABSENT),
        "of roof": format_ratio(row["roof_ratio"]),
    }


def _describe_mapping(run: ModelRun) -> Iterator[str]:
    """Yield how far the mapping of a run holds, and how far predicted bytes are from the backend's tensors."""
    checks = run.checks
    yield (
        f"{checks.exact_layers} of {checks.product_layers} layers that multiply hold exactly one such operator"
        f" or one attention, {checks.mapped_products} of the model's {checks.product_nodes} are found"
    )
    yield f"{checks.agreeing_layers} of {checks.sized_layers} layers have as many elements as profiled"
    if checks.layers_ns:
        nodes, rest = (format_ratio(part / checks.layers_ns) for part in (checks.nodes_ns, checks.conversions_ns))
        yield f"{nodes} of the layers' {format_duration(checks.layers_ns)} is mapped, and {rest} to conversions"
    if run.difference_ratio is not None:
        yield f"the backend's own tensors have {100 * run.difference_ratio:+.1f} % of the predicted bytes"


def _print_layers(run: ModelRun, page: TextPage) -> None:
    """Print the layers that lasted longest, and what the others took."""
    longest = run.layers.sort("device_ns", descending=True, nulls_last=True, maintain_order=True)
    shown, others = longest.head(MOST_LAYERS), longest.slice(MOST_LAYERS)
    page.line(f"Layers of batch {run.profile.batch}, the longest first; their bytes are predicted", "bold")
    page.table([_list_layer(row) for row in shown.to_dicts()], gap=GAP, left="layer")
    if len(others):
        share = sum(others["device_ns"].drop_nulls().to_list()) / (run.checks.layers_ns or 1)
        page.line(f"and {counted(len(others), 'layer')} more: {format_ratio(share)} of the time")


def _list_layer(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "layer": _name_layer(row),
        "time": format_duration(row["device_ns"]),
        "share": format_ratio(row["share_ratio"]),
        **_list_rates(row),
    }


def _name_layer(row: Mapping[str, Any]) -> str:
    """Return what a layer is: its kind, its module or first operator, and how many operators more it holds."""
    operators = row["operators"] or []
    more = f" +{len(operators) - 1}" if len(operators) > 1 else ""
    return f"{row['kind']} {row['layer'] or (operators[0] if operators else row['converts'] or row['name'])}{more}"
