"""The first sentence of an analysis in the words of the benchmark."""

from __future__ import annotations

from benchmarks.unseen import vocabulary as words
from benchmarks.unseen.judging import Said
from deepprof.analysis import Analysis
from deepprof.diagnosis.engine import rules_on_work
from deepprof.diagnosis.finding import Finding
from deepprof.render.answer import choose_loop, describe_answer, find_mean

__all__ = ["CAUSES", "read_said"]

# Rule of a finding → cause. What kernels compute is no cause here: rules on that say nothing of what was planted.
CAUSES: dict[str, str] = {
    "input-bound": words.DATA_LOADING,
    "host-bound": words.HOST_WORK,
    "launch-bound": words.LAUNCHING,
    "small-kernels": words.LAUNCHING,
    "graph-growth": words.HOST_WORK,
    "sync-bound": words.SYNCHRONIZATION,
    "allocator-bound": words.ALLOCATION,
    "first-use": words.FIRST_USE,
    "copy-bound": words.COPY_TO_DEVICE,
    "device-copies": words.COPY_WITHIN,
    "communication-bound": words.COMMUNICATION,
    "straggler": words.LATE_RANK,
    "slow-iterations": words.STALL,
}


def read_said(analysis: Analysis) -> Said:
    """Return what the analysis says first: before answers, the headline, and computing where nothing is lost."""
    loop, said = choose_loop(analysis), analysis.headline
    step = any(each.top.over == "marked step" for each in analysis.stretches)
    kind = words.TRAINING_LOOP if loop is not None else words.MARKED_STEP if step else ""
    lines = " ".join(describe_answer(analysis))
    computes = loop is not None and "of it the device computes" in lines and not loop.parts.is_empty()
    share = float(loop.usual["compute_ns"].mean() or 0) / (find_mean(loop) or 1) if loop and computes else 0.0
    return Said(
        kind=kind,
        part=words.COMPUTING if computes else "",
        part_share=share,
        cause="" if said is None else _name_cause(said),
        cause_share=0.0 if said is None else float(said.evidence.get("share_ratio") or 0.0),
        confidence=0.0 if said is None else said.confidence,
        loops=0 if loop is None else loop.iterations.height,
    )


def _name_cause(finding: Finding) -> str:
    """Return the cause that a finding blames."""
    if finding.rule == "copy-bound" and "to the host" in finding.title:
        return words.COPY_TO_HOST
    return CAUSES.get(finding.rule, "" if finding.rule in rules_on_work() else words.UNKNOWN)
