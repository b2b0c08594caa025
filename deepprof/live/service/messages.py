"""Views as the protobuf messages that clients read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from deepprof.live.service.views import CollectorView
from deepprof.v1 import admin_pb2 as admin
from deepprof.v1 import query_pb2 as wire
from deepprof.v1 import records_pb2 as records

if TYPE_CHECKING:
    from deepprof.live.service.history.values import JobSummary
    from deepprof.live.service.senders import SenderView
    from deepprof.live.service.views import DeviceView, Level, LoopView, RankView
    from deepprof.live.wire.figures import Account, KindAccount, LeadingFigures

Kept = tuple[str, int]
"""The sender of a job, and how many bytes are kept of it."""

NOBODY: Kept = "", 0
LEVELS: Mapping[Level, Any] = MappingProxyType(
    {
        "full": records.COLLECTOR_LEVEL_FULL,
        "duty": records.COLLECTOR_LEVEL_DUTY,
        "off": records.COLLECTOR_LEVEL_OFF,
    }
)
NAMES_OF_LEVELS = MappingProxyType({number: level for level, number in LEVELS.items()})
STATUS = ("reason", "since_unix_ns", "duty_ratio", "overhead_ratio", "spool_nbytes", "lost", "level_changes", "notice")
MOST_LINES = 5  # of code, of a rank: a thousand ranks are one message
STATES = {
    "learning": wire.MINER_STATE_LEARNING,
    "locked": wire.MINER_STATE_LOCKED,
    "lost": wire.MINER_STATE_LOST,
}


def account_of(account: Account) -> records.Account:
    """Return an account."""
    return records.Account(
        received=account.received,
        accepted=account.accepted,
        invalid=account.invalid,
        duplicate=account.duplicate,
        dropped=dict(account.dropped),
        gaps=account.gaps,
        lost=account.lost,
        kinds=[
            records.KindAccount(kind=each.kind, accepted=each.accepted, dropped=dict(each.dropped))
            for each in account.kinds
        ],
        missing=dict(account.missing),
    )


def _sum_accounts(accounts: Sequence[Account]) -> records.Account:
    """Return the account of several ranks together."""
    total = records.Account()
    for account in accounts:
        for name in ("received", "accepted", "invalid", "duplicate", "gaps", "lost"):
            setattr(total, name, getattr(total, name) + getattr(account, name))
        for counts, more in ((total.dropped, account.dropped), (total.missing, account.missing)):
            for reason, count in more.items():
                counts[reason] += count
    total.kinds.extend(_sum_kinds(each for account in accounts for each in account.kinds))
    return total


def _sum_kinds(kinds: Iterable[KindAccount]) -> list[records.KindAccount]:
    """Return the accounts of several ranks by kind, those of one kind together."""
    totals: dict[str, records.KindAccount] = {}
    for each in kinds:
        total = totals.setdefault(each.kind, records.KindAccount(kind=each.kind))
        total.accepted += each.accepted
        for reason, count in each.dropped.items():
            total.dropped[reason] += count
    return [totals[kind] for kind in sorted(totals)]


def sender_of(view: SenderView, refused: Mapping[str, int]) -> admin.Sender:
    """Return a sender, with the counts of what was refused of it by reason."""
    share = view.share
    return admin.Sender(
        sender=view.sender,
        jobs=view.jobs,
        ranks=view.ranks,
        connected=view.connected,
        records=view.records_total,
        paced_ns=view.paced_ns_total,
        waiting_nbytes=view.waiting_nbytes,
        kept_nbytes=view.kept_nbytes,
        refused=refused,
        share=admin.Share(
            ranks=share.ranks, records_per_s=share.records_per_s, kept_nbytes=share.kept_nbytes, jobs=share.jobs
        ),
    )


def past_job_of(summary: JobSummary, kept: Kept) -> wire.Job:
    """Return a job of which only the history is left."""
    return wire.Job(
        job=summary.job,
        ranks=summary.ranks,
        ended=summary.ranks,
        first_seen_unix_ns=summary.first_seen_unix_ns,
        last_record_unix_ns=summary.latest_unix_ns,
        iterations=summary.iterations,
        sender=kept[0],
        kept_nbytes=kept[1],
    )


def job_of(name: str, ranks: Sequence[RankView], kept: Kept = NOBODY, order: Sequence[str] = ()) -> wire.Job:
    """Return a job from its ranks, with its sender and size; `order` are rules in the order of its report."""
    loud = {rule for rank in ranks for rule, severity in rank.findings.items() if severity != "info"}
    told = [rule for rule in order if rule in loud]
    return wire.Job(
        job=name,
        ranks=len(ranks),
        connected=sum(rank.connected for rank in ranks),
        ended=sum(rank.ended for rank in ranks),
        first_seen_unix_ns=min((rank.first_seen_unix_ns for rank in ranks), default=0),
        last_record_unix_ns=max((rank.last_record_unix_ns for rank in ranks), default=0),
        iterations=sum(device.iterations_total for rank in ranks for device in rank.devices),
        account=_sum_accounts([rank.account for rank in ranks]),
        active_findings=[*told, *sorted(loud.difference(told))],
        sender=next((rank.sender for rank in ranks if rank.sender), kept[0]),
        kept_nbytes=kept[1],
    )


def rank_of(rank: RankView) -> wire.Rank:
    """Return a rank."""
    return wire.Rank(
        job=rank.job,
        rank=rank.rank,
        world_size=rank.world_size,
        host=rank.host,
        collector=rank.collector,
        connected=rank.connected,
        ended=rank.ended,
        settled=rank.settled,
        first_seen_unix_ns=rank.first_seen_unix_ns,
        last_record_unix_ns=rank.last_record_unix_ns,
        clock_offset_ns=rank.clock_offset_ns,
        account=account_of(rank.account),
        devices=[_device_of(device) for device in rank.devices],
        status=None if rank.status is None else _status_of(rank.status),
        stages=[wire.StageMetrics(**asdict(each)) for each in rank.stages],
        contexts=None if rank.contexts is None else _leading_of(rank.contexts),
    )


def _leading_of(found: LeadingFigures) -> wire.LeadingFigures:
    """Return the first of the lines of code that lead; the rest of them is part of the others."""
    lines = [wire.ContextFigures(**asdict(each)) for each in found.lines[:MOST_LINES]]
    rest = (found.other, *found.lines[MOST_LINES:])
    times = ("host_ns", "device_ns", "latest_host_ns", "latest_device_ns")
    other = wire.ContextFigures(**{name: sum(getattr(each, name) for each in rest) for name in times})
    return wire.LeadingFigures(lines=lines, other=other, window_ns=found.window_ns)


def _status_of(status: CollectorView) -> records.Status:
    """Return the status of a collector."""
    return records.Status(level=LEVELS[status.level], **{name: getattr(status, name) for name in STATUS})


def view_status(message: records.Status) -> CollectorView:
    """Return a checked status as it is shown."""
    return CollectorView(level=NAMES_OF_LEVELS[message.level], **{name: getattr(message, name) for name in STATUS})


def _device_of(device: DeviceView) -> wire.DeviceState:
    """Return a device."""
    loop = device.loop
    followed: dict[str, Any] = {} if loop is None else _followed_of(loop)
    return wire.DeviceState(
        device=device.device,
        stream=device.stream,
        state=STATES[device.state],
        iterations=device.iterations_total,
        last_iteration_start_ns=device.last_iteration_start_ns,
        last_iteration_ns=device.last_iteration_ns,
        last_interval_ns=device.last_interval_ns,
        median_iteration_ns=device.median_iteration_ns,
        foreign_kernels=device.foreign_total,
        resets=device.resets_total,
        **followed,
    )


def _followed_of(loop: LoopView) -> dict[str, Any]:
    """Return the fields of a loop that a device and a list of loops share."""
    return {
        "loop": loop.number,
        "period": loop.period,
        "confidence_ratio": loop.confidence,
        "evidence": loop.evidence,
        "boundary_source": loop.boundary_source,
    }


def loop_of(rank: int, device: int, loop: LoopView) -> wire.Loop:
    """Return a loop."""
    return wire.Loop(rank=rank, device=device, iterations=loop.iterations, **_followed_of(loop))
