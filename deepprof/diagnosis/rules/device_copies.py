"""Copies and memsets on the device, or between devices, that run while nothing computes."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_nbytes, say_saved
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import spans_of_parts, windows_of
from deepprof.metrics.breakdown.queueing import saved_without
from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import covered
from deepprof.plurals import counted

WITHIN, BETWEEN = ("exposed_dtod_ns", "exposed_memset_ns"), ("exposed_ptop_ns",)
PARTS = (*WITHIN, *BETWEEN)
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
ADVICE = (
    "Find what copies: .contiguous() and .clone(), torch.cat and stack, changes of layout (channels_last) or of type, "
    "inputs copied into the tensors of a captured graph, buffers filled with zeros that are overwritten anyway. Work "
    "on views, write results where they are needed (out=), or let a compiler fuse the copy into an adjacent kernel."
)


PEERS = (
    "Copy less between devices (smaller types, only what the other one reads, fewer cuts through the model), and "
    "overlap the copies with computation: on a separate stream."
)


@rule("device-copies", parts=PARTS, limits=LIMITS)
def device_copies(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `device-copies` when exposed copies within the device and memsets, or copies between devices, last long."""
    known = (device_copies.claim(loop, parts) for parts in (WITHIN, BETWEEN))
    claim = max((each for each in known if each is not None), key=lambda each: each.cost.mean_ns, default=None)
    if claim is None:
        return
    claim, cost = replace(claim, shorter_ns=saved_without(loop, trace, spans_of_parts(loop, claim.parts))), claim.cost
    between = claim.parts == BETWEEN
    count, nbytes = _count_copies(loop, trace, between=between)
    size = f" and {format_nbytes(nbytes / cost.iterations)}" if nbytes else ""
    each = count / cost.iterations
    doing = "copies from or to other devices" if between else "copies or fills its own memory"
    texts = FindingTexts(
        title=f"Copies {'between devices' if between else 'within the device'} are not hidden behind computation",
        summary=(
            f"{claim.amount} the device only {doing}: {counted(each, 'time')}{size} {claim.per}.{say_saved(claim)}"
        ),
        advice=PEERS if between else ADVICE,
    )
    evidence = {"copies_per_iteration": round(each, 2), "copied_bytes_per_iteration": round(nbytes / cost.iterations)}
    yield claim.conclude(texts, evidence)


def _count_copies(loop: Loop, trace: Trace, *, between: bool) -> tuple[int, int]:
    """Return how many copies between devices, or within one and memsets, usual iterations hold, and their bytes."""
    peers = (pl.col("copy_kind") == "PtoP").fill_null(value=False)
    within = (pl.col("copy_kind") == "DtoD").fill_null(value=False) | (pl.col("activity") == "memset")
    rows = trace.device_events.filter(pl.col("device") == loop.device, peers if between else within)
    inside = rows.filter(covered(windows_of(loop), rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()) > 0)
    return inside.height, int(inside["nbytes"].sum() or 0)
