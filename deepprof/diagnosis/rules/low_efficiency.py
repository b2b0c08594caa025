"""A matrix product, convolution or attention lasts far longer than the device's peaks would allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.products import (
    LoopProducts,
    count_blocks,
    count_multiprocessors,
    find_products,
    keep_kernels,
)
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import LEADS, WorkClaim
from deepprof.diagnosis.work_evidence import is_enough, name_whole
from deepprof.metrics.cost.loop_products import read_sides, write_shapes
from deepprof.metrics.kernels.loop_work import LoopWork

FAR = 0.25  # of the roof
REACHED = 0.5  # of the roof, which large products of vendors' libraries reach: what is claimed is the time beyond that
LIMITS = SeverityLimits(warning=0.15, critical=0.4)
REMARK = 0.05  # of an iteration
CERTAINTY = 0.8  # the peaks are the vendor's, at full clock; small shapes cannot reach them
FEW_BLOCKS = 1.0  # for every multiprocessor: some are idle
TILE_ELEMENTS = 128 * 128  # of the result, that a block of a large product computes
FILL = (
    "Give it more to do at a time (a larger batch, several sequences together), so that all multiprocessors have work."
)
OTHER = (
    "Compare with another implementation (torch.compile with max-autotune, another attention backend, channels_last "
    "for convolutions), and look whether a copy, a power limit or another stream runs at the same time."
)


@rule("low-efficiency", subject="work")
def low_efficiency(seen: LoopWork) -> Iterator[Finding]:
    """Yield `low-efficiency` for the products far from their roof, with the one that loses most.

    Where the device waits for most of the time it does not matter how well it computes.
    """
    known = find_products(seen) if is_enough(seen) and seen.busy_ratio >= LEADS else None
    if known is None:
        return
    lost = (pl.col("device_ns") - pl.col("ideal_ns") / REACHED).alias("lost_ns")
    far = known.table.filter((pl.col("roof_ratio") < FAR) & (pl.col("bound") != "launch")).with_columns(lost)
    if not far.is_empty() and seen.share(float(far["lost_ns"].sum())) >= REMARK:
        yield _conclude(seen, known, far.sort("lost_ns", descending=True, maintain_order=True))


def _conclude(seen: LoopWork, known: LoopProducts, far: pl.DataFrame) -> Finding:
    """Return the finding on some products, the worst first."""
    worst, lost_ns = far.row(0, named=True), float(far["lost_ns"].sum())
    claim = WorkClaim(
        same_launches=True,
        rule="low-efficiency",
        seen=seen,
        kernels=keep_kernels(seen, far),
        saved_ns=lost_ns,
        limits=LIMITS,
        certainty=CERTAINTY,
    )
    blocks, shapes = _count_blocks(seen, known, worst), write_shapes(worst["dims"])
    others = f" and {far.height - 1} more" if far.height > 1 else ""
    reached = format_percent(worst["roof_ratio"])
    texts = FindingTexts(
        title=(
            f"{format_percent(seen.work_share(float(far['device_ns'].sum())))} of the computing time is products far "
            f"from what the device can do: {worst['operator']} reaches {reached} of it"
        ),
        summary=(
            f"{worst['operator']} ({shapes}){others}: {reached} of what the peaks of {known.peaks.name} allow in "
            f"{worst['product_dtype']}; at {format_percent(REACHED)} of them {name_whole(seen)} would take "
            f"{format_ms(lost_ns)} less ({format_percent(seen.share(lost_ns))})."
        ),
        advice=FILL if blocks is not None and blocks < FEW_BLOCKS else OTHER,
    )
    return claim.conclude(texts, _measure(worst, far.height, blocks))


def _measure(worst: dict[str, Any], many: int, blocks: float | None) -> dict[str, int | float | str | None]:
    return {
        "products": many,
        "operator": worst["operator"],
        "shapes": write_shapes(worst["dims"]),
        "dtype": worst["product_dtype"],
        "bound": worst["bound"],
        "roof_ratio": round(worst["roof_ratio"], 4),
        "device_ns_per_iteration": round(worst["device_ns"]),
        "ideal_ns_per_iteration": round(worst["ideal_ns"]),
        "blocks_per_multiprocessor": None if blocks is None else round(blocks, 2),
    }


def _count_blocks(seen: LoopWork, known: LoopProducts, worst: dict[str, Any]) -> float | None:
    """Return how many blocks a product has for each multiprocessor: as recorded, else as its result has large tiles."""
    cores = count_multiprocessors(seen)
    recorded = count_blocks(seen.trace, worst["kernel"], cores)
    sides = read_sides(worst["operator"], worst["dims"])
    if recorded is not None or sides is None or not sides.rows or known.peaks.multiprocessors is None:
        return recorded
    return sides.rows * sides.columns * sides.batch / TILE_ELEMENTS / known.peaks.multiprocessors
