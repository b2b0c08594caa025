"""Another process on the device makes the iterations longer.

It claims only the time lost to the other's work on the device. The time that copies need belongs to `copy-bound`,
however slow they are: where that rule has a finding, only the waiting of copies is counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl
from msgspec.structs import replace

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import CostClaim, FindingTexts, SeverityLimits, format_ms, share_out
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import Cost
from deepprof.metrics.breakdown.parts import COPY_PARTS
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.facts import longest_loops
from deepprof.metrics.sharing.losses import UNTOUCHED
from deepprof.metrics.sharing.shares import Manner, ShareOfDevice

PARTS = ("idle_shared_ns",)
LIMITS = SeverityLimits(warning=0.08, critical=0.3)
MIN_SHARED_ITERATIONS = 2  # iterations: a single one proves nothing
NO_LEVEL = 0.85  # certainty without iterations that no other process touched
UNPROVEN = 0.75  # without launch records, which show that work was queued
UNSEEN = "host-bound"  # on a trace without launch records it claims all idle time between iterations
CLAIMED = {"copy-bound": ("copies_slowed_ns",), UNSEEN: ("turns_ns", "copies_ns")}

MADE_OF = {  # the parts of the iteration that each way of losing time is in
    "turns_ns": ("idle_shared_ns", "idle_unknown_ns"),
    "slowed_ns": ("compute_ns",),
    "copies_ns": ("idle_shared_ns", "idle_unknown_ns"),
    "copies_slowed_ns": tuple(COPY_PARTS.values()),
}
WAYS = {
    "turns_ns": "its kernels wait for the other's turn",
    "slowed_ns": "its kernels are slower while the other's run",
    "copies_ns": "its copies wait for the other's",
    "copies_slowed_ns": "its copies are slower while the other's run",
}
MOVE = "Move one of the jobs to another device, or run them one after the other where each needs it all the time."
ADVICE: dict[Manner, str] = {
    "in turn": (
        f"{MOVE} If both must stay: on NVIDIA devices MPS (nvidia-cuda-mps-control) lets kernels of both run at once "
        "where the device has room for both, and MIG gives each a separate slice; taking turns, the device does no "
        "more work than for one job."
    ),
    "at once": (
        f"{MOVE} If both must stay: a share for each (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE with MPS, or MIG slices of "
        "their own) keeps the one from slowing the other beyond it."
    ),
    "not visible": MOVE,
}
LINK = (
    "Both copy between host and device at the same time: copy less and earlier (pinned memory, prefetching), let the "
    "jobs load at different times, or move one of them to a device with a separate link."
)


@rule("shared-device", subject="shares", parts=PARTS, limits=LIMITS, explains={"slow-iterations", "drift"})
def shared_device(
    shares: Iterable[ShareOfDevice], loops: Sequence[Loop], found: Sequence[Finding]
) -> Iterator[Finding]:
    """Yield `shared-device` for every device on which the process' iterations lose time to another process.

    `found` are the findings of other rules on its loops: what they claim is not claimed twice.
    """
    longest = longest_loops(loops)
    for share in shares:
        loop = longest.get((share.rank, share.device))
        if loop is not None and share.losses.height >= MIN_SHARED_ITERATIONS:
            yield from _judge(share, loop, found)


def _judge(share: ShareOfDevice, loop: Loop, found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the finding on one device, if its loop loses enough there."""
    rivals = [each for each in found if each.is_on(loop)]
    taken = {way for rule, ways in CLAIMED.items() if _claims(rivals, rule, share) for way in ways}
    finding = _describe(share, loop, [way for way in WAYS if way not in taken])
    if finding is not None:
        yield finding


def _claims(found: Iterable[Finding], rule: str, share: ShareOfDevice) -> bool:
    """Return whether one of the findings is of `rule` and also claims the time lost to others."""
    return any(each.rule == rule for each in found) and not (rule == UNSEEN and share.proven)


def _describe(share: ShareOfDevice, loop: Loop, ways: Sequence[str]) -> Finding | None:
    """Return the finding on the time lost in the given `ways`; None where it is below the limit."""
    cost = _cost_of(share, ways)
    certainty = (1.0 if share.alone_ns is not None else NO_LEVEL) * (1.0 if share.proven else UNPROVEN)
    claim = CostClaim(rule="shared-device", loop=loop, cost=cost, parts=PARTS, limits=LIMITS, certainty=certainty)
    if cost.share < LIMITS.warning:
        return None
    means = {way: share.mean_ns(way) or 0 for way in WAYS}
    worst = max(ways, key=lambda way: means[way])
    texts = FindingTexts(
        title="Another process on the device takes time from the iterations",
        summary=" ".join(_summarize(share, cost, worst)),
        advice=LINK if worst.startswith("copies") else ADVICE[share.manner],
    )
    evidence = {
        "processes": 1 + len(share.neighbours),
        "manner": share.manner,
        **{f"{way.removesuffix('_ns')}_ns_per_iteration": ns for way, ns in means.items()},
        "alone_iteration_ns": share.alone_ns,
        "together_iteration_ns": share.together_ns,
        "lost_together_ns": _find_touched(share, ways),
        "other_ns_per_iteration": share.mean_ns("together_ns"),
        "other_rank": _nearest(share),
    }
    return replace(claim.conclude(texts, evidence), parts=claim_parts(loop, cost, {way: means[way] for way in ways}))


def claim_parts(loop: Loop, cost: Cost, lost: Mapping[str, int]) -> dict[str, int]:
    """Return the loss by part of a mean iteration; the parts add up to `cost`."""
    scale = cost.mean_ns / max(1, sum(lost.values()))
    claims: Counter[str] = Counter()
    for way, ns in lost.items():
        claims.update(share_out(ns * scale, loop, MADE_OF[way]))
    return dict(claims)


def _find_touched(share: ShareOfDevice, ways: Sequence[str]) -> int:
    """Return the mean loss, in the given ways, of the iterations in which others work."""
    rows = share.losses.filter(pl.col("together_ns") > UNTOUCHED * pl.col("iteration_ns"))
    return round(float(rows.select(_sum_of(ways)).to_series().mean() or 0))  # type: ignore[arg-type]


def _sum_of(ways: Sequence[str]) -> pl.Expr:
    """Return the expression for an iteration's loss in the given ways."""
    return pl.sum_horizontal(ways).alias("lost")


def _cost_of(share: ShareOfDevice, ways: Sequence[str]) -> Cost:
    """Return the mean loss of all usual iterations in the given ways, at most what they could save."""
    rows = share.losses
    lost = rows.select(_sum_of(ways)).to_series()
    mean = min(float(lost.mean() or 0.0), float(share.headroom_ns or 0))  # type: ignore[arg-type]
    return Cost(
        mean_ns=mean,
        whole_ns=float(rows["iteration_ns"].mean() or 0.0),  # type: ignore[arg-type]
        steadiness=int((lost >= mean / 2).sum()) / max(1, rows.height),
        iterations=rows.height,
        bounds=(int(rows["index"][0]), int(rows["index"][-1])),
    )


def _summarize(share: ShareOfDevice, cost: Cost, worst: str) -> Iterator[str]:
    rows = share.losses
    has = "they have" if len(share.neighbours) > 1 else "it has"
    touched = f"in {share.together_iterations} of {rows.height} iterations {has} work there"
    yield (
        f"{format_ms(cost.mean_ns)} of an iteration ({100 * cost.share:.0f} %) are lost to {_name_others(share)} "
        f"on the same device ({touched}); mostly {WAYS[worst]}."
    )
    if share.alone_ns is not None and share.together_ns is not None:
        yield f"An iteration takes {format_ms(share.together_ns)} then, and {format_ms(share.alone_ns)} otherwise."
    if share.manner != "not visible":
        yield f"Kernels of the processes run {share.manner}."


def _nearest(share: ShareOfDevice) -> int | None:
    """Return the rank that has most work on the device during this one's iterations."""
    most = max(share.neighbours, key=lambda each: each.together_ns, default=None)
    return None if most is None else most.rank


def _name_others(share: ShareOfDevice) -> str:
    others = [each for each in share.neighbours if each.together_ns]
    return f"rank {others[0].rank}" if len(others) == 1 else f"{len(others)} other processes"
