"""Copies that nothing hides (Gu et al., section VI): too large, too slow, or not overlapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import (
    CostClaim,
    FindingTexts,
    SeverityLimits,
    format_ms,
    format_nbytes,
    format_percent,
    say_saved,
)
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import mean_of, spans_of_parts, windows_of
from deepprof.metrics.breakdown.parts import COPY_PARTS
from deepprof.metrics.breakdown.queueing import saved_without
from deepprof.metrics.intervals import intervals_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import with_names
from deepprof.metrics.spans import covered

TO_HOST = "exposed_dtoh_ns"
WAYS = {
    "exposed_htod_ns": "from the host",
    TO_HOST: "to the host",
    "exposed_copy_ns": "between host and device",
}
PARTS = tuple(WAYS)
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
COPY_LESS = (
    "Copy less (smaller types, only what the model reads, constants kept on the device), and earlier: the next batch, "
    "or the next layer's weights, on a separate stream while this one computes."
)
READ_LESS = (
    "Copy less (smaller types, only what the host reads, not in every iteration), and overlap copies with "
    "computation: on a separate stream, read once an event shows that it is there."
)
BOTH_WAYS = "Devices copy in both directions at once: use one stream per direction."
PIN = "From and to pinned memory copies are faster and need not wait."
COPY_LESS_IN = {
    "pytorch": "PyTorch: .to(device, non_blocking=True).",
    "jax": "jax.device_put of the next batch before this step's result is awaited.",
    "tensorflow": "tf.data's prefetch_to_device.",
}
READ_LESS_IN = {
    "pytorch": "PyTorch: .to('cpu', non_blocking=True), then event.synchronize().",
    "jax": "copy_to_host_async() of a result before it is read.",
}
PIN_IN = {"pytorch": "DataLoader(pin_memory=True), tensor.pin_memory()."}


# Copies from pageable memory hold the host.
@rule("copy-bound", parts=PARTS, limits=LIMITS, explains={"sync-bound", "launch-bound", "host-bound"}, delays_rank=True)
def copy_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `copy-bound` when copies in one direction run for a large part of the time, exposed: the costliest one."""
    known = (copy_bound.claim(loop, (part,)) for part in PARTS)
    claims = sorted((claim for claim in known if claim is not None), key=lambda claim: -claim.cost.mean_ns)
    if claims:
        shorter_ns = saved_without(loop, trace, spans_of_parts(loop, claims[0].parts))
        yield _describe(replace(claims[0], shorter_ns=shorter_ns), claims[1:], trace)


def _exposed_copies(loop: Loop, part: str, trace: Trace) -> pl.DataFrame:
    """Return the copies in the direction of a part in the loop's usual iterations, with their `name`."""
    directions = pl.col("copy_kind").cast(pl.String).replace_strict(COPY_PARTS, default=COPY_PARTS[None])
    copies = trace.device_events.filter(
        pl.col("activity") == "memcpy", pl.col("device") == loop.device, directions == part
    )
    inside = covered(windows_of(loop), copies["start_ns"].to_numpy(), copies["end_ns"].to_numpy()) > 0
    return with_names(copies.filter(pl.Series(inside, dtype=pl.Boolean)), trace.names)


def _describe(claim: CostClaim, others: Sequence[CostClaim], trace: Trace) -> Finding:
    """Return the finding with the direction, the size, the speed and the kind of memory of the copies.

    `others` are the claims on the other directions, which cost less.
    """
    (part,), cost, intervals = claim.parts, claim.cost, intervals_of(claim.loop)
    copies = _exposed_copies(claim.loop, part, trace)
    taken, nbytes = int((copies["end_ns"] - copies["start_ns"]).sum()), int(copies["nbytes"].sum() or 0)
    per_second = nbytes / max(1, taken) * 1e9
    pageable, pinned = (_is_mostly(copies, kind) for kind in ("pageable", "pinned"))
    size = f": {format_nbytes(nbytes / cost.iterations)} at {format_nbytes(per_second)}/s" if nbytes else ""
    memory = "pageable" if pageable else "pinned" if pinned else ""
    texts = FindingTexts(
        title=_title(claim.loop, part),
        summary=(
            f"{claim.amount} the device only copies {WAYS[part]}{size}{f', {memory} memory' if memory else ''}."
            f"{''.join(map(_mention, others))}{say_saved(claim)}"
        ),
        advice=_advise(trace, part, pinned=pinned, alternates=bool(others)),
    )
    evidence = {
        "copied_bytes_per_iteration": round(nbytes / cost.iterations),
        "bytes_per_second": round(per_second),
        "copies_per_iteration": round(copies.height / cost.iterations, 2),
        "pageable": "yes" if pageable else "no",
        "avg_overlap_ratio": round(intervals.overlap_ratio, 4) if intervals else None,  # the paper's
    }
    return claim.conclude(texts, evidence)


def _title(loop: Loop, part: str) -> str:
    """Return the title; a device that does nothing but copy has no computation to hide copies behind."""
    if mean_of(loop, "compute_ns") > 0:
        return f"Copies {WAYS[part]} are not hidden behind computation"
    return f"Copies {WAYS[part]} run, and no kernel runs at the same time"


def _mention(claim: CostClaim) -> str:
    """Return a sentence on another direction, which costs less."""
    amount = f"{format_ms(claim.cost.mean_ns)} ({format_percent(claim.cost.share)})"
    return f" Copies {WAYS[claim.parts[0]]} take another {amount}."


def _advise(trace: Trace, part: str, *, pinned: bool, alternates: bool) -> str:
    """Return what to do about copies in one direction; `alternates` where those in another one cost much, too."""
    general, special = (READ_LESS, READ_LESS_IN) if part == TO_HOST else (COPY_LESS, COPY_LESS_IN)
    advice = [advise(trace, general, **special)]
    if alternates:
        advice.append(BOTH_WAYS)
    if not pinned:
        advice.append(advise(trace, PIN, **PIN_IN))
    return " ".join(advice)


def _is_mostly(copies: pl.DataFrame, kind: str) -> bool:
    """Return whether most of what is copied is from or to a kind of memory, by bytes, or by time without sizes."""
    sized = bool(copies["nbytes"].sum())
    weight = copies["nbytes"].fill_null(0) if sized else copies["end_ns"] - copies["start_ns"]
    of_kind = weight.filter(copies["name"].str.contains(f"(?i){kind}").fill_null(value=False)).sum()
    return 2 * int(of_kind) > int(weight.sum())
