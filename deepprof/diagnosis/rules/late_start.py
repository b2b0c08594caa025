"""One rank starts late, and the others wait for it in their first collective: once, and not in every iteration.

The evidence is how much longer ranks wait in collectives until their iterations are the usual ones than they do later,
which needs no common clock: the one that comes last does not wait. A rank that is late all the time is a `straggler`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import mean_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.comparison import RankComparison, RankGroup
from deepprof.metrics.ranks.facts import RankFacts, longest_loops
from deepprof.plurals import counted, verb

LEAST_OF_RECORDING = 0.1
WAITED_FOR = 0.5  # of the longest wait: ranks that wait less are those that come late
SHOWN = 8  # ranks named in a sentence
CERTAINTY = 0.9  # what is recorded before the first iteration may be something else than the start
COMMUNICATION = "exposed_communication_ns"
ADVICE = (
    "Measure from the second iteration on, because this happens once. To start sooner, let all ranks load weights, "
    "compile and fill caches at the same time, and before the first collective; start their processes together. A "
    "barrier does not shorten the wait, it moves it."
)


class _FirstWait(Struct, frozen=True):
    """How long a rank's device waits in collectives at its start beyond what it does later, and its recorded time."""

    loop: Loop
    waiting_ns: float
    recorded_ns: int


@rule("late-start", subject="ranks")
def late_start(comparison: RankComparison, loops: Sequence[Loop], _: Sequence[RankFacts]) -> Iterator[Finding]:
    """Yield `late-start`, a remark, for every group of ranks that waits for some of its ranks to start."""
    chosen = longest_loops(loops)
    for group in comparison.groups:
        waits = list(_measure_first_waits(group, chosen))
        most = max((each.waiting_ns for each in waits), default=0.0)
        late = [each for each in waits if each.waiting_ns < WAITED_FOR * most]
        if late and len(waits) == len(group.places):
            yield from _conclude(late, [each for each in waits if each not in late])


def _measure_first_waits(group: RankGroup, loops: Mapping[tuple[int, int], Loop]) -> Iterator[_FirstWait]:
    """Yield the wait of every device in a loop, until its first usual iteration begins, or its first one ends."""
    for loop in (loops[place] for place in group.places):
        timeline = loop.timeline
        if loop.single or timeline is None or loop.parts.is_empty() or loop.usual.is_empty():
            continue
        begin, end = timeline.bounds[[0, -1]]
        first = loop.iterations.row(0, named=True)
        until = max(first["start_ns"] + first["busy_ns"] + first["idle_ns"], int(loop.usual["start_ns"][0]))
        waited = timeline.split(np.array([begin]), np.array([until]))[COMMUNICATION][0]
        before = int((loop.iterations["start_ns"] < until).sum())
        iterations = before + loop.prologue.kernels / max(1, loop.period)
        yield _FirstWait(loop, max(0.0, float(waited) - iterations * mean_of(loop, COMMUNICATION)), int(end - begin))


def _conclude(late: Sequence[_FirstWait], waiting: Sequence[_FirstWait]) -> Iterator[Finding]:
    """Yield the finding where the ranks that come in time wait for a good part of their recordings."""
    least = min(each.waiting_ns for each in late)
    waited_ns = float(np.median([each.waiting_ns for each in waiting])) - least
    share = waited_ns / max(1.0, float(np.median([each.recorded_ns for each in waiting])))
    if share < LEAST_OF_RECORDING:
        return
    first = min(late, key=lambda each: each.waiting_ns).loop
    names, several = _list_ranks(late), len({each.loop.rank for each in late})
    yield Finding(
        rule="late-start",
        severity="info",
        title=f"{names} {verb(several, 'starts', 'start')} late, and the other ranks wait in their first iteration",
        summary=(
            f"At the start {counted(len(waiting), 'rank')} {verb(len(waiting), 'waits', 'wait')} "
            f"{format_ms(waited_ns)} longer in collectives than in usual iterations ({format_percent(share)} of the "
            f"recording), until {names[:1].lower()}{names[1:]} {verb(several, 'arrives', 'arrive')}. A profiler that "
            "is started later on some ranks looks the same."
        ),
        evidence={
            "waiting_ns": round(waited_ns),
            "share_ratio": round(share, 4),
            "ranks_waiting": len(waiting),
            "ranks_late": len(late),
        },
        advice=ADVICE,
        confidence=round(CERTAINTY * min(each.loop.confidence for each in (*late, *waiting)), 3),
        rank=first.rank,
        device=first.device,
        location={"rank": first.rank, "device": first.device},
    )


def _list_ranks(late: Sequence[_FirstWait]) -> str:
    """Return the ranks in words, the first `SHOWN` of them."""
    numbers = sorted({each.loop.rank for each in late})
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return f"Rank{'s' * (len(numbers) > 1)} {', '.join(str(number) for number in numbers[:SHOWN])}{more}"
