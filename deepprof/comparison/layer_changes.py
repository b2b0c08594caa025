"""The model's layers of both runs, matched by their paths: which of them last longer themselves."""

from __future__ import annotations

import polars as pl

from deepprof.metrics.annotation.anatomy_tables import Anatomy
from deepprof.metrics.loop import Loop
from deepprof.render.anatomy import SOURCES
from deepprof.results.comparison_result import LayerChange, LayersInBoth

MOST_LAYERS = 1_000  # rows, those that changed most
OWN = ("own_ns", "forward_ns", "backward_ns")
COLUMNS = ("path", *(f"{each}{run}" for each in OWN for run in ("", "_b")))
NO_MATCH = "no layer has the same path in both runs"


def compare_layers(a: Loop, b: Loop) -> LayersInBoth | None:
    """Return the layers of two loops; only the reason where they are unknown alike, None where neither has any."""
    sources = _find_source(a.anatomy), _find_source(b.anatomy)
    if sources == (None, None):
        return None
    if a.anatomy is None or b.anatomy is None or sources[0] != sources[1]:
        known = [_describe_source(source) for source in sources]
        return LayersInBoth(problem=f"the layers of A are {known[0]}, those of B are {known[1]}")
    return _match(sources[0], _read_own_times(a.anatomy.layers), _read_own_times(b.anatomy.layers))


def _find_source(anatomy: Anatomy | None) -> str | None:
    """Return how the layers of a run are known, None where there is none."""
    return None if anatomy is None or anatomy.layers["depth"].max() in {None, 0} else anatomy.source


def _describe_source(source: str | None) -> str:
    return "unknown" if source is None else f"known by {SOURCES.get(source, source)}"


def _read_own_times(layers: pl.DataFrame) -> pl.DataFrame:
    """Return `path` and `OWN` of every layer but the model: what it needs without those within; equal paths are one.

    Medians do not add up to the nanosecond: what would be less than nothing is 0.
    """
    passes = ("forward_ns", "backward_ns")
    within = layers.drop_nulls("parent").group_by("parent").agg(pl.col(passes).sum())
    own = layers.join(within, left_on="layer", right_on="parent", how="left", suffix="_within", maintain_order="left")
    return (
        own.filter(pl.col("depth") > 0)
        .select(
            "path",
            pl.col("own_busy_ns").alias("own_ns"),
            *((pl.col(each) - pl.col(f"{each}_within").fill_null(0)).clip(0) for each in passes),
        )
        .group_by("path", maintain_order=True)
        .agg(pl.col(OWN).sum())
    )


def _match(source: str | None, a: pl.DataFrame, b: pl.DataFrame) -> LayersInBoth:
    """Return the layers with the same path, those whose time changed most first, and count the others."""
    both = a.join(b, on="path", how="inner", suffix="_b", maintain_order="left")
    changed = both.filter(pl.col("own_ns") != pl.col("own_ns_b"))
    first = changed.sort((pl.col("own_ns_b") - pl.col("own_ns")).abs(), "path", descending=[True, False])
    a_only, b_only = a.join(both, on="path", how="anti"), b.join(both, on="path", how="anti")
    return LayersInBoth(
        source=source,
        rows=tuple(LayerChange(*row) for row in first.head(MOST_LAYERS).select(COLUMNS).iter_rows()),
        matched=both.height,
        changed=changed.height,
        a_only=a_only.height,
        b_only=b_only.height,
        a_only_ns=int(a_only["own_ns"].sum()),
        b_only_ns=int(b_only["own_ns"].sum()),
        problem=None if both.height else NO_MATCH,
    )
