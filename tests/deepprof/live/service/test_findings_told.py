"""In which order a job's findings are told, and with which severity."""

from __future__ import annotations

from deepprof.diagnosis import Severity
from deepprof.live.service.examination import ExaminationResult, FindingSummary
from deepprof.live.service.examiner.examined import LatestExamination
from deepprof.live.service.query import job_of
from deepprof.live.service.views import RankView


def found(rule: str, rank: int | None, severity: Severity = "critical") -> FindingSummary:
    return FindingSummary(rule, severity, rule, "", "", rank, 0.9)


def examined(*findings: FindingSummary) -> LatestExamination:
    known = LatestExamination()
    known.learn(ExaminationResult(report="{}", findings=list(findings), figures=[], iterations=b"", loops=[]), 1)
    return known


def told(known: LatestExamination, ranks: int = 2) -> list[str]:
    views = [RankView(job="job", rank=rank, findings=known.active(rank)) for rank in range(ranks)]
    return list(job_of("job", views, order=known.order()).active_findings)


def test_a_cause_is_told_before_what_it_explains() -> None:
    """`watch` has room for one name: that of the late rank, and not of the waits that it makes."""
    known = examined(found("straggler", 1), found("communication-bound", 0), found("host-bound", 1))
    assert told(known) == ["straggler", "communication-bound", "host-bound"]


def test_remarks_are_not_told_and_no_rule_twice() -> None:
    known = examined(found("drift", 0), found("copy-bound", 1, "info"), found("drift", 1))
    assert told(known) == ["drift"]


def test_what_is_known_without_an_order_is_told_all_the_same() -> None:
    views = [RankView(job="job", rank=0, findings=examined(found("drift", 0)).active(0))]
    assert list(job_of("job", views).active_findings) == ["drift"]


def test_a_repetition_does_not_soften_a_finding() -> None:
    known = examined(found("drift", 0, "critical"), found("drift", 0, "warning"))
    assert known.active(0) == {"drift": "critical"}
