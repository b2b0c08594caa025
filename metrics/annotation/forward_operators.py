"""Which slices of the host are the operators of forward passes, as a dry run of the model has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.contexts.backward import NODE
from deepprof.metrics.contexts.paths import find_nearest, measure_depths, spread
from deepprof.metrics.contexts.slices import HostSlices
from deepprof.metrics.names import are_named

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NAMESPACE = "::"  # in every operator's name; a function of the user's own has none
PLAIN = r"^aten::_*|_+$"  # add_ does in place what add does
# What autocast, copies of inputs and the like add between operators of the model, and what no kernel hangs on.
INCIDENTAL = ("to", "to_copy", "detach", "alias", "lift_fresh")


@dataclass(frozen=True, slots=True, eq=False)
class ForwardOperators:
    """Rows of slices that are operators of forward passes, in stretches that follow each other in time on one thread.

    `stretch` numbers them, ascending; of those that a backward node runs again there is a stretch a node, and `node` is
    its row, -1 for all others. `outermost` is for each slice the row of such an operator, itself or around it, or -1.
    """

    rows: Int64s
    stretch: Int64s
    node: Int64s
    outermost: Int64s


def find_forward_operators(slices: HostSlices, names: pl.Series) -> ForwardOperators:
    """Return the outermost operators of forward passes, and those that backward nodes run again (checkpoints).

    A function of the user's own (`torch.autograd.Function`) that runs operators is not one itself; they are.
    """
    operator = (slices.rows["kind"] == "operator").to_numpy()
    name_id = slices.rows["name_id"]
    node = operator & are_named(names, name_id, NODE)
    around, depth = np.maximum(slices.parent, 0), measure_depths(slices.parent)
    nearest = np.append(find_nearest(operator, around, depth), -1)[slices.parent]
    transparent = operator & ~node & ~are_named(names, name_id, NAMESPACE)
    transparent[np.setdiff1d(np.flatnonzero(transparent), nearest)] = False
    closed = operator & ~node & ~transparent
    outermost = closed & ~_lie_in(closed, slices.parent, depth)
    first = find_nearest(node & ~_lie_in(node, slices.parent, depth), around, depth)
    rows = np.flatnonzero(outermost)
    stretch = np.where(first >= 0, slices.threads + first, slices.track)[rows]
    rows, stretch = (each[np.argsort(stretch, kind="stable")] for each in (rows, stretch))
    return ForwardOperators(rows, stretch, first[rows], find_nearest(outermost, around, depth))


def _lie_in(found: Bools, parent: Int64s, depth: Int64s) -> Bools:
    """Return which slices lie in one that was found."""
    return np.append(spread(found, np.maximum(parent, 0), depth), False)[parent]


def simplify(names: pl.Series) -> pl.Series:
    """Return names of operators without what in-place and inner variants add."""
    return names.fill_null("").str.replace_all(PLAIN, "")
