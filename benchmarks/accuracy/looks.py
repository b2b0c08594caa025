"""How a case is put to the miner: with the kernels' order alone, and with the idle gaps as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.accuracy.cycles import Seen, see
from benchmarks.accuracy.kernels import Ints
from benchmarks.accuracy.scoring import Score, best, score, score_all
from benchmarks.accuracy.truth import Made
from deepprof.mining import Evidence, MinedLoop, MiningResult, find_loops

LOOKS = ("kernels", "gaps")


@dataclass(frozen=True)
class Case:
    """One sequence to examine: the row of a table that it belongs to, its number there, how to make it, what it is."""

    section: str
    row: str
    number: int
    make: Callable[[], Made]
    about: str = ""


@dataclass(frozen=True)
class FoundLoop:
    """A found loop as the scores need it."""

    period: int
    confidence: float
    starts: Ints


@dataclass(frozen=True)
class Outcome:
    """What one look at one case showed; `loops` has confidence, right and fully right of every loop found.

    `cycles` states which true cycles were seen, `strays` counts those that are not true.
    """

    section: str
    row: str
    number: int
    look: str
    symbols: int
    wanted: tuple[int, ...]
    periods: tuple[int, ...]
    score: Score
    loops: tuple[tuple[float, float, float], ...]
    cycles: tuple[Seen, ...]
    strays: int
    reason: str
    ns: int

    @property
    def confidence(self) -> float:
        """Of the surest loop, 0 without one."""
        return max((confidence for confidence, _, _ in self.loops), default=0.0)


def mined(made: Made, evidence: Evidence) -> MiningResult:
    """Return the loops that the miner finds, or why there is none."""
    return find_loops(made.symbols, evidence, coarse=made.coarse)


def look_at(case: Case) -> list[Outcome]:
    """Return the outcomes of all examines a case; gaps are examined only where there are some.

    Where waits are known, the times are examined as a whole.
    """
    made = case.make()
    if made.syncs is not None:
        known = Evidence(gaps=made.gaps, durations=made.durations, copies=made.copies, syncs=made.syncs)
        return [outcome(case, made, "times", known)]
    looks = {"kernels": Evidence()} | ({} if made.gaps is None else {"gaps": Evidence(gaps=made.gaps)})
    if made.gaps is None and made.optimizer is not None:
        looks["names"] = Evidence(optimizer=made.optimizer)
    return [outcome(case, made, look, evidence) for look, evidence in looks.items()]


def outcome(case: Case, made: Made, look: str, evidence: Evidence) -> Outcome:
    """Return the outcome of one look."""
    begin = time.perf_counter_ns()
    answer = mined(made, evidence)
    took = time.perf_counter_ns() - begin
    found = [FoundLoop(loop.period, loop.confidence, whole_starts(loop)) for loop in answer.loops]
    cycles, strays = see(made, answer.loops)
    return Outcome(
        section=case.section,
        row=case.row,
        number=case.number,
        look=look,
        symbols=len(made.symbols),
        wanted=tuple(truth.period for truth in made.truths),
        periods=tuple(loop.period for loop in found),
        score=score_all(found, made.truths),
        loops=tuple(verdict(loop, made) for loop in found),
        cycles=cycles,
        strays=strays,
        reason=answer.reason or "",
        ns=took,
    )


def whole_starts(loop: MinedLoop) -> Ints:
    """Return the first symbols of the loop's whole iterations."""
    return np.asarray(loop.iterations.first[loop.iterations.complete], np.int64)


def verdict(loop: FoundLoop, made: Made) -> tuple[float, float, float]:
    """Return a found loop's confidence, and whether it is right and fully right about the true loop nearest to it."""
    fit = best([score(loop, truth) for truth in (*made.truths, *made.asides)])
    return loop.confidence, fit.right, fit.fully
