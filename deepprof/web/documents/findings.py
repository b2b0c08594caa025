"""The findings with their evidence as small pictures, and where each is seen."""

from __future__ import annotations

from typing import Literal

import msgspec

from deepprof.web.documents.schema import CodePlace, Figure


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """A row of values by iteration: a line of small points. `unit` is ns, bytes or ratio."""

    title: str
    unit: Literal["ns", "bytes", "ratio"]
    index: list[int]
    value: list[float]


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a whole, the largest first; `marked` ones are what the finding is about."""

    title: str
    unit: Literal["ns", "bytes", "ratio"]
    label: list[str]
    value: list[float]
    marked: list[bool]


class Jump(msgspec.Struct, frozen=True, kw_only=True):
    """Where a finding is seen: the text of a link, and the fragment of the address that it leads to, without `#`."""

    title: str
    fragment: str


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
    trends: list[Trend]
    bars: list[Bars]
    jumps: list[Jump]


class FindingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All findings, one root cause first; `unnamed` and `unexamined` are sentences, as in the report."""

    schema: Literal["deepprof.view.findings/1"] = "deepprof.view.findings/1"
    findings: list[FindingEntry]
    unnamed: list[str]
    unexamined: list[str]
