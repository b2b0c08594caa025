"""One rank lasts longer than the others for equal kernels, nearly all of them: its device is slower, not its work.

Where the others wait for it in collectives, this is why they do, and `straggler` is a symptom.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from deepprof.diagnosis import Severity
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.lateness import find_late
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import mean_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.comparison import RankComparison, RankGroup
from deepprof.metrics.ranks.facts import RankFacts, longest_loops, places_of
from deepprof.metrics.ranks.slower import SlowerRank, find_slower
from deepprof.plurals import counted

CERTAINTY = 0.85
LIMITS = SeverityLimits(warning=0.05, critical=0.1)  # of an iteration: all ranks lose it where they wait
SHOWN = 8  # ranks named in a sentence
ADVICE = (
    "See what limits the device while the job runs: nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE (throttle "
    "reasons, clocks, power limit; rocm-smi on AMD), and compare with another rank's. Set the same power limit and "
    "clocks on all devices, look for other processes on it (nvidia-smi pmon) and check its cooling; start the job with "
    "another device or node in its place. If the slowness moves with the rank, it is not the device. Record all ranks "
    "again afterwards: the kernels' times should be alike."
)


@rule("slower-device", subject="ranks", limits=LIMITS, explains={"straggler"})
def slower_device(comparison: RankComparison, loops: Sequence[Loop], ranks: Sequence[RankFacts]) -> Iterator[Finding]:
    """Yield `slower-device` for the slowest rank of every program, where equal kernels last longer on it."""
    chosen, facts = longest_loops(loops), places_of(ranks)
    for group in comparison.groups:
        slower = find_slower({place: facts[place] for place in group.places})
        if slower and chosen[slower[0].place].single is None:
            yield _conclude(slower, group, chosen)


def _conclude(slower: Sequence[SlowerRank], group: RankGroup, loops: Mapping[tuple[int, int], Loop]) -> Finding:
    """Return the finding: on the whole job where the others wait for the rank, else on its loop alone."""
    worst, loop = slower[0], loops[slower[0].place]
    lost_ns = mean_of(loop, "compute_ns") * (1 - 1 / worst.ratio)
    late_ns = _find_lateness(worst, group, loops)
    saved_ns = round(lost_ns if late_ns is None else min(lost_ns, late_ns))
    share = saved_ns / max(1.0, mean_of(loop, "iteration_ns"))
    waited, others = late_ns is not None, "the others" if len(group.places) > 2 else "the other"
    return Finding(
        rule="slower-device",
        severity=_rate(share, group, waited=waited),
        title=(
            f"{_name(worst.place, group)} takes {format_percent(worst.ratio - 1)} longer than {others} for the same "
            f"kernels, {format_percent(worst.even_ratio)} of their time alike"
        ),
        summary=" ".join(_summarize(slower, group, (lost_ns, late_ns, share))),
        advice=ADVICE,
        evidence={
            "ranks_compared": len(group.places),
            "ranks_slower": len(slower),
            "kernel_time_ratio": round(worst.ratio, 4),
            "even_ratio": round(worst.even_ratio, 4),
            "kinds_compared": worst.kinds,
            "compared_ratio": round(worst.compared_ratio, 4),
            "slower_ns": round(lost_ns),
            "waited_ns": None if late_ns is None else round(late_ns),
            "share_ratio": round(share, 4),
        },
        headroom_ns_per_iteration=saved_ns,
        confidence=round(CERTAINTY * min(loops[place].confidence for place in group.places), 3),
        rank=loop.rank,
        device=loop.device,
        stream=None if waited else loop.stream,
        location={"rank": loop.rank, "device": loop.device},
        parts={"exposed_communication_ns" if waited else "compute_ns": saved_ns},
    )


def _find_lateness(slower: SlowerRank, group: RankGroup, loops: Mapping[tuple[int, int], Loop]) -> float | None:
    """Return how long the other ranks usually wait for the slower one, None where they do not."""
    spreads = [loops[place].metrics.iteration_ns for place in group.places]
    time_ns = float(np.median([spread.median for spread in spreads if spread is not None] or [0]))
    return next((each.headroom_ns for each in find_late(group, time_ns) if each.place == slower.place), None)


def _rate(share: float, group: RankGroup, *, waited: bool) -> Severity:
    """Return how bad it is: a remark where ranks are known to wait for each other, but not for this one."""
    return LIMITS.rate(share) if waited or group.waits.is_empty() else "info"


def _summarize(
    slower: Sequence[SlowerRank], group: RankGroup, times: tuple[float, float | None, float]
) -> Iterator[str]:
    """Yield the sentences of the summary; `times` are what is lost and waited for, and the share of an iteration."""
    worst, (lost_ns, late_ns, share) = slower[0], times
    yield (
        f"{counted(worst.kinds, 'kernel')} of the same name, grid and block, {format_percent(worst.compared_ratio)} of "
        f"its kernels' time, take {worst.ratio:.2f} times as long as on {_name_others(group)}. "
        "Equal kernels do equal work, so that the device is slower."
    )
    yield f"At their speed its computing would be {format_ms(lost_ns)} shorter per iteration."
    if late_ns is not None:
        waits = "The others wait" if len(group.places) > 2 else "The other one waits"
        yield f"{waits} {format_ms(late_ns)} for it; at most {format_percent(share)} of an iteration is saved."
    elif not group.waits.is_empty():
        yield "No rank waits for it at collectives for long."
    if len(slower) > 1:
        yield f"Slower as well: {_list_ranks(slower[1:], group)}."


def _name_others(group: RankGroup) -> str:
    count = len(group.places) - 1
    return "the other rank" if count == 1 else f"{count} other ranks (median)"


def _list_ranks(slower: Sequence[SlowerRank], group: RankGroup) -> str:
    """Return the ranks in words, the first `SHOWN` of them."""
    named = ", ".join(f"{_name(each.place, group).lower()} ({each.ratio:.2f} times)" for each in slower[:SHOWN])
    return named + (f" and {len(slower) - SHOWN} more" if len(slower) > SHOWN else "")


def _name(place: tuple[int, int], group: RankGroup) -> str:
    """Return a rank in words, with its device where the rank has several."""
    several = sum(rank == place[0] for rank, _ in group.places) > 1
    return f"Rank {place[0]}" + (f", device {place[1]}," if several else "")
