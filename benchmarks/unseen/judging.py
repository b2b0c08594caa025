"""What an analysis states against the truth: plainly right, acceptable, silent or wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.unseen.truth import Truth, View
from benchmarks.unseen.vocabulary import MARKED_STEP, NOTHING, SINGLE_PASS, START_UP

__all__ = ["ACCEPTABLE", "PLAINLY_RIGHT", "SILENT", "VERDICTS", "WRONG", "Said", "judge", "judge_loops"]

PLAINLY_RIGHT, ACCEPTABLE, SILENT, WRONG = "plainly right", "acceptable", "silent", "wrong"
VERDICTS = (PLAINLY_RIGHT, ACCEPTABLE, SILENT, WRONG)
WITHIN = 0.03  # of a share, and of the largest one for what counts as largest too
PASSES = frozenset({MARKED_STEP, SINGLE_PASS, START_UP})  # one another's names
MISSED_FROM = 3  # iterations: fewer need not be found
INNER = 1.5  # times as many iterations as there are: an inner loop
SLACK = 0.02  # of iterations; one more or less at every end of a capture is no error
ENDS = 2


@dataclass(frozen=True)
class Said:
    """The first sentence of an answer, in the benchmark's words.

    `part` is the largest part of the time, `cause` what is blamed first, "" where none is. `loops` is the number of
    iterations of the main loop, 0 where none was found.
    """

    kind: str
    part: str
    part_share: float
    cause: str
    cause_share: float
    confidence: float
    loops: int


def judge(truth: Truth, said: Said) -> str:
    """Return the verdict on what was stated."""
    kind = is_kind(truth, said)
    something = truth.parts or truth.views[0].largest
    if not said.cause and not said.part and something:
        return SILENT
    if kind and any(is_part(view, said) and is_cause(view, truth, said) for view in truth.views):
        return PLAINLY_RIGHT
    if said.cause in truth.acceptable and said.cause != NOTHING:
        return ACCEPTABLE
    part = any(is_part(view, said) for view in truth.views)
    return ACCEPTABLE if kind and part and not said.cause else WRONG


def is_kind(truth: Truth, said: Said) -> bool:
    """Return whether the kind of the recording is right."""
    allowed = {truth.kind, *truth.also}
    return said.kind in allowed or (truth.kind in PASSES and said.kind in PASSES)


def is_part(view: View, said: Said) -> bool:
    """Return whether the largest part is named, with its share; none where no part was recorded."""
    if not view.parts:
        return not said.part
    return is_largest(view.parts, said.part) and abs(view.parts[said.part] - said.part_share) <= WITHIN


def is_cause(view: View, truth: Truth, said: Said) -> bool:
    """Return whether the cause that costs most is named first, with its share; or none where there is none."""
    if not said.cause:
        return view.largest == NOTHING or NOTHING in truth.acceptable
    same = abs(view.causes.get(said.cause, 0.0) - said.cause_share) <= WITHIN
    return view.largest != NOTHING and is_largest(view.compared, said.cause) and same


def is_largest(shares: Mapping[str, float], name: str) -> bool:
    """Return whether a name has the largest share, or one that cannot be told from it."""
    return name in shares and shares[name] >= max(shares.values()) - WITHIN


@dataclass(frozen=True)
class LoopVerdict:
    """How the iterations were found: `false` where there are none, `inner` ones in place of them, or `missed`."""

    false: bool
    inner: bool
    missed: bool
    counted: bool


def judge_loops(truth: Truth, said: Said) -> LoopVerdict:
    """Return the verdict on the number of iterations."""
    most = max(truth.counts)
    return LoopVerdict(
        false=said.loops > 0 and most == 0,
        inner=most > 0 and said.loops > INNER * most + ENDS,
        missed=truth.loops >= MISSED_FROM and 0 not in truth.counts and said.loops == 0,
        counted=any(abs(said.loops - count) <= max(ENDS * (count > 0), SLACK * count) for count in truth.counts),
    )
