"""Copies that nothing hides (Gu et al., section VI): too large, too slow, or not overlapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import CostClaim, FindingTexts, SeverityLimits, format_nbytes, say_saved
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import spans_of_parts, windows_of
from deepprof.metrics.breakdown.queueing import saved_without
from deepprof.metrics.intervals import intervals_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import with_names
from deepprof.metrics.spans import covered

PARTS = ("exposed_htod_ns", "exposed_dtoh_ns", "exposed_copy_ns")
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
ONE_WAY = 0.8  # share of the copying time in one direction for that to be the main one
WAYS = {"HtoD": "from the host", "DtoH": "to the host"}
COPY_LESS = (
    "Copy less (smaller types, only what the model reads, constants kept on the device), and earlier: the next batch "
    "on a stream of its own while this one computes."
)
PIN = "From pinned memory copies are faster and need not wait."
COPY_LESS_IN = {
    "pytorch": "DataLoader(pin_memory=True), .to(device, non_blocking=True).",
    "jax": "jax.device_put of the next batch before this step's result is awaited.",
    "tensorflow": "tf.data's prefetch_to_device.",
}


# Copies from pageable memory hold the host.
@rule("copy-bound", parts=PARTS, limits=LIMITS, explains={"sync-bound", "launch-bound", "host-bound"}, delays_rank=True)
def copy_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `copy-bound` when copies between host and device run for a large part of the time, exposed."""
    claim = copy_bound.claim(loop)
    if claim is not None:
        claim = replace(claim, shorter_ns=saved_without(loop, trace, spans_of_parts(loop, PARTS)))
        yield _describe(claim, _exposed_copies(loop, trace), trace)


def _exposed_copies(loop: Loop, trace: Trace) -> pl.DataFrame:
    """Return the copies between host and device in the loop's usual iterations, with their `name`."""
    windows = windows_of(loop)
    copies = trace.device_events.filter(
        (pl.col("activity") == "memcpy")
        & (pl.col("device") == loop.device)
        & ~pl.col("copy_kind").is_in(["DtoD", "PtoP"]).fill_null(value=False)
    )
    inside = covered(windows, copies["start_ns"].to_numpy(), copies["end_ns"].to_numpy()) > 0
    return with_names(copies.filter(pl.Series(inside)), trace.names)


def _describe(claim: CostClaim, copies: pl.DataFrame, trace: Trace) -> Finding:
    """Return the finding with the direction, the size, the speed and the kind of memory of the copies."""
    cost, intervals = claim.cost, intervals_of(claim.loop)
    taken, nbytes = int((copies["end_ns"] - copies["start_ns"]).sum()), int(copies["nbytes"].sum() or 0)
    per_second = nbytes / max(1, taken) * 1e9
    pageable, pinned = (_is_mostly(copies, kind) for kind in ("pageable", "pinned"))
    way = WAYS.get(_main_direction(copies), "between host and device")
    size = f": {format_nbytes(nbytes / cost.iterations)} at {format_nbytes(per_second)}/s" if nbytes else ""
    texts = FindingTexts(
        title=f"Copies {way} are not hidden behind computation",
        summary=(
            f"{claim.amount} the device only copies {way}{size}{', from or to pageable memory' if pageable else ''}."
            f"{say_saved(claim)}"
        ),
        advice=advise(trace, COPY_LESS if pinned and not pageable else f"{COPY_LESS} {PIN}", **COPY_LESS_IN),
    )
    evidence = {
        "copied_bytes_per_iteration": round(nbytes / cost.iterations),
        "bytes_per_second": round(per_second),
        "copies_per_iteration": round(copies.height / cost.iterations, 2),
        "pageable": "yes" if pageable else "no",
        "avg_overlap_ratio": round(intervals.overlap_ratio, 4) if intervals else None,  # the paper's
    }
    return claim.conclude(texts, evidence)


def _is_mostly(copies: pl.DataFrame, kind: str) -> bool:
    """Return whether most of what is copied is from or to a kind of memory, by bytes, or by time without sizes."""
    sized = bool(copies["nbytes"].sum())
    weight = copies["nbytes"].fill_null(0) if sized else copies["end_ns"] - copies["start_ns"]
    of_kind = weight.filter(copies["name"].str.contains(f"(?i){kind}").fill_null(value=False)).sum()
    return 2 * int(of_kind) > int(weight.sum())


def _main_direction(copies: pl.DataFrame) -> str:
    """Return the direction in which nearly all of the time is spent, empty where both are."""
    taken = copies.group_by("copy_kind").agg(taken=(pl.col("end_ns") - pl.col("start_ns")).sum())
    most = taken.filter(pl.col("taken") >= ONE_WAY * pl.col("taken").sum())
    return str(most["copy_kind"][0]) if most.height == 1 else ""
