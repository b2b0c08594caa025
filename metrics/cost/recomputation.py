"""Which operators of a backward pass run the forward pass again, as activation checkpointing has them do.

PyTorch computes gradients with gradients switched off: the operators of a backward node then have no number of their
own. What a checkpoint runs again runs with gradients switched on, so that its operators have the number of the node
that they make (`metrics.contexts.backward`). A number of its own inside a backward node therefore marks an operator
that runs again, whichever of PyTorch's two ways of checkpointing started it.

Gradients of gradients (`create_graph=True`) switch gradients on for the whole backward pass; then nothing can be told.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.backward import ENGINE
from deepprof.metrics.contexts.paths import list_levels, measure_depths
from deepprof.metrics.contexts.slices import HostSlices
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.names import are_named

Bools = npt.NDArray[np.bool_]
Int8s = npt.NDArray[np.int8]

OUTSIDE, GRADIENT, AGAIN = range(3)  # not in a backward node, computing a gradient in one, running again in one
GRADIENT_OPERATOR = r"_backward(?:_\w+)?$"  # aten::convolution_backward, aten::native_layer_norm_backward …
NESTED = "gradients of gradients are computed (create_graph=True), which look like recomputed operators"


def find_recomputed(slices: HostSlices, names: pl.Series) -> tuple[Bools, str | None]:
    """Return which slices of the host run a part of the forward pass again, and why this cannot be told, if so.

    `names` are the trace's. Where no operator has a number there is nothing that runs again.
    """
    numbered = slices.rows.select(
        own=(pl.col("kind") == "operator") & (pl.col("sequence") >= 0) & (pl.col("forward_thread").fill_null(0) <= 0),
        node=(pl.col("sequence") >= 0) & (pl.col("forward_thread") > 0),
    ).fill_null(value=False)
    own = numbered["own"].to_numpy()
    node = numbered["node"].to_numpy() | are_named(names, slices.rows["name_id"], f"^{ENGINE}")
    if not node.any():
        return np.zeros(len(own), np.bool_), None
    place = _place_slices(slices, own, node)
    gradients = are_named(names, slices.rows["name_id"], GRADIENT_OPERATOR) & own & (place == AGAIN)
    return (place == AGAIN) & ~gradients, NESTED if gradients.any() else None


def mark_recomputed(trace: Trace, tree: ContextTree) -> tuple[Bools, str | None]:
    """Return which device events run a part of the forward pass again, and why that is unknown, if so."""
    again, untold = find_recomputed(tree.slices, trace.names)
    return np.append(again, False)[tree.sites.row], untold


def _place_slices(slices: HostSlices, own: Bools, node: Bools) -> Int8s:
    """Return for each slice where it is: `OUTSIDE`, `GRADIENT` or `AGAIN`; one without a number is where its parent is.

    `own` are operators with a number of their own, `node` backward nodes.
    """
    place = np.where(node, GRADIENT, OUTSIDE).astype(np.int8)
    for rows in list_levels(measure_depths(slices.parent))[1:]:
        around = place[slices.parent[rows]]
        inside = np.where(own[rows] & (around != OUTSIDE), AGAIN, around)
        place[rows] = np.where(node[rows], GRADIENT, inside)
    return place
