"""The result of a job's last examination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

import msgspec

from deepprof.live.service.examination import ExaminationResult, FindingSummary
from deepprof.live.service.exporter.snapshot import JobExamination
from deepprof.live.wire.figures import LoopFigures, StageFigures
from deepprof.v1 import query_pb2 as wire


class LatestExamination(msgspec.Struct):
    """The last examination of a job; `since` is the time from which on every examination had each finding in `found`.

    `at_ns` (monotonic clock) and `records` (accepted by then) are also set by an examination that failed. `documents`
    are those of the page, and kept in memory only.
    """

    found: list[FindingSummary] = []
    since: list[int] = []
    loops: list[LoopFigures] = []
    report: str = ""
    unix_ns: int = 0
    at_ns: int = 0
    records: int = 0
    stages: dict[int, tuple[StageFigures, ...]] = {}
    documents: dict[str, bytes] = {}

    def learn(self, result: ExaminationResult, now_unix_ns: int) -> None:
        """Store the result of an examination."""
        before = {(f.rule, f.rank): since for f, since in zip(self.found, self.since, strict=True)}
        self.since = [before.get((f.rule, f.rank), now_unix_ns) for f in result.findings]
        self.found, self.loops, self.report, self.unix_ns = result.findings, result.figures, result.report, now_unix_ns
        self.stages, self.documents = result.stages, result.documents

    @property
    def documents_nbytes(self) -> int:
        """The memory of the documents."""
        return sum(map(len, self.documents.values()))

    def show(self) -> JobExamination:
        """Return what the page shows of the examination."""
        return JobExamination(findings=self.found, documents=self.documents)

    def active(self, rank: int) -> Mapping[str, str]:
        """Return the open findings that concern a rank: rule → severity."""
        told = [f for f in self.found if f.rank in (None, rank)]
        return MappingProxyType({f.rule: f.severity for f in reversed(told)})  # the first finding of a rule decides

    def order(self) -> list[str]:
        """Return the rules with findings, in the order of the report: a cause before the findings that it explains."""
        return list(dict.fromkeys(f.rule for f in self.found))

    def findings(self) -> wire.GetFindingsResponse:
        """Return the findings as a message."""
        found = [
            wire.Finding(
                rule=f.rule,
                severity=f.severity,
                title=f.title,
                summary=f.summary,
                advice=f.advice,
                rank=f.rank,
                confidence_ratio=f.confidence,
                active_since_unix_ns=since,
            )
            for f, since in zip(self.found, self.since, strict=True)
        ]
        return wire.GetFindingsResponse(findings=found, examined_unix_ns=self.unix_ns, report=self.report)

    def figures(self) -> list[wire.LoopMetrics]:
        """Return the figures of the loops as messages."""
        return [wire.LoopMetrics(**asdict(one)) for one in self.loops]

    def encode(self) -> str:
        """Return all fields as JSON, except those that are valid only in this run of the daemon."""
        kept = LatestExamination(self.found, self.since, self.loops, self.report, self.unix_ns, stages=self.stages)
        return msgspec.json.encode(kept).decode()

    @classmethod
    def decode(cls, content: str) -> LatestExamination | None:
        """Return the examination from the text that `encode` returned, None for any other text."""
        try:
            known = msgspec.json.decode(content, type=cls)
        except msgspec.MsgspecError:
            return None
        return known if len(known.found) == len(known.since) else None
