"""The operators of a trace matched with those of a dry run of the model, which has their layers.

The sequence of a forward pass comes once in each: in every iteration, for every micro-batch, and in part where a
checkpoint is computed again. Between passes and in them there are operators of others: they stay without a layer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.annotation.runs import GRAM, SequenceFinder
from deepprof.metrics.contexts.backward import NODE, find_forward
from deepprof.metrics.contexts.paths import find_nearest, measure_depths, spread
from deepprof.metrics.contexts.slices import HostSlices
from deepprof.metrics.names import are_named

Int64s = npt.NDArray[np.int64]

UNKNOWN = -1  # of operators that the dry run does not have

Bools = npt.NDArray[np.bool_]

NAMESPACE = "::"  # in every operator's name; a function of the user's own has none
PLAIN = r"^aten::_*|_+$"  # add_ does in place what add does
# What autocast, copies of inputs and the like add between operators of the model, and what no kernel hangs on.
INCIDENTAL = ("to", "to_copy", "detach", "alias", "lift_fresh")


def align_layers(slices: HostSlices, names: pl.Series, layers: pl.DataFrame) -> Int64s:
    """Return for every slice the row of `layers` that it is matched with, -1 for none.

    `names` are those of the trace, `layers` has the schema `LAYERS`. Only operators of forward passes have a row:
    those that are in no other one and in no backward node, unless the node computes a checkpoint again. Uses about
    O(n) for a trace that repeats.
    """
    found = np.full(len(slices.start), -1, np.int64)
    if layers.is_empty() or found.size == 0:
        return found
    operators = _find_forward_operators(slices, names)
    model = _ModelTokens.of(operators, slices.rows["name_id"].gather(operators.rows), names, layers["operator"])
    for part in _split(np.flatnonzero(model.counts & (operators.node < 0)), operators.stretch):
        found[operators.rows[part]] = model.find(model.tokens[part])
    again = _split(np.flatnonzero(model.counts & (operators.node >= 0)), operators.stretch)
    again = [part for part in again if len(part) >= GRAM]
    if again:
        nodes = operators.node[[part[0] for part in again]]
        for part, near in zip(again, _find_made(found, slices, operators, names, nodes).tolist(), strict=True):
            found[operators.rows[part]] = model.find_again(model.tokens[part], near)
    found[operators.rows] = model.match_between(found[operators.rows], operators.stretch)
    return found


def _split(rows: Int64s, stretch: Int64s) -> list[Int64s]:
    return np.split(rows, np.flatnonzero(np.diff(stretch[rows])) + 1) if len(rows) else []


def _find_made(
    found: Int64s, slices: HostSlices, operators: _ForwardOperators, names: pl.Series, nodes: Int64s
) -> Int64s:
    """Return for every backward node the match of the forward operator that made it, or of the first in that; or -1."""
    forward = find_forward(slices, names)[nodes]
    known = (forward >= 0) & (slices.rows["kind"] == "operator").to_numpy()[forward]
    own = np.where(operators.outermost[forward] >= 0, operators.outermost[forward], forward)
    matched = np.append(np.flatnonzero(found >= 0), -1)
    inner = matched[np.minimum(np.searchsorted(matched[:-1], own), len(matched) - 1)]
    known &= (inner >= 0) & (slices.track[inner] == slices.track[own]) & (slices.start[inner] < slices.end[own])
    return np.where(known, found[inner], -1)


class _ModelTokens(Struct, frozen=True, eq=False):
    """Operators by number: the `tokens` of a trace and the `sequence` of a dry run.

    `kept` are the places in the sequence of those that `finder` searches for; `passing` are the numbers of those that
    come and go, `counts` states of every token whether it is neither one of them nor unknown.
    """

    tokens: Int64s
    sequence: Int64s
    kept: Int64s
    passing: Int64s
    counts: npt.NDArray[np.bool_]
    finder: SequenceFinder
    again: dict[tuple[bytes, int], Int64s]

    @classmethod
    def of(cls, operators: _ForwardOperators, name_ids: pl.Series, names: pl.Series, wanted: pl.Series) -> _ModelTokens:
        """Return the tokens of `operators`, whose names have the ids, and of the operators `wanted`."""
        tokens, sequence = _number_names(name_ids, names, wanted)
        incidental = _simplify(wanted).is_in(INCIDENTAL).to_numpy()
        passing, kept = np.unique(sequence[incidental]), np.flatnonzero(~incidental)
        counts = (tokens != UNKNOWN) & ~np.isin(tokens, passing)
        return cls(tokens, sequence, kept, passing, counts, SequenceFinder(sequence[kept]), {})

    def find(self, part: Int64s, near: int | None = None) -> Int64s:
        """Return the rows of the sequence of tokens; `near` is one of them."""
        places = self.finder.find(part, None if near is None else int(np.searchsorted(self.kept, near)))
        return np.where(places >= 0, np.append(self.kept, -1)[places], -1)

    def find_again(self, part: Int64s, near: int) -> Int64s:
        """Return the rows of what a backward node runs, -1 where nothing states which of equal layers it is."""
        if near < 0:
            return np.full(len(part), -1, np.int64)
        key = part.tobytes(), near
        if key not in self.again:
            self.again[key] = self.find(part, near)
        return self.again[key]

    def match_between(self, found: Int64s, stretch: Int64s) -> Int64s:
        """Return the rows with those of operators that come and go.

        They are matched in order between two matched neighbours, where the trace has as many of them as the dry run.
        """
        if not len(self.passing):
            return found
        ours = _describe_between(self.tokens, found, stretch, self.passing)
        rows = np.arange(len(self.sequence))
        theirs = _describe_between(self.sequence, rows, np.zeros_like(rows), self.passing)
        pairs = ours.join(theirs, on=["before", "after", "token", "order", "count"], suffix="_there")
        result = found.copy()
        result[pairs["row"].to_numpy()] = pairs["row_there"].to_numpy()
        return result


def _number_names(name_ids: pl.Series, names: pl.Series, wanted: pl.Series) -> tuple[Int64s, Int64s]:
    """Return numbers for the operators of a trace, by their names, -1 where the dry run has none, and for its own."""
    distinct = _simplify(wanted).unique(maintain_order=True)
    numbers = pl.DataFrame({"name": distinct}).with_row_index("number").cast({"number": pl.Int64})
    used = name_ids.unique()
    known = pl.DataFrame({"name_id": used, "name": _simplify(names.gather(used))})
    known = known.join(numbers, on="name", how="left").drop("name")
    rows = name_ids.to_frame("name_id").join(known, on="name_id", how="left", maintain_order="left")
    sequence = _simplify(wanted).to_frame("name").join(numbers, on="name", how="left", maintain_order="left")
    return rows["number"].fill_null(UNKNOWN).to_numpy(), sequence["number"].to_numpy()


def _describe_between(tokens: Int64s, places: Int64s, stretch: Int64s, passing: Int64s) -> pl.DataFrame:
    """Return the operators that come and go: the rows of the sequence before and after, and which they are between.

    `places` are the rows of the sequence of all others, -1 for none.
    """
    passes = np.isin(tokens, passing)
    rows, solid = np.flatnonzero(passes), np.flatnonzero((tokens != UNKNOWN) & ~passes)
    at = np.searchsorted(solid, rows)
    before, after = np.append(solid, -1)[at - 1], np.append(solid, -1)[at]
    known = (at > 0) & (at < len(solid))
    known[known] = stretch[before[known]] == stretch[after[known]]
    known[known] = (places[before[known]] >= 0) & (places[after[known]] > places[before[known]])
    neighbours = {"before": places[before[known]], "after": places[after[known]]}
    frame = pl.DataFrame(neighbours | {"row": rows[known], "token": tokens[rows[known]], "gap": before[known]})
    within = ["gap", "token"]
    return frame.with_columns(order=pl.int_range(pl.len()).over(within), count=pl.len().over(within)).drop("gap")


class _ForwardOperators(Struct, frozen=True):
    """Rows of slices that are operators of forward passes, in sections that follow each other in time on one thread.

    `stretch` numbers them, ascending; of those that a backward node runs again there is a section a node, and `node` is
    its row, -1 for all others. `outermost` is for every slice the row of such an operator, itself or around it, or -1.
    """

    rows: Int64s
    stretch: Int64s
    node: Int64s
    outermost: Int64s


def _find_forward_operators(slices: HostSlices, names: pl.Series) -> _ForwardOperators:
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
    return _ForwardOperators(rows, stretch, first[rows], find_nearest(outermost, around, depth))


def _lie_in(found: Bools, parent: Int64s, depth: Int64s) -> Bools:
    return np.append(spread(found, np.maximum(parent, 0), depth), False)[parent]


def _simplify(names: pl.Series) -> pl.Series:
    """Return names of operators without what in-place and inner variants add."""
    return names.fill_null("").str.replace_all(PLAIN, "")
