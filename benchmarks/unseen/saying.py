"""The first sentence of an analysis in the words of the benchmark."""

from __future__ import annotations

from benchmarks.unseen import vocabulary as words
from benchmarks.unseen.judging import Said
from deepprof.analysis import Analysis
from deepprof.diagnosis.engine import rules_on_work
from deepprof.diagnosis.finding import Finding

__all__ = ["CAUSES", "read_said"]

# Rule of a finding → cause. What kernels compute is no cause here: rules on that say nothing of what was planted.
CAUSES: dict[str, str] = {
    "input-bound": words.DATA_LOADING,
    "host-bound": words.HOST_WORK,
    "launch-bound": words.LAUNCHING,
    "small-kernels": words.LAUNCHING,
    "graph-growth": words.HOST_WORK,
    "sync-bound": words.SYNCHRONIZATION,
    "blocked-call": words.BLOCKED_CALL,
    "allocator-bound": words.ALLOCATION,
    "first-use": words.FIRST_USE,
    "copy-bound": words.COPY_TO_DEVICE,
    "device-copies": words.COPY_WITHIN,
    "communication-bound": words.COMMUNICATION,
    "straggler": words.LATE_RANK,
    "slow-iterations": words.STALL,
}
KINDS = {"recording": words.SINGLE_PASS, "no work": words.HOST_ONLY}


def read_said(analysis: Analysis) -> Said:
    """Return what the analysis says first."""
    answer = analysis.answer
    part, share = next(iter(answer.groups.items()), ("", 0.0))
    cause = "" if answer.loss is None else _name_cause(answer.loss)
    return Said(
        kind=KINDS.get(answer.kind, answer.kind),
        part=part,
        part_share=share,
        cause=cause,
        cause_share=(answer.loss_ratio or 0.0) if cause else 0.0,
        confidence=answer.confidence or 0.0,
        loops=0 if answer.loop is None else answer.loop.iterations.height,
    )


def _name_cause(finding: Finding) -> str:
    """Return the cause that a finding blames."""
    if finding.rule == "copy-bound" and "to the host" in finding.title:
        return words.COPY_TO_HOST
    return CAUSES.get(finding.rule, "" if finding.rule in rules_on_work() else words.UNKNOWN)
