"""Kernels compute in float64 on a device that does so at a small fraction of its rate of float32.

The names of kernels state the type: that of products, or of templates (`StencilKernel<double>`). Where the same kernel
runs in float too, the two are compared. On a processor, where operators take the place of kernels, recorded types do.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.products import find_rates, keep_kernels
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import describe_kernels, is_enough, name_whole, share_of_kernels
from deepprof.metrics.cost.product_rates import ProductRates
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.operators import is_stand_in

SLOW_RATE = 0.1  # of float32's rate: cards for desktops and for inference have 1/24 to 1/64, those for science a half
LEAST = 0.08  # of the kernels' time
CERTAINTY = 0.8  # it may be wanted
MUCH_LONGER = 2.5  # times its twin in float: memory alone explains two
# On a processor registers hold half as many elements, and memory moves half as many; float32 may fit a nearer cache.
SAVED_ON_PROCESSOR = 0.6
DOUBLE = r"\bdouble[24]?\b"
OTHER = r"(?i)<float[^<>]*double|acc_type"  # float data with sums or scalars in double
FLOAT = "Compute in float32: look for float64 arrays of NumPy, Python floats in new tensors, and default types."
FLOAT_IN = {
    "pytorch": "tensor.float() at the input; torch.set_default_dtype(torch.float32); torch.from_numpy(a.astype('f4')).",
    "jax": "Leave jax_enable_x64 off, or give dtype=jnp.float32.",
    "tensorflow": "tf.keras.backend.set_floatx('float32'), and tf.cast at the input.",
}


@rule("double-precision", subject="work")
def double_precision(seen: LoopWork) -> Iterator[Finding]:
    """Yield `double-precision` where float64 uses much of the time of a device that is slow at it."""
    if not is_enough(seen):
        return
    rates = find_rates(seen)
    kernels = _list_operators(seen) if is_stand_in(seen.trace) else _list_kernels(seen, rates)
    if share_of_kernels(seen, float(kernels["time_ns"].sum())) >= LEAST:
        yield _conclude(seen, kernels, rates)


def _list_operators(seen: LoopWork) -> pl.DataFrame:
    """Return the operators of a processor that take float64, with the columns of `_list_kernels`."""
    groups = None if seen.loop.roofline is None else seen.loop.roofline.groups
    if groups is None:
        return seen.work.kernels.clear()
    double = (pl.col("product_dtype") == "float64") | pl.col("dtypes").str.starts_with('["double"')
    found = keep_kernels(seen, groups.filter(double.fill_null(value=False)))
    return found.with_columns(twin_times=pl.lit(None, pl.Float64), saved_ratio=pl.lit(SAVED_ON_PROCESSOR))


def _list_kernels(seen: LoopWork, rates: ProductRates | None) -> pl.DataFrame:
    """Return the kernels in float64 that are much slower than in float32.

    They have `twin_times`, how many times as long as the same one in float they need (null: it does not run), and
    `saved_ratio`, the share of their time that float32 would save at most.
    """
    ratio = None if rates is None else rates.double_times
    is_slow = ratio is not None and ratio <= SLOW_RATE
    found = _compare_with_float(seen).filter(pl.lit(is_slow) | (pl.col("twin_times") >= MUCH_LONGER))
    by_twin = 1 - 1 / pl.col("twin_times").clip(1.0)
    return found.with_columns(saved_ratio=by_twin.fill_null(1 - (ratio or 0.0)))


def _compare_with_float(seen: LoopWork) -> pl.DataFrame:
    """Return the kernels in float64, with `twin_times`."""
    name = pl.col("name")
    rows = seen.work.kernels.with_columns(as_float=name.str.replace_all(DOUBLE, "float"))
    named = pl.col("precision").is_null() & name.str.contains(DOUBLE) & ~name.str.contains(OTHER)
    double = (pl.col("precision") == "fp64") | named
    found = rows.filter(double.fill_null(value=False) & (pl.col("category") != "communication"))
    twins = seen.work.kernels.select(as_float="name", twin_ns="mean_ns").unique("as_float")
    joined = found.join(twins, on="as_float", how="left", maintain_order="left")
    twin_ns = pl.when(pl.col("as_float") != name).then("twin_ns")
    return joined.with_columns(twin_times=pl.col("mean_ns") / twin_ns)


def _conclude(seen: LoopWork, kernels: pl.DataFrame, rates: ProductRates | None) -> Finding:
    """Return the finding on the kernels of `_list_kernels`, or the operators."""
    saved_ns = float((kernels["time_ns"] * kernels["saved_ratio"]).sum())
    claim = WorkClaim(
        same_launches=True, rule="double-precision", seen=seen, kernels=kernels, saved_ns=saved_ns, certainty=CERTAINTY
    )
    ratio = None if rates is None else rates.double_times
    device = rates.device if rates is not None and rates.is_recorded else None
    rate = (
        "" if ratio is None else f", which {device or 'the device'} computes at 1/{1 / ratio:.0f} of its float32 rate"
    )
    twins = kernels.drop_nulls("twin_times").sort("time_ns", descending=True)
    longer = None if twins.is_empty() else round(float(twins["twin_times"][0]), 2)
    compared = "" if longer is None else f" A launch takes {longer:.1f} times as long as the same kernel in float."
    texts = FindingTexts(
        title=f"{format_percent(claim.work_share)} of the computing time is float64{rate}",
        summary=(
            f"{describe_kernels(seen, kernels)}.{compared} At most {format_ms(saved_ns)} of {name_whole(seen)} "
            f"({format_percent(seen.share(saved_ns))}) could be saved in float32, if the rate of arithmetic limits "
            "them. float32 has 7 digits instead of 16: compare results before and after."
        ),
        advice=advise(seen.trace, FLOAT, **FLOAT_IN),
    )
    evidence = {
        "double_rate_ratio": None if ratio is None else round(ratio, 4),
        "times_of_float_twin": longer,
        "device": device,
    }
    return claim.conclude(texts, evidence)
