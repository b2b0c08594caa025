"""Which call of an operator did the work of every device event, and the costs of calls that arrange others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import OPERANDS, Trace
from deepprof.metrics.contexts.slices import HostSlices
from deepprof.metrics.cost.framework.operator_rules import arranges, is_free
from deepprof.metrics.cost.signatures import BASES, COSTS

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

STEPS = 64  # up from a slice: deeper nesting is followed for all slices at once
AMOUNTS = ("flops", "nbytes", "product_flops")


def read_operands(trace: Trace, slices: HostSlices) -> pl.DataFrame:
    """Return the columns `SIGNATURE` of every slice that is an operator, null for others."""
    operands = trace.operands.unique("event", keep="first", maintain_order=True)
    rows = slices.rows.select("kind", "name_id", "event").join(operands, on="event", how="left", maintain_order="left")
    is_operator = pl.col("kind") == "operator"
    name = trace.names.gather(rows["name_id"]).alias("operator")
    given = [pl.when(is_operator).then(pl.col(column)) for column in OPERANDS if column != "event"]
    return rows.with_columns(name).select(pl.when(is_operator).then("operator").alias("operator"), *given)


def find_nearest(slices: HostSlices, wanted: Bools) -> Int64s:
    """Return for every slice the row of the innermost slice around it, itself included, that is wanted; -1 for none."""
    rows = np.arange(len(slices.parent))
    nearest = np.append(np.where(wanted, rows, slices.parent), -1)
    final = np.append(wanted, True)
    while True:
        following = np.where(final[nearest], nearest, nearest[nearest])
        if np.array_equal(following, nearest):
            return nearest[:-1]
        nearest = following


def find_around(slices: HostSlices, wanted: Bools, rows: Int64s) -> Int64s:
    """Return for each of `rows`, slices or -1, the innermost slice around it that is wanted, itself included, or -1."""
    found, rest = rows.copy(), np.arange(len(rows))
    for _ in range(STEPS):
        rest = rest[found[rest] >= 0]
        rest = rest[~wanted[found[rest]]]
        if not rest.size:
            return found
        found[rest] = slices.parent[found[rest]]
    return np.append(find_nearest(slices, wanted), -1)[found]


def find_counted_inside(slices: HostSlices, operators: pl.Series, costs: pl.DataFrame, sites: Int64s) -> Bools:
    """Return which slices have a cost that the calls inside of them, which launched at `sites`, have already.

    `operators` and `costs` have a row for every slice; -1 is no site. Only operators that leave their work to others
    are meant: their products are counted inside where any product is, other operations where any is."""
    known, counted = costs["basis"].is_not_null().to_numpy(), np.zeros(len(slices.parent), np.bool_)
    names = operators.unique().drop_nulls()
    passing = names.filter(pl.Series([arranges(name) for name in names], dtype=pl.Boolean))
    arranging = known & operators.is_in(passing.implode()).fill_null(value=False).to_numpy()
    flops, products = (costs[name].fill_null(0).to_numpy() for name in ("flops", "product_flops"))
    while arranging.any():
        wanted = known & ~counted
        inner = np.unique(find_around(slices, wanted, sites))
        inner = inner[inner >= 0]
        around = find_around(slices, wanted, slices.parent[inner])
        inner, around = inner[around >= 0], around[around >= 0]
        again = np.where(products[around] > 0, products[inner], flops[inner]) > 0
        found = around[again & arranging[around]]
        if not len(found):
            break
        counted[found] = True
    return counted


def add_up_calls(slices: HostSlices, operators: pl.Series, costs: pl.DataFrame, wanted: Int64s) -> pl.DataFrame:
    """Return the cost of the `wanted` slices, a row each with the schema `COSTS`, where operators are the kernels.

    `operators` and `costs` have a row for every slice. A slice without its own cost has that of all that it calls,
    if it leaves its work to them (`operator_rules.arranges`); if any of these is unknown, so is the sum.
    """
    known = costs["basis"].is_not_null().to_numpy()
    names = operators.unique()
    passing = names.filter(pl.Series([name is not None and _passes(name) for name in names], dtype=pl.Boolean))
    passes = operators.is_null().to_numpy() | operators.is_in(passing.implode()).fill_null(value=False).to_numpy()
    stops = known | ~passes
    is_wanted = np.zeros(len(known), np.bool_)
    is_wanted[wanted] = True
    around = np.append(find_nearest(slices, stops | is_wanted), -1)[slices.parent]
    inner = np.flatnonzero(stops & (around >= 0) & ~is_wanted)
    target = around[inner]
    inner, target = inner[~stops[target]], target[~stops[target]]
    rows, targets = np.concatenate([wanted[stops[wanted]], inner]), np.concatenate([wanted[stops[wanted]], target])
    sums = _sum_by_target(costs[rows].with_columns(target=pl.Series(targets, dtype=pl.Int64)))
    empty = dict.fromkeys(AMOUNTS, 0) | {"basis": BASES[0]}  # of what passes on its work and calls nothing
    nothing = pl.col("target").is_null()
    found = pl.DataFrame({"wanted": pl.Series(wanted, dtype=pl.Int64)}).join(
        sums.with_columns(wanted="target"), on="wanted", how="left", maintain_order="left"
    )
    filled = [pl.when(nothing).then(pl.lit(value)).otherwise(name).alias(name) for name, value in empty.items()]
    return found.with_columns(filled).select(list(COSTS)).cast(dict(COSTS))  # type: ignore[arg-type]


def _passes(name: str) -> bool:
    """Return whether an operator does nothing by itself."""
    return arranges(name) or is_free(name)


def _sum_by_target(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of costs by `target`; a sum is null if any of its parts is, and so is a type of several."""
    sums = [pl.when(pl.col(amount).is_not_null().all()).then(pl.col(amount).sum()).alias(amount) for amount in AMOUNTS]
    types = pl.col("product_dtype").drop_nulls().unique()
    one = pl.when(types.len() == 1).then(types.first()).alias("product_dtype")
    basis = pl.when(pl.col("basis").is_not_null().all()).then(pl.col("basis").max()).alias("basis")
    return rows.group_by("target", maintain_order=True).agg(*sums, one, basis)
