"""Kernels compute in float64 on a device that does so at a small fraction of its rate of float32.

The names of kernels state the type: that of products, or of templates (`StencilKernel<double>`). Where the same kernel
runs in float too, the two are compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.products import find_rates
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import describe_kernels, is_enough, name_whole, share_of_kernels
from deepprof.metrics.kernels.loop_work import LoopWork

SLOW_RATE = 0.1  # of float32's rate: cards for desktops and for inference have 1/24 to 1/64, those for science a half
LEAST = 0.08  # of the kernels' time
CERTAINTY = 0.8  # it may be wanted
MUCH_LONGER = 2.5  # times its twin in float: memory alone explains two
DOUBLE = r"\bdouble[24]?\b"
# Index arithmetic and accumulators of integers and float, or the types that a template is able to take.
OTHER = r"(?i)<float[^<>]*double|acc_type"
FLOAT = "Compute in float32: look for float64 arrays of NumPy, Python floats in new tensors, and default types."
FLOAT_IN = {
    "pytorch": "tensor.float() at the input; torch.set_default_dtype(torch.float32); torch.from_numpy(a.astype('f4')).",
    "jax": "Leave jax_enable_x64 off, or give dtype=jnp.float32.",
    "tensorflow": "tf.keras.backend.set_floatx('float32'), and tf.cast at the input.",
}


@rule("double-precision", subject="work")
def double_precision(seen: LoopWork) -> Iterator[Finding]:
    """Yield `double-precision` where float64 takes much of the time of a device that is slow at it."""
    if not is_enough(seen):
        return
    kernels = _measure_double(seen)
    rates = find_rates(seen)
    ratio = None if rates is None else rates.double_times
    is_slow = ratio is not None and ratio <= SLOW_RATE
    chosen = kernels if is_slow else kernels.filter(pl.col("twin_times") >= MUCH_LONGER)
    if share_of_kernels(seen, float(chosen["time_ns"].sum())) >= LEAST:
        device = rates.device if rates is not None and rates.is_recorded else None
        yield _conclude(seen, chosen, device, ratio if is_slow else None)


def _measure_double(seen: LoopWork) -> pl.DataFrame:
    """Return the kernels in float64, with `twin_times`: how much longer than the same one in float, null without it."""
    name = pl.col("name")
    rows = seen.work.kernels.with_columns(as_float=name.str.replace_all(DOUBLE, "float"))
    double = (pl.col("precision") == "fp64") | (
        pl.col("precision").is_null() & name.str.contains(DOUBLE) & ~name.str.contains(OTHER)
    )
    twins = seen.work.kernels.select(as_float="name", twin_ns="mean_ns").unique("as_float")
    found = rows.filter(double.fill_null(value=False) & (pl.col("category") != "communication"))
    joined = found.join(twins, on="as_float", how="left", maintain_order="left")
    other = pl.when(pl.col("as_float") != name).then("twin_ns")
    return joined.with_columns(twin_times=pl.col("mean_ns") / other)


def _conclude(seen: LoopWork, kernels: pl.DataFrame, device: str | None, ratio: float | None) -> Finding:
    """Return the finding; `ratio` is the rate of float64 over that of float32."""
    fraction = 1.0 if ratio is None else 1 - ratio
    by_twin = 1 - 1 / pl.col("twin_times").clip(1.0)
    saved_ns = float(kernels.select((pl.col("time_ns") * by_twin.fill_null(fraction)).sum()).item())
    claim = WorkClaim(rule="double-precision", seen=seen, kernels=kernels, saved_ns=saved_ns, certainty=CERTAINTY)
    rate = (
        "" if ratio is None else f", which {device or 'the device'} computes at 1/{1 / ratio:.0f} of its float32 rate"
    )
    twin = kernels.drop_nulls("twin_times").sort("time_ns", descending=True)
    longer = None if twin.is_empty() else round(float(twin["twin_times"][0]), 2)
    compared = "" if longer is None else f" A launch takes {longer:.1f} times as long as the same kernel in float."
    texts = FindingTexts(
        title=f"{format_percent(claim.work_share)} of the computing time is float64{rate}",
        summary=(
            f"{describe_kernels(seen, kernels)}.{compared} At most {format_ms(saved_ns)} of {name_whole(seen)} "
            f"({format_percent(seen.share(saved_ns))}) could be saved in float32, if the rate of arithmetic limits "
            "these kernels. float32 has 7 digits instead of 16: compare results before and after."
        ),
        advice=advise(seen.trace, FLOAT, **FLOAT_IN),
    )
    evidence = {
        "double_rate_ratio": None if ratio is None else round(ratio, 4),
        "times_of_float_twin": longer,
        "device": device,
    }
    return claim.conclude(texts, evidence)
