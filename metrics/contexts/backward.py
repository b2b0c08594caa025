"""Which forward operator each backward one belongs to, so that its time is under the line that made it.

PyTorch gives a differentiable operator the number that its backward node will have. An operator that is not
differentiable only reads the number of the next one that is, so of several with one number the last is meant, and of
those within each other the outermost. A node of a function written in C++ has its number from no operator of its own
name: those that only read it are steps of the function, which belongs to what is around them.

A gradient is added up (`AccumulateGrad`, which has no number) as soon as it is there: the engine runs that before all
else, after the node that made the gradient. Where a collective hangs on it, it is of many gradients and of none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.contexts.paths import measure_depths, spread
from deepprof.metrics.contexts.slices import HostSlices
from deepprof.metrics.names import are_named
from deepprof.metrics.streams import HOST_COLLECTIVE

Int64s = npt.NDArray[np.int64]

ENGINE = "autograd::engine::evaluate_function"
ADDING = f"{ENGINE}: torch::autograd::AccumulateGrad"
NODE = r"^autograd::engine::evaluate_function: |Backwards?\d*$"  # around what a node is named after
NODES = r"Backward\d*$"  # how nodes are called where the engine is not recorded
NAMESPACE = r"^[\w:]*::|_"  # aten::_log_softmax is named as LogSoftmaxBackward0 is


def find_forward(slices: HostSlices, names: pl.Series) -> Int64s:
    """Return for every slice the row of the forward operator, if it is the outermost slice of a backward node, else -1.

    The forward operator begins before its backward node does: there are no circles. `names` are the trace's.
    """
    numbers = pl.col("sequence").is_not_null() & (pl.col("forward_thread") > 0)
    numbered = slices.rows.select(numbers.any()).item()
    found = _pair_by_number(slices, names) if numbered else _pair_by_name(slices, names)
    adding, before = _find_adding(slices, names)
    found[adding] = found[before]
    return found


def _pair_by_number(slices: HostSlices, names: pl.Series) -> Int64s:
    """Return the same by the numbers of operators and nodes.

    Where no operator has the node's name it is the function, module or range around the one with its number.
    """
    times = {"start": pl.Series(slices.start), "end": pl.Series(slices.end)}
    columns = (pl.col("process", "thread").fill_null(-1), "sequence", "forward_thread", "name_id")
    all_numbered = slices.rows.select(*columns, **times).with_row_index("row").filter(pl.col("sequence") >= 0)
    numbered = _outermost(all_numbered)
    backward = numbered.filter(pl.col("forward_thread") > 0)
    forward = numbered.filter((pl.col("forward_thread") <= 0) | pl.col("forward_thread").is_null())
    pairs = _pair(backward, forward)
    row, meant = pairs["row"].to_numpy(), pairs["forward"].to_numpy().astype(np.int64)
    unnamed = ~_have_name(pairs, all_numbered, names)
    meant[unnamed] = _leave_operators(slices, meant[unnamed])
    found = np.full(len(slices.start), -1, np.int64)
    found[row] = meant
    return found


def _find_adding(slices: HostSlices, names: pl.Series) -> tuple[Int64s, Int64s]:
    """Return the rows that add gradients up, and for each the row of the backward node before it on its thread."""
    name_id = slices.rows["name_id"]
    engine, adding = are_named(names, name_id, f"^{ENGINE}"), are_named(names, name_id, f"^{ADDING}")
    rows = np.flatnonzero(engine & ~adding)
    wanted = np.flatnonzero(adding & ~_hold_collectives(slices, names))
    at = np.searchsorted(rows, wanted) - 1
    known = at >= 0
    known[known] = slices.track[rows[at[known]]] == slices.track[wanted[known]]
    return wanted[known], rows[at[known]]


def _hold_collectives(slices: HostSlices, names: pl.Series) -> npt.NDArray[np.bool_]:
    held = are_named(names, slices.rows["name_id"], HOST_COLLECTIVE)
    inner = np.flatnonzero(held)
    while (inner := np.unique(slices.parent[inner])).size and inner[-1] >= 0:
        inner = inner[inner >= 0]
        inner = inner[~held[inner]]
        held[inner] = True
    return held


def _pair_by_name(slices: HostSlices, names: pl.Series) -> Int64s:
    """Return the same where nothing has a number: each backward node belongs to the last operator of its name.

    An operator is taken by one node only: what ran forward last goes backward first, as brackets are paired.
    """
    operator = (slices.rows["kind"] == "operator").to_numpy()
    node = operator & are_named(names, slices.rows["name_id"], NODES)
    if not node.any():
        return np.full(len(node), -1, np.int64)
    inside = _lie_within(slices, node)
    outermost = node & ~np.append(inside, False)[slices.parent]  # the last: nothing is around it
    plain = names.str.replace_all(NODE, "").str.replace_all(NAMESPACE, "").str.to_lowercase()
    times = {"time": np.where(node, slices.start, slices.end), "opens": ~node}
    rows = slices.rows.select("process", name=plain.gather(slices.rows["name_id"])).with_row_index("row")
    rows = rows.with_columns(pl.col("process").fill_null(-1), *(pl.Series(name, each) for name, each in times.items()))
    wanted = rows.filter(pl.Series(outermost | (operator & ~inside)))
    known = rows.filter(pl.Series(outermost))["name"].unique()
    return _pair_brackets(wanted.filter(pl.col("name").is_in(known.implode())), len(operator))


def _pair_brackets(rows: pl.DataFrame, count: int) -> Int64s:
    """Return for each of `count` rows that closes the row that it closes, else -1; they have process, name and time."""
    key = ["process", "name"]
    step = pl.when("opens").then(1).otherwise(-1)
    depth = rows.sort(*key, "time", maintain_order=True).with_columns(depth=step.cum_sum().over(key))
    depth = depth.with_columns(pl.col("depth") - pl.min_horizontal(pl.col("depth").cum_min().over(key), 0))
    level = pl.when("opens").then("depth").otherwise(pl.col("depth") + 1)
    placed = depth.with_columns(level=level).sort(*key, "level", maintain_order=True)
    before = placed.with_columns(pl.col("row", "opens").shift(1).over([*key, "level"]).name.suffix("_before"))
    pairs = before.filter(~pl.col("opens") & pl.col("opens_before"))
    found = np.full(count, -1, np.int64)
    found[pairs["row"].to_numpy()] = pairs["row_before"].to_numpy()
    return found


def _lie_within(slices: HostSlices, found: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return spread(found, np.maximum(slices.parent, 0), measure_depths(slices.parent))


def _leave_operators(slices: HostSlices, rows: Int64s) -> Int64s:
    """Return for every row the innermost slice around that is no operator; the outermost one where all are."""
    operator = (slices.rows["kind"] == "operator").to_numpy()
    found = rows.copy()
    while (inner := np.flatnonzero(operator[found] & (slices.parent[found] >= 0))).size:
        found[inner] = slices.parent[found[inner]]
    return found


def _have_name(pairs: pl.DataFrame, numbered: pl.DataFrame, names: pl.Series) -> npt.NDArray[np.bool_]:
    """Return for each of `pairs` whether an operator with its number, in the forward one or it itself, has its name."""
    plain = names.str.replace_all(NODE, "").str.replace_all(NAMESPACE, "").str.to_lowercase()
    named = numbered.with_columns(name=plain.gather(numbered["name_id"]))
    nodes = pairs.join(named.select("row", node="name"), on="row", how="left", maintain_order="left")
    outer = named.select("process", "thread", "sequence", "start", "end", forward="row")
    wanted = nodes.join(outer, on="forward", how="left", maintain_order="left").with_row_index("pair")
    inner = named.select("process", "thread", "sequence", "name", begun="start", ended="end")
    within = wanted.join(inner, on=["process", "thread", "sequence"]).filter(
        (pl.col("begun") >= pl.col("start"))
        & (pl.col("ended") <= pl.col("end"))
        & pl.col("name").str.starts_with(pl.col("node"))
    )
    return wanted["pair"].is_in(within["pair"].unique().implode()).to_numpy()


def _outermost(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that are in no other one of their number and thread."""
    key = ("process", "thread", "sequence", pl.col("forward_thread").fill_null(0) > 0)
    reach = pl.col("end").cum_max().shift(1).over(key, order_by="row")
    return rows.filter((pl.col("start") >= reach).fill_null(value=True))


def _pair(backward: pl.DataFrame, forward: pl.DataFrame) -> pl.DataFrame:
    """Return `row` of backward slices and that of the last `forward` one of their number before they begin.

    The recorder numbers forward threads in its own way: the thread is the one with most of these numbers.
    """
    by = ["process", "sequence"]
    threads = backward.select(*by, "forward_thread").join(forward.select(*by, "thread").unique(), on=by)
    counts = threads.group_by("process", "forward_thread", "thread").len()
    counts = counts.sort("len", "thread", descending=[True, False])
    chosen = counts.unique(["process", "forward_thread"], keep="first", maintain_order=True).drop("len")
    wanted = backward.drop("thread").join(chosen, on=["process", "forward_thread"]).sort("start")
    made = forward.select(*by, "thread", end="end", begun="start", forward="row").sort("end")
    keys = ["process", "thread", "sequence"]
    found = wanted.join_asof(made, left_on="start", right_on="end", by=keys, check_sortedness=False)
    return found.filter(pl.col("begun") < pl.col("start")).select("row", "forward")
