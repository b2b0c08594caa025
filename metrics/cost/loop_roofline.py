"""The roofline of a loop: what the kernels of its usual iterations need, and what the device's peaks would allow.

A call of an operator belongs to the iteration in which its first kernel begins, with all its kernels on the loop's
device. The lengths of kernels are added up, also where kernels of several streams overlap. Collectives are left out.

MFU and HFU count products only: matrix products, convolutions and attention, a multiplication and its addition as two
operations, attention with a causal mask half. Both are the time that these operations would take at the device's dense
peak of the type in which each is done (TF32 where the kernel uses it), over the time of the iteration from its start to
the next one's. With one type that is operations / (time × peak). HFU (hardware FLOP utilisation) counts all that ran;
MFU (model FLOP utilisation) leaves out what activation checkpointing runs again (`recomputation`). Both are None, never
0, where the cost of more than a tenth of the time of products is unknown, or the peak of one of their types.

More than 100 % of a roof shows that the roof does not hold for a call: `above_roof` has the reason.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.device_segments import find_window
from deepprof.metrics.annotation.layers import TraceLayers
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.cost.loop_device import describe_device
from deepprof.metrics.cost.recomputation import mark_recomputed
from deepprof.metrics.cost.roofline_tables import CALL_GROUPS, PRODUCTS, USED_IN_ITERATIONS, LoopRoofline
from deepprof.metrics.cost.roofs import DevicePeaks, add_roofs
from deepprof.metrics.cost.trace_costs import TraceCosts
from deepprof.metrics.kernels.kinds import PRODUCTS as PRODUCT_CATEGORIES
from deepprof.metrics.kernels.kinds import RATE_TYPES, Precision
from deepprof.metrics.kernels.name_kinds import classify_names
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import are_named
from deepprof.metrics.streams import COLLECTIVE

Bools = npt.NDArray[np.bool_]

ENOUGH = 0.9  # of the time of products: with less their cost states little about the iteration
# A kernel of unknown cost may be a product if it is of one of these kinds.
POSSIBLE_PRODUCTS = (*PRODUCT_CATEGORIES, "custom", "unknown")
SAME = ("operator", "dims", "dtypes", "layer", "recomputed", "product_dtype")  # what the calls of a group share
AMOUNTS = ("flops", "nbytes", "product_flops")
ROOFS = (
    *("intensity", "attainable_flops_per_s", "achieved_flops_per_s", "achieved_nbytes_per_s"),
    *("ideal_ns", "bound", "roof_ratio"),
)
TOO_LITTLE = "the cost of {missing:.0f} % of the time of products is not known"
NO_PRODUCTS = "no matrix product, convolution or attention is known"
NOT_LINKED = "operators run again in the backward pass, and the launches of many products were not recorded"
NO_DEVICE = "the recording does not name the device"
NO_PEAKS = "the peaks of {device} are not known"
NO_TYPE = "the peak of {device} in {dtype} is not known"

CACHED = "the operands came from a cache, or fewer bytes were moved than the shapes state"
FITTING = "the operands of a call fit in the device's cache of {size:.0f} MiB"
MISJUDGED = "the peak or the type of the arithmetic is wrong, or less was computed than the shapes state"
MIB = 1024**2

# What libraries round float32 operands to. Products of several smaller ones that are as exact as float32 count as it.
ROUNDED: tuple[Precision, ...] = ("tf32", "bf16", "fp16")


class WorkSources(Struct, frozen=True):
    """What a trace says of its device events: the cost of their calls, and their contexts and layers, where known."""

    costs: TraceCosts
    tree: ContextTree | None
    layers: TraceLayers | None


def measure_roofline(trace: Trace, loop: Loop, known: WorkSources, peaks: DevicePeaks | None) -> LoopRoofline | None:
    """Return the roofline of a loop's usual iterations; None where no kernel runs in them.

    Iterations whose operators the recording lacks, as it may of the first one, are left out.
    """
    found, untold = _list_calls(trace, loop, known)
    if found.is_empty():
        return None
    usual, calls = _keep_recorded(loop.usual.select("index", "iteration_ns"), found)
    device = describe_device(trace, loop.device)
    measured = LoopRoofline(
        device=None if device is None else device["name"],
        peaks=None,
        groups=_group_calls(calls, trace.names, usual.height),
        products=_count_products(calls),
        iterations=usual.join(_cover_products(calls), on="index", how="left", maintain_order="left"),
        coverage_ratio=_share(calls, pl.col("flops").is_not_null() & pl.col("nbytes").is_not_null()),
        product_coverage_ratio=_cover_products(calls.with_columns(index=0)).row(0, named=True)[
            "product_coverage_ratio"
        ],
        untold=untold or _doubt_recomputation(calls),
    )
    return rate_roofline(measured, peaks)


def rate_roofline(measured: LoopRoofline, peaks: DevicePeaks | None) -> LoopRoofline:
    """Return the same work next to other peaks, None: unknown ones."""
    no_hfu = _explain_unknown(measured, peaks)
    no_mfu = no_hfu or measured.untold
    used = _use_peaks(measured, peaks if no_hfu is None else None, is_told=no_mfu is None)
    times = pl.col("iteration_ns", "ideal_ns", "model_ns", "fastest_ns").sum()
    whole, ideal, model, least = used.filter(pl.col("hfu_ratio").is_not_null()).select(times).row(0)
    fastest = None if no_mfu or peaks is None else peaks.find_fastest_type()
    return replace(
        measured,
        peaks=peaks,
        groups=_add_headroom(measured.groups, peaks),
        iterations=used.select(list(USED_IN_ITERATIONS)).cast(dict(USED_IN_ITERATIONS)),  # type: ignore[arg-type]
        mfu_ratio=None if no_mfu else model / whole,
        hfu_ratio=None if no_hfu else ideal / whole,
        mfu_fastest_ratio=None if fastest is None else least / whole,
        fastest_dtype=fastest,
        why_no_mfu=no_mfu,
        why_no_hfu=no_hfu,
    )


def _list_calls(trace: Trace, loop: Loop, known: WorkSources) -> tuple[pl.DataFrame, str | None]:
    """Return the calls in usual iterations, and why it is unknown which of them run again, if so.

    A row has the `index` of the iteration, `kernels`, `device_ns` and `kernel`, the name of the longest; whether it is
    `recomputed`, its `layer`, whether it may be a product (`may_be_product`), and the cost of the call. A kernel of no
    call has its own row, where `call` is negative.
    """
    calls, untold = _add_up_kernels(trace, loop, known)
    usual, layers = loop.usual, known.layers
    begin = usual["start_ns"].to_numpy()
    at = find_window(begin, begin + usual["iteration_ns"].to_numpy(), calls["start_ns"].to_numpy())
    paths = pl.Series([None, *([] if layers is None else layers.write_paths()[1:])], dtype=pl.String)
    kinds = classify_names(trace.names.gather(calls["kernel"]))
    placed = calls.with_columns(
        index=usual["index"].gather(pl.Series(at).replace(-1, None)),
        layer=paths.gather(calls["layer"]),
        may_be_product=kinds["category"].is_in(POSSIBLE_PRODUCTS),
    ).drop_nulls("index")
    columns = ("host_event", "operator", "dims", "dtypes", *AMOUNTS, "product_dtype")
    costs = known.costs.calls.select(columns).with_row_index("call")
    rows = placed.join(costs.cast({"call": pl.Int64}), on="call", how="left", maintain_order="left")
    return _find_types(rows, trace.names), untold


def _find_types(calls: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Return the calls with the type in which their longest kernel multiplies, as far as its name states it."""
    kinds = calls.select("product_dtype", "kernel").unique(maintain_order=True)
    known = kinds.with_columns(used=find_product_dtypes(kinds["product_dtype"], names.gather(kinds["kernel"])))
    rows = calls.join(known, on=kinds.columns, how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(product_dtype="used")


def _add_up_kernels(trace: Trace, loop: Loop, known: WorkSources) -> tuple[pl.DataFrame, str | None]:
    """Return a row for every call with kernels on the loop's device, and why it is unknown which run again, if so."""
    events = trace.device_events
    nothing = np.zeros(events.height, np.bool_), None
    again, untold = nothing if known.tree is None else mark_recomputed(trace, known.tree)
    layer = np.zeros(events.height, np.int64) if known.layers is None else known.layers.of_events
    collective = are_named(trace.names, events["name_id"], COLLECTIVE)
    call = np.where(known.costs.of_events < 0, -1 - np.arange(events.height), known.costs.of_events)
    rows = events.with_columns(call=pl.Series(call), recomputed=pl.Series(again), layer=pl.Series(layer))
    kernels = pl.col("activity").is_in(["kernel", "graph"]) & (pl.col("device") == loop.device)
    work = rows.filter(kernels & ~pl.Series(collective)).with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    longest = pl.col("name_id").get(pl.col("ns").arg_max())
    first = pl.col("start_ns", "recomputed", "layer").first()
    sums = work.group_by("call", maintain_order=True).agg(
        first, kernel=longest, kernels=pl.len(), device_ns=pl.col("ns").sum()
    )
    return sums, untold


def _keep_recorded(usual: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the iterations, and their calls, with about as much of the time in recorded calls as any has."""
    recorded = pl.when(pl.col("host_event").is_not_null()).then("device_ns").otherwise(0)
    share = calls.group_by("index").agg(share=recorded.sum() / pl.col("device_ns").sum())
    kept = share.filter(pl.col("share") >= ENOUGH * pl.col("share").max())["index"].implode()
    return usual.filter(pl.col("index").is_in(kept)), calls.filter(pl.col("index").is_in(kept))


def _doubt_recomputation(calls: pl.DataFrame) -> str | None:
    """Return why it is unknown which calls run again where some do: too many launches were not recorded."""
    products = calls.filter(pl.col("product_flops") > 0)
    told = _share(products, pl.col("host_event").is_not_null())
    return NOT_LINKED if products["recomputed"].any() and told is not None and told < ENOUGH else None


def _group_calls(calls: pl.DataFrame, names: pl.Series, iterations: int) -> pl.DataFrame:
    """Return the groups of calls, means over this many iterations, without what depends on the device's peaks."""
    known = (pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name) for name in AMOUNTS)
    nameless = pl.when(pl.col("call") < 0).then("kernel")  # kernels of no call are distinguished by their names
    groups = calls.group_by(*SAME, nameless=nameless, maintain_order=True).agg(
        pl.col("kernel").get(pl.col("device_ns").arg_max()),
        pl.col("kernels", "device_ns").sum(),
        *known,
        calls=pl.len(),
    )
    means = groups.with_columns(pl.col("calls", "kernels", "device_ns", *AMOUNTS) / iterations)
    named = means.with_columns(kernel=names.gather(means["kernel"]))
    return named.sort("device_ns", descending=True, maintain_order=True)


def _add_headroom(groups: pl.DataFrame, peaks: DevicePeaks | None) -> pl.DataFrame:
    """Return groups with the columns of `CALL_GROUPS` that depend on peaks, null where these are unknown."""
    bare = groups.select(pl.exclude(*ROOFS, "headroom_ns", "above_roof"))
    each = bare.with_columns(pl.col("device_ns", "kernels", *AMOUNTS) / pl.col("calls"))
    rated = add_roofs(each, peaks).select(*ROOFS, _explain_above(peaks))
    table = bare.hstack(rated).with_columns(pl.col("ideal_ns") * pl.col("calls"))
    least = 0 if peaks is None else peaks.shortest_kernel_ns
    shortest = pl.max_horizontal("ideal_ns", pl.col("calls") * least)  # each call has one kernel at least
    headroom = pl.when(pl.col("ideal_ns").is_not_null()).then((pl.col("device_ns") - shortest).clip(lower_bound=0))
    return table.with_columns(headroom_ns=headroom).select(list(CALL_GROUPS)).cast(dict(CALL_GROUPS))  # type: ignore[arg-type]


def _count_products(calls: pl.DataFrame) -> pl.DataFrame:
    """Return what products of every type each iteration has, with the schema `PRODUCTS`."""
    again = pl.when("recomputed").then("product_flops").otherwise(0)
    rows = calls.filter(pl.col("product_flops") > 0).group_by("index", "product_dtype")
    table = rows.agg(pl.col("product_flops").sum(), recomputed_flops=again.sum()).sort("index", "product_dtype")
    return table.select(list(PRODUCTS)).cast(dict(PRODUCTS))  # type: ignore[arg-type]


def _share(calls: pl.DataFrame, known: pl.Expr) -> float | None:
    """Return the share of the calls' time for which `known` is true, None where they use none."""
    whole = int(calls["device_ns"].sum())
    return int(calls.filter(known)["device_ns"].sum()) / whole if whole else None


def _cover_products(calls: pl.DataFrame) -> pl.DataFrame:
    """Return by `index` the share of the time of products, or of what may be some, whose operations are known.

    It is null where no product is known, and 0 where all time that may be theirs is unknown.
    """
    product = pl.col("product_flops") > 0
    unknown = pl.col("product_flops").is_null() & pl.col("may_be_product")
    known_ns, unknown_ns = (pl.col("device_ns").filter(each).sum() for each in (product, unknown))
    return calls.group_by("index").agg(product_coverage_ratio=known_ns / (known_ns + unknown_ns)).fill_nan(None)


def _explain_unknown(measured: LoopRoofline, peaks: DevicePeaks | None) -> str | None:
    """Return why the utilisation is unknown, None where it is."""
    covered = measured.product_coverage_ratio
    if covered is None:
        return NO_PRODUCTS
    if covered < ENOUGH:
        return TOO_LITTLE.format(missing=100 * (1 - covered))
    if peaks is None:
        return NO_DEVICE if measured.device is None else NO_PEAKS.format(device=measured.device)
    types = measured.products["product_dtype"].unique().sort()
    missing = [each for each in types if peaks.find_product_rate(each) is None]
    return NO_TYPE.format(device=peaks.name, dtype=missing[0] or "an unknown type") if missing else None


def _use_peaks(measured: LoopRoofline, peaks: DevicePeaks | None, *, is_told: bool) -> pl.DataFrame:
    """Return the iterations with the columns of `USED_IN_ITERATIONS`, and the times at the peaks.

    `ideal_ns` is that of all products, `model_ns` that of those which do not run again, `fastest_ns` that of the same
    at the rate of the fastest type, where that is not less than their own.
    """
    types = measured.products["product_dtype"]
    rates = [None if peaks is None else peaks.find_product_rate(each) for each in types]
    ideal, again = (1e9 * pl.col(name) / pl.col("rate") for name in ("product_flops", "recomputed_flops"))
    fastest = pl.max_horizontal("rate", pl.lit(_find_fastest_rate(peaks), pl.Float64))
    products = measured.products.with_columns(rate=pl.Series(rates, dtype=pl.Float64)).group_by("index")
    sums = products.agg(
        pl.col("product_flops").sum(),
        ideal_ns=ideal.sum(),
        model_ns=(ideal - again).sum(),
        fastest_ns=((ideal - again) * (pl.col("rate") / fastest)).sum(),
    )
    rows = measured.iterations.select("index", "iteration_ns", "product_coverage_ratio")
    used = rows.join(sums, on="index", how="left", maintain_order="left")
    known = pl.lit(peaks is not None) & (pl.col("product_coverage_ratio") >= ENOUGH)
    return used.with_columns(
        mfu_ratio=pl.when(known & is_told).then(pl.col("model_ns") / pl.col("iteration_ns")),
        hfu_ratio=pl.when(known).then(pl.col("ideal_ns") / pl.col("iteration_ns")),
    )


def _find_fastest_rate(peaks: DevicePeaks | None) -> float | None:
    """Return the rate of products in the fastest type that models are trained in; None where none is available."""
    fastest = None if peaks is None else peaks.find_fastest_type()
    return None if peaks is None or fastest is None else peaks.matrix_flops_per_s[fastest]


def _explain_above(peaks: DevicePeaks | None) -> pl.Expr:
    """Return why a row is above its roof, null where it is not.

    The rows are single calls, with `nbytes` and what `roofs.add_roofs` adds. One tensor that is an operand twice is
    counted twice: recorded shapes do not state which operands are the same memory.
    """
    size = None if peaks is None else peaks.cache_nbytes
    fitting = pl.lit(None, pl.String) if size is None else pl.lit(FITTING.format(size=size / MIB))
    fits = pl.col("nbytes") <= (-1 if size is None else size)
    why = pl.when(pl.col("compute_ns") >= pl.col("memory_ns")).then(pl.lit(MISJUDGED)).when(fits).then(fitting)
    return pl.when(pl.col("roof_ratio") > 1).then(why.otherwise(pl.lit(CACHED))).alias("above_roof")


def find_product_dtypes(dtypes: pl.Series, kernels: pl.Series) -> pl.Series:
    """Return the types whose rates count for products of operands of `dtypes` in kernels of these names.

    Float32 products count as `tf32` (or as a type of 16 bits) only where the name of the kernel shows that it rounds:
    whether a program allows it is not recorded. Every other type is returned as it is.
    """
    rates = {each: RATE_TYPES[each] for each in ROUNDED}
    rounded = pl.col("precision").cast(pl.String).replace_strict(rates, default=None)
    used = pl.when(pl.col("dtype") == "float32").then(pl.coalesce(rounded, "dtype")).otherwise("dtype")
    found = classify_names(kernels).select("precision").with_columns(dtypes.alias("dtype"))
    return found.select(used.alias("dtype")).to_series()
