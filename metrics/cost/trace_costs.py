"""What the operators of a trace cost, and which of them each kernel worked for.

A kernel belongs to the innermost operator around its launch whose cost is known, else to the innermost one. On a
machine without a device the operators are the kernels (CPU fallback); one that only calls others costs what these do.
What a profiler estimates itself (`flops` of the host events) is not used.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import OPERANDS, Trace
from deepprof.metrics.contexts.launches import find_sites
from deepprof.metrics.contexts.slices import HostSlices, read_slices
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.cost.alike_kernels import find_alike
from deepprof.metrics.cost.call_links import add_up_calls, find_around, find_counted_inside, read_operands
from deepprof.metrics.cost.signatures import (
    COSTS,
    LISTS,
    SIGNATURE,
    CostRow,
    evaluate,
    find_element_type,
    number_signatures,
)
from deepprof.metrics.names import are_named
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.streams import COLLECTIVE

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

I64, TEXT = pl.Int64(), pl.String()
OPERATOR_CALLS = TableSchema.of(
    "One call of an operator that launched kernels.",
    {
        "host_event": (
            pl.UInt32(),
            "its row of the host events; null: not recorded, like calls that are",
        ),
        "operator": (TEXT, "its name"),
        "dims": (TEXT, OPERANDS.meanings["dims"]),
        "dtypes": (TEXT, OPERANDS.meanings["dtypes"]),
        "values": (TEXT, OPERANDS.meanings["values"]),
        "strides": (TEXT, OPERANDS.meanings["strides"]),
        "flops": (I64, "its floating-point operations; null: unknown"),
        "nbytes": (I64, "the bytes that it must move; null: unknown"),
        "product_flops": (I64, "those of its operations that are of matrix products, convolutions and attention"),
        "product_dtype": (TEXT, "the type of the operands of these; null: none, several or unknown"),
        "basis": (TEXT, "what its cost is reckoned by: a `rule`, or the `source operators` of a compiled kernel"),
        "kernels": (I64, "how many kernels it launched"),
        "device_ns": (I64, "their lengths, added up"),
    },
)


class TraceCosts(Struct, frozen=True, eq=False):
    """The `calls` of operators that launched kernels, with the schema `OPERATOR_CALLS`, in the order of their kernels.

    `of_events` is the row of `calls` for every device event, -1 for those that are no kernels or belong to no operator.
    """

    calls: pl.DataFrame
    of_events: Int64s


def find_costs(trace: Trace, recorded: Trace | None = None, tree: ContextTree | None = None) -> TraceCosts:
    """Return what the operators of a trace cost.

    `recorded` is the trace as it was read, if operators were made its kernels since (CPU fallback); `host_event` is
    then a row of it. `tree` are its calling contexts, where available already. Without shapes in the recording,
    or read without them, every cost is null.
    """
    known = recorded if recorded is not None and is_stand_in(trace) else trace
    slices = read_slices(known) if tree is None else tree.slices
    sites = find_sites(trace, slices) if tree is None else tree.sites
    operands = read_operands(known, slices)
    kernels, evaluated = _list_kernels(trace, sites.row), dict[tuple[str | None, ...], CostRow]()
    operands, costs = _evaluate_slices(operands, evaluated)
    if sites.is_slice:
        placed = kernels.with_columns(slice=pl.when(pl.col("site") >= 0).then("site"))
        calls = _gather_calls(placed, operands)
        summed = add_up_calls(slices, operands["operator"], costs, calls["slice"].to_numpy())
        return _assemble(trace, slices, placed, calls.hstack(summed))
    site = kernels["site"].to_numpy()
    counted = find_counted_inside(slices, operands["operator"], costs, site)
    placed = kernels.with_columns(
        slice=_choose_slices(slices, costs["basis"].is_not_null().to_numpy() & ~counted, site)
    )
    calls, distinct = _evaluate_calls(_gather_calls(placed, operands), trace.names, evaluated)
    calls = _forget_costs(calls, counted)
    alike = _find_alike_calls(trace, placed, calls, distinct)
    return _assemble(trace, slices, *_append_alike(placed, calls, alike))


def _list_kernels(trace: Trace, site: Int64s) -> pl.DataFrame:
    """Return `event`, `name_id`, `length_ns` and `site`, the slice that launched it or -1, of the kernels in order."""
    rows = trace.device_events.with_row_index("event").with_columns(site=pl.Series(site, dtype=I64))
    rows = rows.filter(pl.col("activity") == "kernel")
    return rows.select("event", "name_id", "site", length_ns=pl.col("end_ns") - pl.col("start_ns"))


def _evaluate_slices(
    operands: pl.DataFrame, evaluated: dict[tuple[str | None, ...], CostRow]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the operands with `alike`, equal for calls with equal operands, and `COSTS` of every slice.

    A call without shapes has no cost, and the same `alike` as all others without.
    """
    shaped = operands["dims"].is_not_null()
    numbers, distinct = number_signatures(operands.filter(shaped))
    places = np.full(operands.height, distinct.height, np.uint32)
    places[shaped.to_numpy()] = numbers.to_numpy()
    costs = evaluate(distinct, evaluated)
    return operands.with_columns(alike=pl.Series(places)), pl.concat([costs, costs.clear(1)])[places]


def _choose_slices(slices: HostSlices, has_cost: Bools, site: Int64s) -> pl.Series:
    """Return for every kernel the slice of its operator, null for none; `has_cost` states which slices' cost counts."""
    best = find_around(slices, has_cost, site)
    rest = np.flatnonzero(best < 0)
    best[rest] = find_around(slices, (slices.rows["kind"] == "operator").to_numpy(), site[rest])
    return pl.Series(best, dtype=I64).replace(-1, None)


def _gather_calls(placed: pl.DataFrame, operands: pl.DataFrame) -> pl.DataFrame:
    """Return a row for every slice with kernels: `SIGNATURE`, `slice`, `first` (kernel) and its `name_id`, sums."""
    groups = placed.drop_nulls("slice").group_by("slice", maintain_order=True)
    first = [pl.col("event").first().alias("first"), pl.col("name_id").first()]
    calls = groups.agg(*first, kernels=pl.len().cast(I64), device_ns=pl.col("length_ns").sum())
    return calls.hstack(operands[calls["slice"]])


def _evaluate_calls(
    calls: pl.DataFrame, names: pl.Series, evaluated: dict[tuple[str | None, ...], CostRow]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the calls with `signature` and their costs, and the distinct signatures with their costs.

    The type of the elements of lists of tensors is the one that the name of the first kernel states.
    """
    listed = calls["dtypes"].str.contains(LISTS).fill_null(value=False)
    ids = calls["name_id"].filter(listed).unique()
    elements = {number: find_element_type(names[number]) for number in ids}
    element = pl.col("name_id").replace_strict(elements, default=None, return_dtype=pl.String)
    typed = calls.with_columns(element=pl.when(pl.Series(listed)).then(element if elements else None).cast(pl.String))
    numbers, _ = number_signatures(typed.select("alike", "operator", "element"))  # not the long texts once more
    first = np.unique(numbers.to_numpy(), return_index=True)[1]
    distinct = typed.select(*SIGNATURE, "element")[first]
    distinct = distinct.hstack(evaluate(distinct, evaluated))
    costs = distinct.select(list(COSTS))[numbers]
    return calls.drop("alike").with_columns(signature=numbers).hstack(costs), distinct


def _forget_costs(calls: pl.DataFrame, counted: Bools) -> pl.DataFrame:
    """Return the calls, those of slices that are `counted` elsewhere without a cost and a signature."""
    is_again = pl.Series(counted[calls["slice"].to_numpy()], dtype=pl.Boolean)
    return calls.with_columns(pl.when(~is_again).then(name).alias(name) for name in ("signature", *COSTS))


def _find_alike_calls(
    trace: Trace, placed: pl.DataFrame, calls: pl.DataFrame, distinct: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the kernels without a launch that are like those of calls, with `alike`, and the calls of that number."""
    if not (placed["slice"].is_null() & (placed["site"] < 0)).any():
        return pl.DataFrame(schema={"event": pl.UInt32, "alike": I64}), calls.clear().with_columns(alike=pl.lit(0, I64))
    launched = placed.join(calls.select("slice", "signature"), on="slice", how="left", maintain_order="left")
    alone = pl.when(pl.col("site") >= 0).then(-1 - pl.col("event").cast(I64))  # launched by no operator
    kernels = launched.select("event", "signature", "length_ns", "name_id", call=pl.coalesce("slice", alone))
    found = find_alike(trace, kernels.drop("name_id")).drop_nulls("signature")
    found = found.join(placed.select("event", "length_ns", "name_id"), on="event", how="left", maintain_order="left")
    found = found.filter(~_are_collectives(trace, found))  # whose sizes neither name nor grid shows
    groups = found.sort("event").group_by("alike", maintain_order=True)
    first = [pl.col("event").first().alias("first"), pl.col("name_id", "signature").first()]
    alike = groups.agg(*first, kernels=pl.len().cast(I64), device_ns=pl.col("length_ns").sum())
    return found.select("event", "alike"), alike.hstack(distinct[alike["signature"].cast(pl.UInt32)].drop("element"))


def _append_alike(
    placed: pl.DataFrame, calls: pl.DataFrame, alike: tuple[pl.DataFrame, pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the kernels and the calls with those that are alike, whose `slice` is a negative number."""
    of_kernels, more = alike
    if more.is_empty():
        return placed, calls
    negative = -1 - pl.col("alike")
    places = of_kernels.select("event", found=negative)
    joined = placed.join(places, on="event", how="left", maintain_order="left")
    joined = joined.with_columns(slice=pl.coalesce("slice", "found"))
    return joined, pl.concat([calls, more.with_columns(slice=negative).select(calls.columns)])


def _assemble(trace: Trace, slices: HostSlices, placed: pl.DataFrame, calls: pl.DataFrame) -> TraceCosts:
    """Return the costs of `calls`, whose `slice` states which of the `placed` kernels are theirs."""
    ordered = calls.sort("first").with_row_index("call")
    event = slices.rows["event"].gather(ordered["slice"].clip(lower_bound=0)) if len(slices.rows) else None
    recorded = pl.when(pl.col("slice") >= 0).then(event) if event is not None else pl.lit(None)
    table = ordered.with_columns(host_event=recorded).select(list(OPERATOR_CALLS)).cast(dict(OPERATOR_CALLS))  # type: ignore[arg-type]
    joined = placed.join(ordered.select("slice", "call"), on="slice", how="left", maintain_order="left")
    of_events = np.full(trace.device_events.height, -1, np.int64)
    of_events[joined["event"].to_numpy()] = joined["call"].cast(I64).fill_null(-1).to_numpy()
    return TraceCosts(table, of_events)


def _are_collectives(trace: Trace, kernels: pl.DataFrame) -> pl.Series:
    return pl.Series(are_named(trace.names, kernels["name_id"], COLLECTIVE), dtype=pl.Boolean)
