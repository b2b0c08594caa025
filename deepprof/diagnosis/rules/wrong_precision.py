"""Products are computed in float32 on ordinary units while the device's tensor cores are idle."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.context_claims import ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.products import LoopProducts, count_blocks, find_kernel, find_products
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.cost.loop_products import write_shapes
from deepprof.metrics.cost.roofs import DevicePeaks, add_roofs

FASTER_TYPES = ("tf32", "bfloat16", "float16")  # the first that the device's matrix units take
MUCH_FASTER = 2.0  # times the rate of float32
LIMITS = SeverityLimits(warning=0.15, critical=0.4)
REMARK = 0.05  # of an iteration
CERTAINTY = 0.8  # it may be wanted
USE = "Use a type that tensor cores take, where the model bears it."
USE_IN = {
    "pytorch": (
        "torch.set_float32_matmul_precision('high') lets them round float32 to TF32; torch.autocast computes in "
        "bfloat16 or float16."
    ),
    "jax": "jax.default_matmul_precision('tensorfloat32'), or arrays of bfloat16.",
}


@rule("wrong-precision", subject="contexts")
def wrong_precision(seen: LoopContexts) -> Iterator[Finding]:
    """Yield `wrong-precision` where float32 products could save time on idle tensor cores."""
    known = find_products(seen)
    faster = None if known is None else find_faster_type(known.peaks)
    if known is None or faster is None:
        return
    slow = known.table.filter((pl.col("product_dtype") == "float32") & (pl.col("bound") == "compute"))
    if slow.is_empty():
        return
    bare = slow.drop("ideal_ns", "bound", "roof_ratio").with_columns(product_dtype=pl.lit(faster))
    better = slow.with_columns(
        saved_ns=pl.col("device_ns") * (1 - add_roofs(bare, known.peaks)["ideal_ns"] / pl.col("ideal_ns"))
    )
    if known.share(float(better["saved_ns"].sum())) >= REMARK:
        yield _conclude(seen, known, better, faster)


def find_faster_type(peaks: DevicePeaks) -> str | None:
    """Return the type nearest to float32 in which the device's matrix units are much faster, None for none."""
    single = peaks.find_product_rate("float32")
    rates = ((name, peaks.matrix_flops_per_s.get(name)) for name in FASTER_TYPES)  # type: ignore[call-overload]
    return next((name for name, rate in rates if single and rate and rate >= MUCH_FASTER * single), None)


def _conclude(seen: LoopContexts, known: LoopProducts, slow: pl.DataFrame, faster: str) -> Finding:
    """Return the finding on the products in float32, which have `saved_ns`."""
    worst = slow.sort("saved_ns", descending=True, maintain_order=True).row(0, named=True)
    taken_ns, saved_ns = float(slow["device_ns"].sum()), float(slow["saved_ns"].sum())
    groups = seen.loop.roofline.groups if seen.loop.roofline is not None else slow
    of_kernels, blocks = taken_ns / float(groups["device_ns"].sum()), count_blocks(seen, worst["kernel"])
    shapes = write_shapes(worst["dims"])
    texts = FindingTexts(
        title="Products are computed in float32 while tensor cores are idle",
        summary=(
            f"{format_ms(taken_ns)} of an iteration ({format_percent(of_kernels)} of the kernels' time) are products "
            f"in float32, most of it {worst['operator']} ({shapes}); in {faster} {known.peaks.name} would need "
            f"{format_ms(saved_ns)} less, if they stay as near to their roof."
        ),
        advice=advise(seen.trace, USE, **USE_IN),
    )
    evidence = {
        "eligible_ns_per_iteration": round(taken_ns),
        "eligible_ratio": round(of_kernels, 4),
        "operator": worst["operator"],
        "shapes": shapes,
        "faster_type": faster,
        "share_ratio": round(known.share(saved_ns), 4),
        "blocks_per_multiprocessor": None if blocks is None else round(blocks, 2),
    }
    return ContextClaim(
        rule="wrong-precision",
        seen=seen,
        context=find_kernel(seen, worst["kernel"]),
        severity=LIMITS.rate(known.share(saved_ns)),
        saved_ns=saved_ns,
        certainty=CERTAINTY,
    ).conclude(texts, evidence)
