"""The findings with their evidence as small pictures, and where each is seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from deepprof.diagnosis.answer import find_time
from deepprof.diagnosis.finding import Finding
from deepprof.render.answer import describe_location
from deepprof.render.origin import FORMATS
from deepprof.render.text import describe_unnamed
from deepprof.render.units import ABSENT
from deepprof.render.wording import wording_of
from deepprof.web.documents.pictures import Bars, Jump, TrendPicture, draw_bars, draw_trends, list_jumps
from deepprof.web.documents.places import find_loop_number, read_source
from deepprof.web.documents.schema import CodePlace, Figure
from deepprof.web.documents.texts import tidy

if TYPE_CHECKING:
    from deepprof.analysis import Analysis


class FindingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as the report has it; `cause` is the number of the one that explains it."""

    rule: str
    severity: Literal["info", "warning", "critical"]
    title: str
    summary: str
    advice: str
    confidence: float
    headroom_ns: int | None
    share_ratio: float | None
    loop: int | None
    rank: int | None
    iterations: tuple[int, int] | None
    place: str
    source: CodePlace | None
    cause: int | None
    evidence: list[Figure]
    trends: list[TrendPicture]
    bars: list[Bars]
    jumps: list[Jump]


class FindingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All findings, one root cause first; `unnamed` and `unexamined` are sentences, as in the report."""

    schema: Literal["deepprof.view.findings/1"] = "deepprof.view.findings/1"
    findings: list[FindingEntry]
    unnamed: list[str]
    unexamined: list[str]


def write_findings(analysis: Analysis) -> FindingsDocument:
    """Return all findings of an analysis, with pictures of what they rest on."""
    causes = {each.rule: k for k, each in reversed([*enumerate(analysis.findings)]) if each.caused_by is None}
    return FindingsDocument(
        findings=[_describe(finding, analysis, causes) for finding in analysis.findings],
        unnamed=[tidy(sentence) for sentence in describe_unnamed(analysis)],
        unexamined=[tidy(sentence) for sentence in analysis.unexamined],
    )


def _describe(finding: Finding, analysis: Analysis, causes: Mapping[str, int]) -> FindingEntry:
    """Return one finding; `causes` are the numbers of root causes by rule."""
    number, mean = find_loop_number(finding, analysis), find_time(finding, analysis)
    cost = finding.headroom_ns_per_iteration
    return FindingEntry(
        rule=finding.rule,
        severity=finding.severity,
        title=tidy(finding.title),
        summary=tidy(finding.summary),
        advice=tidy(finding.advice),
        confidence=finding.confidence,
        headroom_ns=cost,
        share_ratio=None if cost is None or not mean else cost / mean,
        loop=number,
        rank=finding.rank,
        iterations=finding.iterations,
        place=tidy(describe_location(finding.location or {}, wording_of(analysis))),
        source=read_source(finding.location),
        cause=None if finding.caused_by in {None, finding.rule} else causes.get(str(finding.caused_by)),
        evidence=[_show(name, value) for name, value in finding.evidence.items()],
        trends=[] if number is None else draw_trends(finding, analysis.loops[number]),
        bars=[] if number is None else draw_bars(finding, analysis.loops[number], wording_of(analysis)),
        jumps=list_jumps(finding, analysis, number),
    )


def _show(name: str, value: float | str | None) -> Figure:
    """Return a piece of evidence with its unit, which its name has; a ratio stays one, for a time may have its name."""
    words = name.split("_")
    unit = next((word for word in words if word in FORMATS), "")
    title = " ".join(word for word in words if word != unit or unit == "ratio")
    if isinstance(value, str) or value is None:
        return Figure(name=name, title=title, value=None, text=ABSENT if value is None else tidy(value))
    text = FORMATS[unit](value) if unit in FORMATS else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
    return Figure(name=name, title=title, value=value, text=text)
