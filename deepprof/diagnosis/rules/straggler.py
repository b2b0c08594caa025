"""One rank comes late to the collectives, and all others wait for it in every iteration.

The evidence is how long ranks wait at collectives, which needs no clock. A rank is blamed only if it is late in most
iterations: where another one is late each time, none of them is the cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import format_ms
from deepprof.metrics.breakdown.costs import mean_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.causes import Cause, SlowerKernels, compare_kernels, find_cause
from deepprof.metrics.ranks.comparison import RankComparison, RankGroup
from deepprof.metrics.ranks.facts import PlaceFacts, RankFacts, longest_loops, places_of

__all__ = ["straggler"]

Int64s = npt.NDArray[np.int64]

FEWEST = 3  # iterations: what happens twice may be chance
LATE_SHARE = 0.05  # of an iteration: devices of one model differ by a few percent in speed
CRITICAL_SHARE = 0.1  # all ranks lose it, not one
SAME_RANK = 2 / 3  # of the iterations it must be late in: between two ranks a half is chance
CLEAR = 4  # times the noise of the measurement
LAST = 0.5  # of the collectives of a single step it must come last to: nothing else shows that it is no chance
SHOWN = 8  # ranks named in a sentence
ONE_STEP = 0.7  # of the confidence: in the next one it may be another rank
UNMATCHED = 0.6  # of the confidence: ranks were not seen to leave together, and may not share their collectives

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


@dataclass(frozen=True, slots=True)
class Lateness:
    """How much later one rank comes than the others, by iteration; `typical_ns` is how far these are apart."""

    place: tuple[int, int]
    late_ns: Int64s
    iterations: Int64s
    typical_ns: float

    @property
    def headroom_ns(self) -> float:
        """What the others wait for it in a usual iteration beyond what they wait for each other."""
        return float(np.median(self.late_ns)) - self.typical_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One rank found guilty: `late` are all ranks of its group that are late, the worst first.

    `others` are the loops of those that are not; `time_ns` is what an iteration usually takes.
    """

    group: RankGroup
    late: Sequence[Lateness]
    loop: Loop
    others: Sequence[Loop]
    time_ns: float
    cause: Cause
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
        """Share of the iterations in which it is late."""
        return share_late(self.worst, threshold(self.group, self.time_ns))

    @property
    def name(self) -> str:
        """The rank in words, with its device where the rank has several."""
        several = sum(rank == self.loop.rank for rank, _ in self.group.places) > 1
        return f"Rank {self.loop.rank}" + (f", device {self.loop.device}," if several else "")


def straggler(comparison: RankComparison, loops: Sequence[Loop], ranks: Sequence[RankFacts]) -> Iterator[Finding]:
    """Yield `straggler` for the rank that the others of its group wait for, if it is the same one most of the time."""
    chosen, facts = longest_loops(loops), places_of(ranks)
    for number, group in enumerate(comparison.groups):
        verdict = judge(group, chosen, facts)
        if verdict is not None and (not verdict.loop.single or share_last(verdict, comparison, number) >= LAST):
            yield conclude(verdict, comparison)


def judge(
    group: RankGroup, loops: Mapping[tuple[int, int], Loop], facts: Mapping[tuple[int, int], PlaceFacts]
) -> Verdict | None:
    """Return which rank of a group the others wait for, None where it is none or another one each time."""
    spreads = [loops[place].metrics.iteration_ns for place in group.places]
    time_ns = float(np.median([spread.median for spread in spreads if spread is not None] or [0]))
    fewest = 1 if all(loops[place].single for place in group.places) else FEWEST
    late = [each for each in measure_lateness(group) if is_late(each, group, time_ns, fewest)]
    if not late:
        return None
    late.sort(key=lambda each: each.headroom_ns, reverse=True)
    slow = {each.place for each in late}
    loop, others = loops[late[0].place], [loops[place] for place in group.places if place not in slow]
    cause = find_cause(loop, others, late[0].headroom_ns)
    kernels = compare_with_typical(loop, others, facts) if cause.kind == "compute" else None
    return Verdict(group=group, late=late, loop=loop, others=others, time_ns=time_ns, cause=cause, kernels=kernels)


def compare_with_typical(
    loop: Loop, others: Sequence[Loop], facts: Mapping[tuple[int, int], PlaceFacts]
) -> SlowerKernels | None:
    """Return how a rank's kernels compare with those of the rank in the middle of the others."""
    ordered = sorted(others, key=lambda each: mean_of(each, "compute_ns"))
    typical = ordered[len(ordered) // 2]
    return compare_kernels(facts[loop.rank, loop.device].kernels, facts[typical.rank, typical.device].kernels)


def measure_lateness(group: RankGroup) -> Iterator[Lateness]:
    """Yield for each rank how much less it waits than the others: so much later it comes."""
    table = {
        place: group.waits.filter((pl.col("rank") == place[0]) & (pl.col("device") == place[1]))
        for place in group.places
    }
    for place, rows in table.items():
        others = pl.concat([other for key, other in table.items() if key != place] or [rows.clear()])
        middle = others.group_by("rank", "device").agg(pl.col("waiting_ns").median())["waiting_ns"].to_numpy()
        if not len(middle) or rows.is_empty():
            continue
        if group.matching is None:
            late = rows.with_columns(others_ns=pl.lit(float(np.median(middle))))
        else:
            level = others.group_by("iteration").agg(others_ns=pl.col("waiting_ns").median())
            late = rows.join(level, on="iteration", maintain_order="left")
        lateness = (late["others_ns"] - late["waiting_ns"]).round().cast(pl.Int64).to_numpy()
        yield Lateness(place, lateness, late["index"].to_numpy(), float(np.median(np.abs(middle - np.median(middle)))))


def share_last(verdict: Verdict, comparison: RankComparison, number: int) -> float:
    """Return the share of the collectives of a group, by its number, that the rank comes last to."""
    skews = comparison.skews.filter(group=number)
    last = skews.filter(latest_rank=verdict.loop.rank, latest_device=verdict.loop.device)
    return last.height / max(1, skews.height)


def is_late(lateness: Lateness, group: RankGroup, time_ns: float, fewest: int) -> bool:
    """Return whether a rank is late by more than the measurement and the other ranks scatter, most of the time.

    `fewest` iterations must have been seen.
    """
    if len(lateness.late_ns) < fewest or time_ns <= 0:
        return False
    enough = threshold(group, time_ns)
    return lateness.headroom_ns >= enough and share_late(lateness, enough) >= SAME_RANK


def threshold(group: RankGroup, time_ns: float) -> float:
    """Return how late a rank must be to matter, and to be late at all."""
    return max(LATE_SHARE * time_ns, CLEAR * (group.noise_ns or 0))


def share_late(lateness: Lateness, enough: float) -> float:
    """Return the share of iterations in which a rank is late by at least half of `enough`."""
    return float(np.mean(lateness.late_ns >= enough / 2))


def conclude(verdict: Verdict, comparison: RankComparison) -> Finding:
    """Return the finding; it is about the whole job, so that it names no stream."""
    loop = verdict.loop
    location: dict[str, int | str] = {"rank": loop.rank, "device": loop.device}
    if verdict.kernels is not None and not verdict.kernels.even:
        location["kernel"] = verdict.kernels.name
    return Finding(
        rule="straggler",
        severity="critical" if verdict.share >= CRITICAL_SHARE and not loop.single else "warning",
        title=f"{verdict.name} is late, and the other ranks wait for it",
        summary=" ".join(summarize(verdict, comparison)),
        evidence=gather(verdict, comparison),
        advice=ADVICE[verdict.cause.kind],
        headroom_ns_per_iteration=round(verdict.worst.headroom_ns),
        confidence=round(confidence(verdict), 3),
        rank=loop.rank,
        device=loop.device,
        iterations=None if loop.single else affected(verdict),
        location=location,
        parts={"exposed_communication_ns": round(verdict.worst.headroom_ns)},
    )


def summarize(verdict: Verdict, comparison: RankComparison) -> Iterator[str]:
    """Yield the sentences of the summary."""
    usual = "the one marked step that was recorded" if verdict.loop.single else "a usual iteration"
    often = f", in {100 * verdict.consistency:.0f} % of {len(verdict.worst.late_ns)} iterations"
    yield (
        f"In {usual} the other ranks wait {format_ms(verdict.worst.headroom_ns)} "
        f"({100 * verdict.share:.0f} % of it) for this one{'' if verdict.loop.single else often}."
    )
    if verdict.loop.single:
        yield "It comes last to most of the step's collectives; a longer recording says whether it always does."
    if verdict.cause.kind != "unknown":
        yield f"It {SPENDS[verdict.cause.kind]} {format_ms(verdict.cause.extra_ns)} longer than they do."
    if verdict.kernels is not None:
        which = "all about alike" if verdict.kernels.even else f"most of it in {verdict.kernels.name}"
        yield f"The same kernels take {verdict.kernels.ratio:.2f} times as long, {which}."
    if len(verdict.late) > 1:
        yield f"Late as well: {list_ranks(verdict.late[1:])}."
    if comparison.missing:
        yield f"No trace of rank {comparison.missing_text} was given; one of them may be later still."


def list_ranks(late: Sequence[Lateness]) -> str:
    """Return the ranks in words, the first `SHOWN` of them."""
    named = ", ".join(f"rank {each.place[0]}" for each in late[:SHOWN])
    return named + (f" and {len(late) - SHOWN} more" if len(late) > SHOWN else "")


def gather(verdict: Verdict, comparison: RankComparison) -> dict[str, int | float | str | None]:
    """Return the numbers that the finding rests on."""
    row = comparison.ranks.filter(rank=verdict.loop.rank, device=verdict.loop.device).row(0, named=True)
    return {
        "ranks_compared": len(verdict.group.places),
        "ranks_late": len(verdict.late),
        "ranks_missing": comparison.missing_text or None,
        "matched_by": verdict.group.matching or "medians",
        "iterations_compared": len(verdict.worst.late_ns),
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


def confidence(verdict: Verdict) -> float:
    """Return how sure it is that this rank is the one: late every time, and that not by chance, in right iterations."""
    trust = min([verdict.loop.confidence, *(loop.confidence for loop in verdict.others)])
    count, ranks = len(verdict.worst.late_ns), len(verdict.group.places)
    chance = float((1 / ranks) ** (verdict.consistency * count))  # of being last so often when any rank may be
    matched = 1.0 if verdict.group.matching else UNMATCHED
    return trust * verdict.consistency * (1 - chance) * matched * (ONE_STEP if verdict.loop.single else 1)


def affected(verdict: Verdict) -> tuple[int, int]:
    """Return the first and last iteration in which the rank is late."""
    late = verdict.worst.late_ns >= threshold(verdict.group, verdict.time_ns) / 2
    iterations = verdict.worst.iterations[late]
    return int(iterations.min()), int(iterations.max())
