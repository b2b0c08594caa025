"""Products are computed on units, or in a type although the device has much faster ones.

The names of kernels state type and unit, the device how fast others are; recorded shapes show which products memory
limits, that gain little. Products of a matrix and a vector, and sparse ones, are always limited by memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from msgspec import Struct

from deepprof.diagnosis.fallbacks import ANY
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.products import find_products, find_rates, keep_kernels
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import describe_kernels, is_enough, name_whole, share_of_kernels, weigh_names
from deepprof.metrics.cost.product_rates import ProductRates
from deepprof.metrics.cost.roofs import DevicePeaks, RateType, add_roofs
from deepprof.metrics.kernels.kinds import PRODUCTS
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.operators import is_stand_in

MUCH_FASTER = 1.5  # times: less is lost again in conversions
LEAST = 0.08  # of the kernels' time: what is smaller is no reason to change a model's types
LEAST_SAVED = 0.04  # of it: what memory limits gains little
CERTAINTY = 0.8  # it may be wanted
NOT_RECORDED = 0.5  # of the certainty, where the device is unknown
# Products of a vector or of few values: memory limits them in every type.
LIMITED_BY_MEMORY = r"(?i)gemv|csr|coo_|spmv|spmm|bsr|ellpack|sparse|dot_kernel|gemmk1|splitKreduce"
# Those by how they compute: products for few tokens read weights or a cache once for each, and a convolution of each
# channel by itself has no matrices.
LIMITED_ALGORITHMS = r"gemv|paged|weights of a few bits|outer product|depthwise"
EACH_CHANNEL = r"(?i)depthwise|conv2d_grouped_direct|[wd]grad2d_grouped_direct|_c1_k1_|wvSpl|LLMM1|LLGemm"
WORDS = {"tf32": "TF32", "bfloat16": "bfloat16", "float16": "float16"}
IN_TF32 = {
    "pytorch": (
        "Call torch.set_float32_matmul_precision('high') and set torch.backends.cudnn.allow_tf32 = True. "
        "torch.autocast('cuda', dtype=torch.bfloat16) is faster again{more}."
    ),
    "jax": "Set jax.default_matmul_precision('tensorfloat32'), or use arrays of bfloat16.",
    "tensorflow": (
        "Call tf.config.experimental.enable_tensor_float_32_execution(True), or use the policy mixed_bfloat16 of "
        "tf.keras.mixed_precision."
    ),
}
IN_HALF = {
    "pytorch": "Run forward pass and loss under torch.autocast('{where}', dtype=torch.{type}){scaler}.",
    "jax": "Use arrays of {type}, or a policy of jmp that computes in {type}.",
    "tensorflow": "Call tf.keras.mixed_precision.set_global_policy('mixed_{type}').",
}
ACCURACY = {
    "tf32": "TF32 rounds factors to 10 bits of mantissa and sums in float32",
    "bfloat16": "bfloat16 has 7 bits of mantissa and the range of float32",
    "float16": "float16 has 10 bits of mantissa and a small range, so that losses must be scaled",
}
AS_NEAR = "the products come as close to the higher peak"
AT_ROOF = "those that arithmetic limits reach the roof of their shapes"
ONLY_CONVOLUTIONS = (
    " TF32 is on for convolutions only: torch.backends.cuda.matmul.allow_tf32 is off, which is PyTorch's default, "
    "while that of cuDNN is on."
)
UNNAMED = (
    " The recording does not name the device. Kernels' names show {generation} or later: cards for data centres have "
    "about this ratio, those for desktops less."
)
LATER = " From Ampere on TF32 does it without scaling: torch.set_float32_matmul_precision('high')."
ALIGN = (
    "Make the sides of these products multiples of 8 elements, with rows that begin at multiples of 16 bytes: the "
    "library then takes kernels on matrix units."
)


class _SlowProducts(Struct, frozen=True, eq=False):
    """Products that a `faster` type, or unit, would speed up `times`-fold; `unit` are words for where they run now.

    `saved_ns` is a bound under a `condition`, in words.
    """

    kernels: pl.DataFrame
    what: str
    unit: str
    faster: RateType
    times: float
    saved_ns: float
    condition: str = AS_NEAR


@rule("wrong-precision", subject="work")
def wrong_precision(seen: LoopWork) -> Iterator[Finding]:
    """Yield `wrong-precision` where products in another type, or on other units, would be much faster."""
    rates = find_rates(seen) if is_enough(seen) else None
    if rates is None:
        return
    if is_stand_in(seen.trace):
        found = [*_list_operators(seen, rates)]
    else:
        found = [*_list_float32(seen, rates), *_list_half(seen, rates)]
    large = [each for each in found if _is_large(seen, each)]
    if large:
        yield _conclude(seen, rates, max(large, key=lambda each: each.saved_ns))


def _is_large(seen: LoopWork, slow: _SlowProducts) -> bool:
    """Return whether products take so long, and could save this much, that it is worth a word."""
    taken_ns = float(slow.kernels["time_ns"].sum())
    return share_of_kernels(seen, taken_ns) >= LEAST and share_of_kernels(seen, slow.saved_ns) >= LEAST_SAVED


def _list_float32(seen: LoopWork, rates: ProductRates) -> Iterator[_SlowProducts]:
    """Yield the products in float32, on ordinary units or, as AMD has them, on matrix units."""
    faster = find_faster_type(rates)
    units = {"simt": "ordinary units", "tensor_core": "matrix units"}
    for unit, words in units.items() if faster else ():
        own = 1.0 if unit == "simt" else rates.times.get("float32", 0.0)
        times = rates.times[faster] / own if own and faster else 0.0
        kernels = _keep_products(seen, "fp32", unit)
        if faster and times >= MUCH_FASTER and not kernels.is_empty():
            saved_ns = _add_up_saved(seen, kernels, faster, times)
            condition = AS_NEAR if find_products(seen) is None else AT_ROOF
            yield _SlowProducts(kernels, "float32 products", words, faster, times, saved_ns, condition)


def _list_half(seen: LoopWork, rates: ProductRates) -> Iterator[_SlowProducts]:
    """Yield the products of 16 bits that run on ordinary units next to matrix units for them."""
    for precision, faster in (("fp16", "float16"), ("bf16", "bfloat16")):
        times, kernels = rates.times.get(faster, 0.0), _keep_products(seen, precision, "simt")  # type: ignore[call-overload]
        if times >= MUCH_FASTER and not kernels.is_empty():
            saved_ns = float(kernels["time_ns"].sum()) * (1 - 1 / times)
            yield _SlowProducts(kernels, f"{faster} products", "ordinary units", faster, times, saved_ns)  # type: ignore[arg-type]


def find_faster_type(rates: ProductRates) -> RateType | None:
    """Return the type nearest to float32 in which the device's matrix units are much faster, None for none.

    On AMD's devices that have TF32 frameworks do not use it for float32 products unless an environment variable is set.
    """
    types: tuple[RateType, ...] = ("bfloat16", "float16") if rates.is_amd else ("tf32", "bfloat16", "float16")
    return next((name for name in types if rates.times.get(name, 0.0) >= MUCH_FASTER), None)


def _keep_products(seen: LoopWork, precision: str, unit: str) -> pl.DataFrame:
    """Return the kernels of products of a type on a unit, without fallbacks and what memory limits in any type."""
    products = pl.col("category").is_in(PRODUCTS) & (pl.col("precision") == precision) & (pl.col("unit") == unit)
    by_name = pl.col("name").str.contains(f"{LIMITED_BY_MEMORY}|{EACH_CHANNEL}|{ANY}")
    by_algorithm = pl.col("algorithm").str.contains(LIMITED_ALGORITHMS).fill_null(value=False)
    return seen.work.kernels.filter(products & ~by_name & ~by_algorithm)


def _list_operators(seen: LoopWork, rates: ProductRates) -> Iterator[_SlowProducts]:
    """Yield the products in float32 of a program on a processor, by the types of their operands."""
    faster, known = find_faster_type(rates), find_products(seen)
    if faster is None or known is None:
        return
    slow = known.table.filter(pl.col("product_dtype") == "float32")
    operators = keep_kernels(seen, slow)
    if not operators.is_empty():
        saved_ns = float(_measure_gains(slow, known.peaks, faster)["gain_ns"].sum())
        times = rates.times[faster]
        yield _SlowProducts(operators, "float32 products", "ordinary units", faster, times, saved_ns, AT_ROOF)


def _add_up_saved(seen: LoopWork, kernels: pl.DataFrame, faster: RateType, times: float) -> float:
    """Return what the faster type saves at most: by shapes where they were recorded, else by the ratio of rates."""
    share = 1 - 1 / times
    known = find_products(seen)
    if known is None:
        return share * float(kernels["time_ns"].sum())
    slow = known.table.filter(pl.col("product_dtype") == "float32")
    gains = (
        _measure_gains(slow, known.peaks, faster)
        .group_by("kernel")
        .agg(gain=pl.col("gain_ns").sum() / pl.col("device_ns").sum())
    )
    rows = kernels.join(gains, left_on="name", right_on="kernel", how="left", maintain_order="left")
    return float((rows["time_ns"] * rows["gain"].fill_null(share)).sum())


def _measure_gains(products: pl.DataFrame, peaks: DevicePeaks, faster: RateType) -> pl.DataFrame:
    """Return products in float32 with `gain_ns`, what each would save in a faster type at most.

    One that arithmetic limits may reach its roof, as kernels for matrix units come nearer to it than others; one that
    memory limits saves in proportion to its bytes.
    """
    size = 1.0 if faster == "tf32" else 0.5
    bare = products.drop("ideal_ns", "bound", "roof_ratio").with_columns(
        product_dtype=pl.lit(faster), nbytes=pl.col("nbytes") * size
    )
    rows = products.with_columns(faster_ns=add_roofs(bare, peaks)["ideal_ns"])
    limited = pl.col("device_ns") * (1 - pl.col("faster_ns") / pl.col("ideal_ns"))
    whole = pl.when(pl.col("bound") == "compute").then(pl.col("device_ns") - pl.col("faster_ns")).otherwise(limited)
    return rows.with_columns(gain_ns=pl.min_horizontal(whole, "device_ns").clip(0))


def _conclude(seen: LoopWork, rates: ProductRates, slow: _SlowProducts) -> Finding:
    certainty = CERTAINTY if rates.is_recorded else CERTAINTY * NOT_RECORDED
    claim = WorkClaim(
        same_launches=True,
        rule="wrong-precision",
        seen=seen,
        kernels=slow.kernels,
        saved_ns=slow.saved_ns,
        certainty=weigh_names(slow.kernels, certainty),
    )
    share = format_percent(claim.work_share)
    texts = FindingTexts(
        title=f"{share} of the computing time is {slow.what} on {slow.unit}{_compare(rates, slow)}",
        summary=_summarize(seen, rates, slow),
        advice=_advise(seen, rates, slow),
    )
    evidence = {
        "faster_type": slow.faster,
        "times_as_fast": round(slow.times, 2),
        "device": rates.device if rates.is_recorded else None,
    }
    return claim.conclude(texts, evidence)


def _compare(rates: ProductRates, slow: _SlowProducts) -> str:
    """Return the end of the title: what would run them faster, and on which condition."""
    where = f" of {rates.device}" if rates.is_recorded else ""
    if slow.what.startswith(slow.faster):
        faster = f", and its matrix units run them up to {_write_times(slow.times)} times as fast"
    else:
        faster = f", which {WORDS[slow.faster]} runs up to {_write_times(slow.times)} times as fast"
    return f"{where}{faster}" if rates.is_recorded else f"{faster} on tensor cores, if the device has them"


def _write_times(times: float) -> str:
    """Return a ratio in words, with a decimal where it states something."""
    return f"{times:.0f}" if times >= 5 or abs(times - round(times)) < 0.05 else f"{times:.1f}"


def _summarize(seen: LoopWork, rates: ProductRates, slow: _SlowProducts) -> str:
    """Return what was measured, the bound, and what it may cost."""
    device = "" if rates.is_recorded else UNNAMED.format(generation=rates.device)
    return (
        f"{describe_kernels(seen, slow.kernels)}. At most {format_ms(slow.saved_ns)} of {name_whole(seen)} "
        f"({format_percent(seen.share(slow.saved_ns))}) could be saved, if {slow.condition}."
        f"{device} {ACCURACY[slow.faster]}: compare the loss of some hundred steps, and the time of an iteration."
    )


def _advise(seen: LoopWork, rates: ProductRates, slow: _SlowProducts) -> str:
    if slow.what.startswith(slow.faster):
        return ALIGN
    if slow.faster == "tf32":
        half = rates.times.get("bfloat16", 0.0)
        more = f", up to {_write_times(half)} times as fast as now" if half > slow.times else ""
        special = {name: text.format(more=more) for name, text in IN_TF32.items()}
        general = "Let the products round to TF32 on tensor cores."
        return advise(seen.trace, general, **special) + _note_convolutions(seen)
    scaler = " with torch.amp.GradScaler()" if slow.faster == "float16" else ""
    where = "cpu" if is_stand_in(seen.trace) else "cuda"
    special = {name: text.format(type=slow.faster, scaler=scaler, where=where) for name, text in IN_HALF.items()}
    return advise(seen.trace, f"Compute the products in {slow.faster}.", **special) + _note_missing(rates)


def _note_convolutions(seen: LoopWork) -> str:
    """Return a sentence where convolutions use TF32 already and matrix products do not."""
    table, products = seen.work.table, pl.col("category")
    rounded = table.filter(pl.col("precision") == "tf32")
    alone = rounded.filter(products == "convolution").height and not rounded.filter(products == "matmul").height
    single = table.filter((products == "matmul") & (pl.col("precision") == "fp32") & (pl.col("unit") == "simt"))
    return ONLY_CONVOLUTIONS if alone and not single.is_empty() else ""


def _note_missing(rates: ProductRates) -> str:
    """Return why not a type that costs less accuracy."""
    if rates.is_amd or not rates.times:
        return ""
    if not rates.is_recorded:
        return LATER
    if "bfloat16" not in rates.times:
        return " These tensor cores have neither TF32 nor bfloat16."
    return " TF32 gains next to nothing on this device." if rates.times.get("tf32") else ""
