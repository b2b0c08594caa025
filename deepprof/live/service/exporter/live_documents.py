"""The documents of the daemon's own page, from a snapshot of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deepprof.live.service.exporter.live_flame import list_flames
from deepprof.live.service.exporter.snapshot import NEVER_EXAMINED, DaemonSnapshot, JobExamination
from deepprof.live.service.views import DeviceView, RankView
from deepprof.plurals import counted
from deepprof.web.documents.live import (
    MOST_FINDINGS,
    MOST_LATEST,
    MOST_RANKS,
    LiveDocument,
    LiveFinding,
    LiveJob,
    LiveRank,
)
from deepprof.web.documents.session import Answer, DocumentEntry, SessionDocument, ViewEntry

NO_DEVICE = DeviceView(device=0, stream=0)


def write_live(snapshot: DaemonSnapshot) -> LiveDocument:
    """Return what the daemon sees; the ranks beyond `MOST_RANKS` are left out, those of the newest jobs last."""
    jobs, findings = _group(snapshot.ranks), [*_list_findings(snapshot.examinations)]
    shown = sum(len(ranks) for _, ranks in jobs)
    return LiveDocument(
        now_unix_ns=snapshot.now_unix_ns,
        ready=snapshot.ready,
        why_not=snapshot.why_not,
        jobs=[_describe_job(name, ranks, snapshot.examinations.get(name, NEVER_EXAMINED)) for name, ranks in jobs],
        findings=findings[:MOST_FINDINGS],
        left_out=len(snapshot.ranks) - shown,
        left_out_findings=max(0, len(findings) - MOST_FINDINGS),
    )


def write_session(snapshot: DaemonSnapshot) -> SessionDocument:
    """Return what the daemon's page is about."""
    jobs = len({view.job for view in snapshot.ranks})
    line = f"{counted(jobs, 'job')}, {counted(len(snapshot.ranks), 'rank')}"
    return SessionDocument(
        title="DeepProf daemon",
        version=snapshot.version,
        facts=[],
        answer=Answer(lines=[line, *filter(None, [snapshot.why_not])], severity="", finding=None),
        ranks=[],
        loops=[],
        views=[
            ViewEntry(name="live", title="Live", documents=[DocumentEntry(key="live", title="Live")]),
            list_flames(snapshot.ranks),
        ],
        notes=[],
        server=True,
    )


def _group(views: Sequence[RankView]) -> list[tuple[str, list[RankView]]]:
    """Return the ranks that are shown by job, the newest job first."""
    by_job: dict[str, list[RankView]] = {}
    newest_first = sorted(views, key=lambda view: (-view.first_seen_unix_ns, view.job, view.rank))
    for view in newest_first[:MOST_RANKS]:
        by_job.setdefault(view.job, []).append(view)
    return [(job, sorted(ranks, key=lambda view: view.rank)) for job, ranks in by_job.items()]


def _describe_job(name: str, ranks: Sequence[RankView], examined: JobExamination) -> LiveJob:
    shown = [_describe_rank(view) for view in ranks]
    return LiveJob(name=name, title=name, ranks=shown, examined=bool(examined.documents))


def _describe_rank(view: RankView) -> LiveRank:
    """Return a rank, with the times of the device that has most iterations."""
    device = max(view.devices, key=lambda each: each.iterations, default=NO_DEVICE)
    interval_ns = device.interval_ns_total
    return LiveRank(
        rank=view.rank,
        state=_name_state(view, device),
        connected=view.connected,
        iterations=device.iterations,
        median_ns=device.median_iteration_ns or None,
        latest_ns=list(device.latest_ns[-MOST_LATEST:]),
        interval_ns=device.last_interval_ns if device.iterations else None,
        overlap_ratio=device.interval_copy_ns_total / interval_ns if interval_ns else None,
        dropped=view.account.invalid + sum(view.account.dropped.values()) + view.account.lost,
        stages=[(each.stage, each.device_ns) for each in view.stages],
    )


def _name_state(view: RankView, device: DeviceView) -> str:
    """Return the rank's state in one word, as `deepprof watch` has it."""
    if view.ended:
        return "ended"
    return device.state if view.connected else "away"


def _list_findings(examinations: Mapping[str, JobExamination]) -> Iterable[LiveFinding]:
    for job, examined in examinations.items():
        for found in examined.findings:
            yield LiveFinding(
                job=job,
                rank=found.rank,
                rule=found.rule,
                severity=found.severity,
                title=found.title,
                advice=found.advice,
                headroom_ns=found.headroom_ns,
            )
