"""The report `deepprof.report/1` as JSON: the contract that scripts are written against.

Keys are never renamed without a new schema number; all are present, null where there is no value. Times are integer
nanoseconds on the trace's own clock. msgspec writes NaN and infinity as null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict

from deepprof.collectors.trace import WORK_ACTIVITIES
from deepprof.diagnosis import MAX_FINDINGS
from deepprof.diagnosis.coverage import UnnamedPart
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.costs import mean_parts
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.loop import Agreement, Loop
from deepprof.render.anatomy import AnatomyBlock, describe_anatomy
from deepprof.render.answer import describe_answer, summarize_answer
from deepprof.render.computed import LoopWorkRow, WorkRow, describe_loop_work, describe_recorded_work
from deepprof.render.ranks import RankBlock, SkewBlock, describe_ranks, describe_skews, list_missing
from deepprof.render.sharing import SharedDeviceBlock, describe_sharing
from deepprof.render.top import TopWorkBlock, describe_top
from deepprof.render.utilization import RooflineBlock, describe_roofline, list_utilization
from deepprof.results.analysis_result import AnalysisResult, AnswerBlock, Recording
from deepprof.version import read_version

SCHEMA = "deepprof.report/1"

Number = int | float | str | None


class _AccountingBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Records of all ranks: `read == kept + Σ dropped`."""

    read: int
    kept: int
    dropped: dict[str, int]
    flagged: dict[str, int]


class _StreamBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One stream and the role it plays."""

    rank: int
    device: int
    stream: int
    role: str
    events: int
    busy_ns: int


class _TraceBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What was read; `busy_ns + idle_ns == span_ns == Σ breakdown`."""

    paths: list[str]
    format: str
    clock: str
    ranks: list[int | None]
    span_ns: int
    busy_ns: int
    idle_ns: int
    breakdown: dict[str, int]
    events: dict[str, int]
    accounting: _AccountingBlock
    streams: list[_StreamBlock]
    notes: list[str]
    matrix_unit_ratio: float | None


class _AgreementBlock(msgspec.Struct, frozen=True, kw_only=True):
    """How far annotations agree with the loop."""

    name: str
    iterations: int
    agreement_ratio: float


class _IterationBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration of a loop; `breakdown` has the parts that are not 0, together `busy_ns + idle_ns`.

    `mfu_ratio` and `hfu_ratio` are null where they are unknown.
    """

    index: int
    start_ns: int
    end_ns: int
    kernels: int
    events: int
    edits: int
    complete: bool
    interval_ns: int | None
    overlap_ratio: float | None
    htod_bytes: int
    busy_ns: int
    idle_ns: int
    breakdown: dict[str, int]
    mfu_ratio: float | None = None
    hfu_ratio: float | None = None


class _IterationTimeBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The spread of the iteration time; null where no complete iteration has one.

    `ci95` is the 95 % confidence interval of the median; null for fewer than five iterations.
    """

    median: int | None
    p5: int | None
    p95: int | None
    ci95: tuple[int, int] | None
    warmup_excluded: int


MetricValue = int | float | _IterationTimeBlock | dict[str, int] | None


class _OutsideBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What ran on the main stream before the first iteration or after the last."""

    kernels: int
    span_ns: int


class _LoopBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One repeated iteration on one main stream."""

    rank: int
    device: int
    stream: int
    period: int
    confidence: float
    evidence: str
    boundary_source: str
    boundary_confidence: float
    annotation_agreement: _AgreementBlock | None
    cycles: list[dict[str, int | str]]
    nested: list[dict[str, int]]
    prologue: _OutsideBlock
    epilogue: _OutsideBlock
    coverage_ratio: float
    iterations: list[_IterationBlock]
    whole_iterations: int | None
    metrics: dict[str, MetricValue]
    anatomy: AnatomyBlock | None
    roofline: RooflineBlock | None
    work: list[LoopWorkRow]
    matrix_unit_ratio: float | None


class _FindingBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of lost time."""

    rule: str
    severity: str
    title: str
    summary: str
    evidence: dict[str, Number]
    headroom_ns_per_iteration: int | None
    confidence: float
    rank: int | None
    iterations: tuple[int, int] | None
    location: dict[str, int | str] | None
    caused_by: str | None
    advice: str
    device: int | None
    stream: int | None
    parts: dict[str, int]


class _UnnamedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A large part of a loop's time that no finding is about."""

    rank: int
    device: int
    stream: int
    part: str
    share_ratio: float
    why: str


class _ReportBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report."""

    schema: str
    deepprof: str
    trace: _TraceBlock
    loops: list[_LoopBlock]
    no_loop_reason: str | None
    headline: AnswerBlock
    work: list[WorkRow]
    top_work: list[TopWorkBlock]
    ranks: list[RankBlock]
    missing_ranks: list[int] | None
    collectives: list[SkewBlock]
    shared_devices: list[SharedDeviceBlock]
    findings: list[_FindingBlock]
    unnamed: list[_UnnamedBlock]
    unexamined: list[str]


def encode(analysis: AnalysisResult, *, limit: int | None = MAX_FINDINGS) -> str:
    """Return the report as indented JSON that ends with a newline; `limit` is the most findings, None for all."""
    compact = msgspec.json.encode(report(analysis, limit=limit))
    return msgspec.json.format(compact, indent=2).decode() + "\n"


def report(analysis: AnalysisResult, *, limit: int | None = MAX_FINDINGS) -> _ReportBlock:
    """Return the report as a value; `limit` is the most findings, None for all."""
    return _ReportBlock(
        schema=SCHEMA,
        deepprof=read_version(),
        trace=_describe_traces(analysis),
        loops=[_describe_loop(loop) for loop in analysis.loops],
        no_loop_reason=analysis.no_loop_reason,
        headline=describe_headline(analysis),
        work=describe_recorded_work(analysis),
        top_work=describe_top(analysis),
        ranks=describe_ranks(analysis),
        missing_ranks=list_missing(analysis),
        collectives=describe_skews(analysis),
        shared_devices=describe_sharing(analysis),
        findings=[_describe_finding(finding) for finding in analysis.findings[:limit]],
        unnamed=[_describe_unnamed(left) for left in analysis.unnamed],
        unexamined=[readable(sentence) for sentence in analysis.unexamined],
    )


def describe_headline(analysis: AnalysisResult) -> AnswerBlock:
    """Return the answer."""
    answer = analysis.answer
    part, share = next(iter(answer.groups.items()), (None, None))
    return AnswerBlock(
        kind=answer.kind,
        part=part,
        part_share=_round_share(share),
        cause=None if answer.loss is None else answer.loss.rule,
        share=_round_share(answer.loss_ratio),
        confidence=answer.confidence,
        summary=readable(summarize_answer(analysis)),
        text=[readable(line) for line in describe_answer(analysis)],
    )


def _describe_traces(analysis: AnalysisResult) -> _TraceBlock:
    recordings, summary = analysis.recordings, analysis.summary
    return _TraceBlock(
        paths=[readable(recording.path) for recording in recordings],
        format=join(recording.format for recording in recordings),
        clock="unix" if all(recording.clock == "unix" for recording in recordings) else "session",
        ranks=[recording.rank for recording in recordings],
        span_ns=summary.span_ns,
        busy_ns=summary.busy_ns,
        idle_ns=summary.idle_ns,
        breakdown={name: int(analysis.breakdown[name].sum()) for name in PART_NAMES},
        events=dict.fromkeys(WORK_ACTIVITIES, 0) | dict(summary.events),
        accounting=_account(recordings),
        streams=[msgspec.convert(row, _StreamBlock) for row in analysis.streams.to_dicts()],
        notes=list_notes(analysis),
        matrix_unit_ratio=_round_share(analysis.matrix_unit_ratio),
    )


def _round_share(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 6)


def list_notes(analysis: AnalysisResult) -> list[str]:
    """Return the notes of the captures, and which main streams have no loop; each once."""
    notes = [note for recording in analysis.recordings for note in recording.notes]
    return list(dict.fromkeys(readable(note) for note in (*notes, *analysis.missing)))


def _account(recordings: Iterable[Recording]) -> _AccountingBlock:
    accounts = [recording.accounting for recording in recordings]
    return _AccountingBlock(
        read=sum(each.read for each in accounts),
        kept=sum(each.kept for each in accounts),
        dropped=_add_up(each.dropped for each in accounts),
        flagged=_add_up(each.flagged for each in accounts),
    )


def _add_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _describe_unnamed(left: UnnamedPart) -> _UnnamedBlock:
    """Return the block of a part without a finding."""
    values = asdict(left)
    share = values.pop("share")
    return _UnnamedBlock(**values, share_ratio=round(share, 4))


def _describe_loop(loop: Loop) -> _LoopBlock:
    used = list_utilization(loop.roofline)
    return _LoopBlock(
        rank=loop.rank,
        device=loop.device,
        stream=loop.stream,
        period=loop.period,
        confidence=loop.confidence,
        evidence=readable(loop.evidence),
        boundary_source=loop.boundary_source,
        boundary_confidence=loop.boundary_confidence,
        annotation_agreement=_describe_agreement(loop.agreement),
        cycles=[dict(cycle) for cycle in loop.cycles],
        nested=[dict(level) for level in loop.nested],
        prologue=_OutsideBlock(kernels=loop.prologue.kernels, span_ns=loop.prologue.span_ns),
        epilogue=_OutsideBlock(kernels=loop.epilogue.kernels, span_ns=loop.epilogue.span_ns),
        coverage_ratio=loop.coverage_ratio,
        iterations=[_describe_iteration(row, used.get(row["index"], {})) for row in loop.table.to_dicts()],
        whole_iterations=loop.whole_iterations,
        metrics=_describe_metrics(loop),
        anatomy=describe_anatomy(loop),
        roofline=describe_roofline(loop.roofline),
        work=describe_loop_work(loop),
        matrix_unit_ratio=None if loop.work is None else _round_share(loop.work.matrix_unit_ratio),
    )


def _describe_iteration(row: Mapping[str, Any], used: Mapping[str, Any]) -> _IterationBlock:
    """Return the block of one row of a loop's table; `used` are its MFU and HFU, where available."""
    known = {name: row[name] for name in _IterationBlock.__struct_fields__ if name in row}
    return _IterationBlock(**known, **used, breakdown={name: row[name] for name in PART_NAMES if row[name]})


def _describe_agreement(agreement: Agreement | None) -> _AgreementBlock | None:
    if agreement is None:
        return None
    name = readable(agreement.name)
    return _AgreementBlock(name=name, iterations=agreement.iterations, agreement_ratio=agreement.ratio)


def _describe_metrics(loop: Loop) -> dict[str, MetricValue]:
    """Return the paper's Table III, the iteration time, and the mean time of every part of an iteration."""
    time = loop.metrics.iteration_ns
    spread = _IterationTimeBlock(
        median=time.median if time else None,
        p5=time.p5 if time else None,
        p95=time.p95 if time else None,
        ci95=None if time is None or time.low is None or time.high is None else (time.low, time.high),
        warmup_excluded=loop.metrics.warmup_excluded,
    )
    return {**loop.metrics.values, "iteration_ns": spread, "breakdown": _average_parts(loop)}


def _average_parts(loop: Loop) -> dict[str, int] | None:
    """Return the mean of every part over the usual iterations, None where there are none."""
    return {name: round(mean) for name, mean in mean_parts(loop).items()} or None


def _describe_finding(finding: Finding) -> _FindingBlock:
    values: dict[str, Any] = asdict(finding) | {"evidence": _clean(finding.evidence)}
    values["location"] = None if finding.location is None else _clean(finding.location)
    texts = {key: readable(value) for key, value in values.items() if isinstance(value, str)}
    return _FindingBlock(**(values | texts))


def _clean(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with text that can be encoded."""
    return {key: readable(value) if isinstance(value, str) else value for key, value in values.items()}


def join(names: Iterable[str]) -> str:
    """Return the distinct names, in the order of their first appearance."""
    return ", ".join(dict.fromkeys(names))


def readable(text: str) -> str:
    """Return `text` without the lone surrogates that Python uses for bytes of file names that are not UTF-8."""
    return text.encode("utf-8", "replace").decode()
