"""Kernels have fewer blocks than the device has multiprocessors: some of it idles while they run."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.products import count_multiprocessors
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import LEADS, WorkClaim
from deepprof.diagnosis.work_evidence import describe_kernels, is_enough, name_whole, share_of_kernels
from deepprof.metrics.kernels.loop_work import LoopWork

FULL = 0.5  # of the multiprocessors: a grid of more leaves less idle than the last wave of a large grid does
LONG_NS = 10_000  # a shorter kernel is over when all its blocks have begun: fewer kernels help it, not more blocks
ALONE = 0.9  # of a kernel's time: next to others it leaves them the rest of the device
LEAST = 0.15  # of the kernels' time
CERTAINTY = 0.6  # some algorithms have no more blocks
# A collective has few blocks so that others can run next to it.
LEFT_OUT = ("communication", "memory_set_copy", "unknown")
SPREAD = (
    "Give these kernels more to do at a time: a larger batch, several independent ones in one call, or run them while "
    "others run on a second stream. Products with a long inner side are spread by split-K, attention over few queries "
    "by a kernel that splits the keys (flash decoding), reductions over everything by reducing in two steps."
)


@rule("small-grids", subject="work")
def small_grids(seen: LoopWork) -> Iterator[Finding]:
    """Yield `small-grids` where long kernels that run alone leave most multiprocessors without a block."""
    cores = count_multiprocessors(seen)
    if not cores or seen.trace.launch_shapes.is_empty() or seen.busy_ratio < LEADS or not is_enough(seen):
        return
    small = _list_small(seen, cores)
    taken_ns = float(small["part_ns"].sum()) / seen.iterations
    if taken_ns and share_of_kernels(seen, taken_ns) >= LEAST:
        yield _conclude(seen, small, cores)


def _list_small(seen: LoopWork, cores: int) -> pl.DataFrame:
    """Return the long kernels that run alone on a small part of the device, with `grid`, their number of blocks."""
    shapes = seen.trace.launch_shapes.select(pl.col("event").cast(pl.Int64), pl.col("grid").cast(pl.Int64))
    kinds = seen.kinds.table.with_row_index("kind").select(pl.col("kind").cast(pl.Int64), "category")
    rows = seen.kernels.cast({"event": pl.Int64}).join(shapes, on="event", how="inner").join(kinds, on="kind")
    small = (pl.col("grid") > 0) & (pl.col("grid") < FULL * cores)
    alone = (pl.col("ns") >= LONG_NS) & (pl.col("part_ns") >= ALONE * pl.col("ns"))
    return rows.filter(small & alone & ~pl.col("category").is_in(LEFT_OUT))


def _conclude(seen: LoopWork, small: pl.DataFrame, cores: int) -> Finding:
    idle = pl.col("part_ns") * (1 - pl.col("grid") / cores)
    own = small.group_by("kind").agg(
        kernels=pl.len() / seen.iterations,
        time_ns=pl.col("part_ns").sum() / seen.iterations,
        idle_ns=idle.sum() / seen.iterations,
    )
    kernels = seen.work.kernels.drop("kernels", "time_ns").join(own, on="kind", maintain_order="left")
    saved_ns = float(kernels["idle_ns"].sum())
    claim = WorkClaim(
        same_launches=True, rule="small-grids", seen=seen, kernels=kernels, saved_ns=saved_ns, certainty=CERTAINTY
    )
    blocks = float(small.select((pl.col("grid") * pl.col("part_ns")).sum() / pl.col("part_ns").sum()).item())
    texts = FindingTexts(
        title=(
            f"{format_percent(claim.work_share)} of the computing time is kernels with {blocks:.0f} blocks on average, "
            f"on {cores} multiprocessors"
        ),
        summary=(
            f"{describe_kernels(seen, kernels)}; the other multiprocessors are idle meanwhile. At most "
            f"{format_ms(saved_ns)} of {name_whole(seen)} ({format_percent(seen.share(saved_ns))}) could be saved, if "
            "the same work were spread over all of them and memory did not limit it. Measure the length of these "
            "kernels afterwards."
        ),
        advice=SPREAD,
    )
    return claim.conclude(texts, {"blocks": round(blocks, 1), "multiprocessors": cores})
