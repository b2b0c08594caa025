"""The first sentence of an analysis in the words of the benchmark."""

from __future__ import annotations

from benchmarks.unseen import vocabulary as words
from benchmarks.unseen.judging import Said
from deepprof.analysis import Analysis
from deepprof.diagnosis.engine import rules_on_work
from deepprof.diagnosis.finding import Finding
from deepprof.render.answer import MINOR

__all__ = ["CAUSES", "read_said"]

# Rule of a finding → cause. What kernels compute is no cause here: rules on that state nothing of what was planted.
CAUSES: dict[str, str] = {
    "input-bound": words.DATA_LOADING,
    "host-bound": words.HOST_WORK,
    "launch-bound": words.LAUNCHING,
    "small-kernels": words.LAUNCHING,
    "graph-growth": words.HOST_WORK,
    "other-thread": words.OTHER_THREAD,
    "sync-bound": words.SYNCHRONIZATION,
    "blocked-call": words.BLOCKED_CALL,
    "late-submission": words.LATE_SUBMISSION,
    "allocator-bound": words.ALLOCATION,
    "first-use": words.FIRST_USE,
    "copy-bound": words.COPY_TO_DEVICE,
    "device-copies": words.COPY_WITHIN,
    "communication-bound": words.COMMUNICATION,
    "straggler": words.LATE_RANK,
    "late-start": words.LATE_RANK,
    "slow-iterations": words.STALL,
}
KINDS = {"recording": words.SINGLE_PASS, "no work": words.HOST_ONLY}


def read_said(analysis: Analysis) -> Said:
    """Return what the analysis states first."""
    answer = analysis.answer
    part, share = next(iter(answer.groups.items()), ("", 0.0))
    cause, cost = _find_cause(analysis)
    return Said(
        kind=KINDS.get(answer.kind, answer.kind),
        part=part,
        part_share=share,
        cause=cause,
        cause_share=cost if cause else 0.0,
        confidence=answer.confidence or 0.0,
        loops=0 if answer.loop is None else answer.loop.iterations.height,
    )


def _find_cause(analysis: Analysis) -> tuple[str, float]:
    """Return the cause that is blamed first, with its share; or the wait that is stated to have no recognized cause."""
    answer = analysis.answer
    if answer.loss is not None:
        return _name_cause(answer.loss), answer.loss_ratio or 0.0
    if analysis.unnamed:
        return words.UNKNOWN, analysis.unnamed[0].share
    unknown = 0.0 if answer.loop is not None else answer.parts.get("idle_unknown_ns", 0.0)
    return (words.UNKNOWN, unknown) if unknown >= MINOR else ("", 0.0)


def _name_cause(finding: Finding) -> str:
    """Return the cause that a finding blames."""
    if finding.rule == "copy-bound" and "to the host" in finding.title:
        return words.COPY_TO_HOST
    if "interval_share_ratio" in finding.evidence:  # between iterations, for a reason that was not recorded
        return words.UNKNOWN
    return CAUSES.get(finding.rule, "" if finding.rule in rules_on_work() else words.UNKNOWN)
