"""One rank comes late to the collectives, and all others wait for it in every iteration.

The evidence is how long ranks wait at collectives, which needs no clock. A rank is named as the cause only if it is
late in most iterations: where a different one is late each time, none is the cause. Where each rank recorded one marked
step, it must be late at most of its collectives, and the finding states that it is about that step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from deepprof.diagnosis import Severity
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import format_ms
from deepprof.diagnosis.lateness import (
    Lateness,
    count_late,
    find_late,
    luck_of,
    share_late,
    sum_waits_for,
    threshold,
)
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import mean_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.causes import LateCause, SlowerKernels, compare_kernels, find_cause
from deepprof.metrics.ranks.comparison import RankComparison, RankGroup
from deepprof.metrics.ranks.facts import PlaceFacts, RankFacts, longest_loops, places_of
from deepprof.plurals import counted

CRITICAL_SHARE = 0.1  # of an iteration: all ranks lose it, not one
SHOWN = 8  # ranks named in a sentence
ONE_STEP = 0.5  # of the confidence: in another iteration another rank may be late
AT_ONCE = 0.5  # share of the lateness at a step's first collective: the rank came late to the step, or to its recording
UNMATCHED = 0.6  # of the confidence: ranks were not seen to leave together, and may not share their collectives

IN_ONE = " in the one iteration recorded"

SPENDS = {
    "compute": "computes",
    "work": "computes",
    "input": "waits for data",
    "host": "waits for its host",
    "copy": "copies",
}

ADVICE = {
    "compute": (
        "Compare its clocks, power and temperature with the others' (nvidia-smi -q -d PERFORMANCE,CLOCK or rocm-smi), "
        "look for another process on the device, and see whether its share of the batch is larger or longer than the "
        "others'; replace or drain the device if it stays slow with the same work."
    ),
    "work": (
        "It runs more kernels per iteration than the others: balance the work (sequence lengths, sharding, uneven "
        "last batches), and look for logging or checks that only this rank does."
    ),
    "input": (
        "Its data loader is slower than the others': check the workers, the storage and the page cache of its host, "
        "and whether its shard of the data is more expensive to decode."
    ),
    "host": (
        "Its host is slower than the others': check CPU pinning and NUMA placement, other processes on the node, CPU "
        "frequency, and work that only this rank does (logging, checkpoints, metrics)."
    ),
    "copy": (
        "Its copies take longer than the others': check the PCIe link (nvidia-smi -q: link width and generation), "
        "pinned memory and NUMA placement of its process."
    ),
    "unknown": (
        "Compare this rank with a fast one: deepprof diagnose on each of the two traces; check its node first (clocks, "
        "CPU load, storage)."
    ),
}


class _StragglerVerdict(Struct, frozen=True, kw_only=True):
    """The rank that is the cause: `late` are all ranks of its group that are late, the worst first.

    `others` are the loops of those that are not; `time_ns` is what an iteration usually takes. `exposed_ns` is how long
    all ranks only communicate in one.
    """

    group: RankGroup
    late: Sequence[Lateness]
    loop: Loop
    others: Sequence[Loop]
    time_ns: float
    exposed_ns: float
    cause: LateCause
    kernels: SlowerKernels | None

    @property
    def worst(self) -> Lateness:
        """The latest rank."""
        return self.late[0]

    @property
    def share(self) -> float:
        """Share of the iteration's time that the others wait for it."""
        return self.worst.headroom_ns / self.time_ns

    @property
    def consistency(self) -> float:
        """Share of the iterations, or of a single step's collectives, in which it is late."""
        return share_late(self.worst, self.group, self.time_ns)

    @property
    def severity(self) -> Severity:
        """How bad it is; the lateness in a single step may not last."""
        return "critical" if self.share >= CRITICAL_SHARE and not self.loop.single else "warning"

    @property
    def name(self) -> str:
        """The rank in words, with its device where the rank has several."""
        several = sum(rank == self.loop.rank for rank, _ in self.group.places) > 1
        return f"Rank {self.loop.rank}" + (f", device {self.loop.device}," if several else "")


@rule("straggler", subject="ranks", explains={"communication-bound", "slow-iterations", "drift"})
def straggler(comparison: RankComparison, loops: Sequence[Loop], ranks: Sequence[RankFacts]) -> Iterator[Finding]:
    """Yield `straggler` for the rank that the others of its group wait for, if it is the same one most of the time."""
    chosen, facts = longest_loops(loops), places_of(ranks)
    for group in comparison.groups:
        verdict = _judge(group, chosen, facts)
        if verdict is not None:
            yield _conclude(verdict, comparison)


def _judge(
    group: RankGroup, loops: Mapping[tuple[int, int], Loop], facts: Mapping[tuple[int, int], PlaceFacts]
) -> _StragglerVerdict | None:
    """Return the rank of a group that the others wait for, None where it is none or a different one each time."""
    spreads = [loops[place].metrics.iteration_ns for place in group.places]
    time_ns = float(np.median([spread.median for spread in spreads if spread is not None] or [0]))
    late = find_late(group, time_ns)
    if not late:
        return None
    slow = {each.place for each in late}
    loop, others = loops[late[0].place], [loops[place] for place in group.places if place not in slow]
    cause = find_cause(loop, others, late[0].headroom_ns)
    kernels = _compare_with_typical(loop, others, facts) if cause.kind == "compute" else None
    return _StragglerVerdict(
        group=group,
        late=late,
        loop=loop,
        others=others,
        time_ns=time_ns,
        exposed_ns=sum(mean_of(loops[place], "exposed_communication_ns") for place in group.places),
        cause=cause,
        kernels=kernels,
    )


def _compare_with_typical(
    loop: Loop, others: Sequence[Loop], facts: Mapping[tuple[int, int], PlaceFacts]
) -> SlowerKernels | None:
    """Return how a rank's kernels compare with those of the rank in the middle of the others."""
    ordered = sorted(others, key=lambda each: mean_of(each, "compute_ns"))
    typical = ordered[len(ordered) // 2]
    return compare_kernels(facts[loop.rank, loop.device].kernels, facts[typical.rank, typical.device].kernels)


def _conclude(verdict: _StragglerVerdict, comparison: RankComparison) -> Finding:
    """Return the finding; it is about the whole job, so that it names no stream."""
    loop = verdict.loop
    location: dict[str, int | str] = {"rank": loop.rank, "device": loop.device}
    if verdict.kernels is not None and not verdict.kernels.even:
        location["kernel"] = verdict.kernels.name
    return Finding(
        rule="straggler",
        severity=verdict.severity,
        title=f"{verdict.name} is late{IN_ONE if loop.single else ''}, and the other ranks wait for it",
        summary=" ".join(_summarize(verdict, comparison)),
        evidence=_gather(verdict, comparison),
        advice=ADVICE[verdict.cause.kind],
        headroom_ns_per_iteration=round(verdict.worst.headroom_ns),
        confidence=round(confidence(verdict), 3),
        rank=loop.rank,
        device=loop.device,
        iterations=_affected(verdict),
        location=location,
        parts={"exposed_communication_ns": round(verdict.worst.headroom_ns)},
    )


def _summarize(verdict: _StragglerVerdict, comparison: RankComparison) -> Iterator[str]:
    wait = (
        f"the other ranks wait {format_ms(verdict.worst.headroom_ns)} ({100 * verdict.share:.0f} % of it) for this one"
    )
    if verdict.loop.single:
        yield from _summarize_step(verdict, wait)
    else:
        count = f"{100 * verdict.consistency:.0f} % of {len(verdict.worst.late_ns)} iterations"
        yield f"In a usual iteration {wait}, in {count}."
    if verdict.cause.kind != "unknown":
        yield f"It {SPENDS[verdict.cause.kind]} {format_ms(verdict.cause.extra_ns)} longer than they do."
    if verdict.kernels is not None:
        which = "all about alike" if verdict.kernels.even else f"most of it in {verdict.kernels.name}"
        yield f"The same kernels take {verdict.kernels.ratio:.2f} times as long, {which}."
    if len(verdict.late) > 1:
        yield f"Late as well: {_list_ranks(verdict.late[1:])}."
    if comparison.missing:
        yield f"No trace of rank {comparison.missing_text} was given; one of them may be later still."


def _summarize_step(verdict: _StragglerVerdict, wait: str) -> Iterator[str]:
    """Yield the sentences on a single step: that it happened, not that it happens every time."""
    late, count = count_late(verdict.worst, verdict.group, verdict.time_ns)
    yield f"In the one marked step that was recorded {wait}; it comes late to {late} of {counted(count, 'collective')}."
    arrivals = verdict.worst.arrivals_ns
    if arrivals is not None and arrivals[0] >= AT_ONCE * arrivals.clip(min=0).sum():
        yield "Most of it is at the first one: the rank came late to the step, or its recording began late."
    yield "In other iterations another rank may be late; a longer recording shows whether it is always this one."


def _list_ranks(late: Sequence[Lateness]) -> str:
    """Return the ranks in words, the first `SHOWN` of them."""
    named = ", ".join(f"rank {each.place[0]}" for each in late[:SHOWN])
    return named + (f" and {len(late) - SHOWN} more" if len(late) > SHOWN else "")


def _gather(verdict: _StragglerVerdict, comparison: RankComparison) -> dict[str, int | float | str | None]:
    row = comparison.ranks.filter(rank=verdict.loop.rank, device=verdict.loop.device).row(0, named=True)
    return {
        "ranks_compared": len(verdict.group.places),
        "ranks_late": len(verdict.late),
        "ranks_missing": comparison.missing_text or None,
        "matched_by": verdict.group.matching or "medians",
        "iterations_compared": len(verdict.worst.late_ns),
        **_describe_step(verdict),
        "late_ns": round(float(np.median(verdict.worst.late_ns))),
        "typical_skew_ns": round(verdict.worst.typical_ns),
        "late_ratio": round(verdict.share, 4),
        "consistency_ratio": round(verdict.consistency, 4),
        "own_ns": row["own_ns"],
        "score": row["score"],
        "best_score": row["best_score"],
        "cause": verdict.cause.kind,
        "cause_ns_per_iteration": verdict.cause.extra_ns if verdict.cause.kind != "unknown" else None,
        "kernel_time_ratio": verdict.kernels.ratio if verdict.kernels else None,
    }


def _describe_step(verdict: _StragglerVerdict) -> dict[str, int | float]:
    """Return the numbers of a single step's collectives; none for a loop."""
    if not verdict.loop.single:
        return {}
    late, count = count_late(verdict.worst, verdict.group, verdict.time_ns)
    waited_ns = sum_waits_for(verdict.worst.place, verdict.group)
    return {
        "collectives_compared": count,
        "collectives_late": late,
        "collectives_last": verdict.worst.last,
        "waited_ratio": round(min(1.0, waited_ns / verdict.exposed_ns), 4) if verdict.exposed_ns else 0.0,
    }


def confidence(verdict: _StragglerVerdict) -> float:
    """Return how sure it is that this rank is the cause: often late, not by chance, in correctly found iterations."""
    trust = min([verdict.loop.confidence, *(loop.confidence for loop in verdict.others)])
    chance = luck_of(verdict.worst, verdict.group, verdict.time_ns)
    matched = 1.0 if verdict.group.matching else UNMATCHED
    return trust * verdict.consistency * (1 - chance) * matched * (ONE_STEP if verdict.loop.single else 1)


def _affected(verdict: _StragglerVerdict) -> tuple[int, int] | None:
    """Return the first and last iteration in which the rank is late; None for a single step."""
    if verdict.loop.single:
        return None
    late = verdict.worst.late_ns >= threshold(verdict.group, verdict.time_ns) / 2
    iterations = verdict.worst.iterations[late]
    return int(iterations.min()), int(iterations.max())
