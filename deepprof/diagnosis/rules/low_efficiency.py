"""A matrix product, convolution or attention takes far longer than the device's peaks would allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from deepprof.diagnosis.context_claims import ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.products import LoopProducts, count_blocks, find_kernel, find_products
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.cost.loop_products import read_sides, write_shapes

FAR = 0.25  # of the roof
REACHED = 0.5  # of the roof, which large products of vendors' libraries reach: what is claimed is the time beyond that
LIMITS = SeverityLimits(warning=0.15, critical=0.4)
REMARK = 0.05  # of an iteration
CERTAINTY = 0.8  # the peaks are the vendor's, at full clock; small shapes cannot reach them
FEW_BLOCKS = 1.0  # for each multiprocessor: some are idle
TILE_ELEMENTS = 128 * 128  # of the result, that a block of a large product computes
FILL = (
    "Give it more to do at a time (a larger batch, several sequences together), so that all multiprocessors have work."
)
OTHER = (
    "Compare with another implementation (torch.compile with max-autotune, another attention backend, channels_last "
    "for convolutions), and look whether a copy, a power limit or another stream runs beside it."
)


@rule("low-efficiency", subject="contexts")
def low_efficiency(seen: LoopContexts) -> Iterator[Finding]:
    """Yield `low-efficiency` for the products far from their roof, with the one that loses most."""
    known = find_products(seen)
    if known is None:
        return
    lost = (pl.col("device_ns") - pl.col("ideal_ns") / REACHED).alias("lost_ns")
    far = known.table.filter((pl.col("roof_ratio") < FAR) & (pl.col("bound") != "launch")).with_columns(lost)
    lost_ns = float(far["lost_ns"].sum())
    if known.share(lost_ns) < REMARK:
        return
    worst = far.sort("lost_ns", descending=True, maintain_order=True).row(0, named=True)
    yield _conclude(seen, known, worst, far.height, lost_ns)


def _conclude(seen: LoopContexts, known: LoopProducts, worst: dict[str, Any], many: int, lost_ns: float) -> Finding:
    """Return the finding on the worst of so many products."""
    share, blocks = known.share(lost_ns), _count_blocks(seen, known, worst)
    shapes, others = write_shapes(worst["dims"]), f" and {many - 1} more" if many > 1 else ""
    texts = FindingTexts(
        title=f"{worst['operator']} is far from what the device can do",
        summary=(
            f"{worst['operator']} ({shapes}){others}: {format_percent(worst['roof_ratio'])} of what the peaks of "
            f"{known.peaks.name} allow in {worst['product_dtype']}; at {format_percent(REACHED)} of them an iteration "
            f"would take {format_ms(lost_ns)} less ({format_percent(share)})."
        ),
        advice=FILL if blocks is not None and blocks < FEW_BLOCKS else OTHER,
    )
    evidence = {
        "products": many,
        "operator": worst["operator"],
        "shapes": shapes,
        "dtype": worst["product_dtype"],
        "bound": worst["bound"],
        "roof_ratio": round(worst["roof_ratio"], 4),
        "device_ns_per_iteration": round(worst["device_ns"]),
        "ideal_ns_per_iteration": round(worst["ideal_ns"]),
        "share_ratio": round(share, 4),
        "blocks_per_multiprocessor": None if blocks is None else round(blocks, 2),
    }
    return ContextClaim(
        rule="low-efficiency",
        seen=seen,
        context=find_kernel(seen, worst["kernel"]),
        severity=LIMITS.rate(share),
        saved_ns=lost_ns,
        certainty=CERTAINTY,
    ).conclude(texts, evidence)


def _count_blocks(seen: LoopContexts, known: LoopProducts, worst: dict[str, Any]) -> float | None:
    """Return how many blocks a product has for each multiprocessor: as recorded, else as its result has large tiles."""
    recorded, cores = count_blocks(seen, worst["kernel"]), known.peaks.multiprocessors
    sides = read_sides(worst["operator"], worst["dims"])
    if recorded is not None or sides is None or not sides.rows or cores is None:
        return recorded
    return sides.rows * sides.columns * sides.batch / TILE_ELEMENTS / cores
