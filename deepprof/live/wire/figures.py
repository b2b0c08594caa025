"""The figures of running jobs, as plain values: times in ns (`_unix_ns` on the daemon's clock), ratios from 0 to 1.

Names are those of the messages in `proto/deepprof/v1`, where every field is described; a value that is absent there is
None. A field that is a `figure` declares what other parts derive from it (`wire.declarations`): a new one needs its
line here, its field in the message, and the place that computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, get_args

from deepprof.live.wire.declarations import NS_PER_S, add_counts, counter, figure, gauge, merge, no_counts
from deepprof.live.wire.limits import COUNT_LIMIT, NOTICE_CHARS, OVERHEAD_LIMIT, REASON_CHARS

if TYPE_CHECKING:
    import polars as pl

# Words are in the order of the protocol's numbers.
MinerState = Literal["unknown", "learning", "locked", "lost"]
CollectorLevel = Literal["unknown", "full", "duty", "off"]
MINER_STATES, COLLECTOR_LEVELS = get_args(MinerState)[1:], get_args(CollectorLevel)[1:]


@dataclass(frozen=True, slots=True)
class KindAccount:
    """What became of the durable records of one kind: an activity of device events, or another record table."""

    kind: str
    accepted: int = figure(
        0,
        counter(
            "records_kept_total",
            "Records that were taken and analysed, by kind: kernel, memcpy, memset, graph, sync, host_events, "
            "annotations, memory_events, context_sums, or unknown, from before kinds were counted.",
        ),
        merge=sum,
    )
    dropped: Mapping[str, int] = figure(no_counts, merge=add_counts)


def _merge_kinds(accounts: Iterable[tuple[KindAccount, ...]]) -> tuple[KindAccount, ...]:
    found = sorted((each for kinds in accounts for each in kinds), key=attrgetter("kind"))
    return tuple(KindAccount(kind, **merge(KindAccount, same)) for kind, same in groupby(found, attrgetter("kind")))


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the records received: `received == accepted + Σ dropped + invalid + duplicate`.

    `gaps` counts gap messages, `lost` the records that they report as missing (those were never received). `kinds` has
    the accepted records by kind, and the dropped ones among the durable. `missing` counts the records that the
    collector reports as not sent, by reason: the lost ones, and those that its End counts.
    """

    received: int = figure(
        0,
        counter("records_received_total", "Records that arrived."),
        merge=sum,
        of_job=counter("job_records_received_total", "Records that arrived from all ranks of the job."),
    )
    accepted: int = figure(0, counter("records_accepted_total", "Records that were taken and analysed."), merge=sum)
    invalid: int = figure(0, counter("records_invalid_total", "Records that break the protocol."), merge=sum)
    duplicate: int = figure(0, counter("records_duplicate_total", "Records that had arrived before."), merge=sum)
    dropped: Mapping[str, int] = figure(
        no_counts,
        counter("records_dropped_total", "Records that were taken and then left out, by reason.", labels=("reason",)),
        merge=add_counts,
    )
    gaps: int = figure(0, counter("sequence_gaps_total", "Holes in the sequence of records."), merge=sum)
    lost: int = figure(
        0, counter("records_lost_total", "Records that the collector says it could not send."), merge=sum
    )
    kinds: tuple[KindAccount, ...] = figure((), merge=_merge_kinds)
    missing: Mapping[str, int] = figure(
        no_counts,
        counter(
            "records_missing_total",
            "Records that never arrived, by reason, as the collector says: lost ones, and those that it left out.",
            labels=("reason",),
        ),
        merge=add_counts,
    )

    @property
    def adds_up(self) -> bool:
        """Whether every record received is in exactly one of the other counts."""
        return self.received == self.accepted + self.invalid + self.duplicate + sum(self.dropped.values())


def _merge_accounts(accounts: Iterable[Account]) -> Account:
    return Account(**merge(Account, accounts))


@dataclass(frozen=True, slots=True)
class JobState:
    """A job: how many ranks it has, the account of their records, and the rules with an open finding."""

    job: str
    ranks: int = 0
    connected: int = 0
    ended: int = 0
    first_seen_unix_ns: int = 0
    last_record_unix_ns: int = 0
    iterations: int = 0
    account: Account = field(default_factory=Account)
    active_findings: tuple[str, ...] = ()
    sender: str = ""
    kept_nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """The limits of a sender; 0: no limit of its own. `jobs` are patterns of the jobs that it may write."""

    ranks: int = figure(
        0, gauge("sender_ranks_limit", "Ranks that the sender may have; absent: no limit.", needs="ranks")
    )
    records_per_s: int = figure(
        0,
        gauge(
            "sender_records_limit_per_second",
            "Records that the sender may bring in a second; absent: no limit.",
            needs="records_per_s",
        ),
    )
    kept_nbytes: int = figure(
        0,
        gauge(
            "sender_kept_limit_bytes",
            "Iteration history that the sender's jobs may have; absent: no limit.",
            needs="kept_nbytes",
        ),
    )
    jobs: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class SenderState:
    """A sender, named after its token or its other proof of identity, and what it uses of the daemon."""

    sender: str
    jobs: int = 0
    ranks: int = figure(0, gauge("sender_ranks", "Ranks of the sender that are held."))
    connected: int = figure(0, gauge("sender_ranks_connected", "Ranks of the sender with a connected collector."))
    records: int = figure(0, counter("sender_records_received_total", "Records that the sender brought."))
    paced_ns: int = figure(
        0,
        counter(
            "sender_paced_seconds_total",
            "Time for which the sender's messages were held back by its limit, all its streams together.",
        ),
    )
    waiting_nbytes: int = figure(0, gauge("sender_waiting_bytes", "Records of the sender taken and not yet analysed."))
    kept_nbytes: int = figure(0, gauge("sender_kept_bytes", "Iteration history of the sender's jobs, about."))
    refused: Mapping[str, int] = field(default_factory=no_counts)
    share: Share = field(default_factory=Share)


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The loop followed on a device now; with a `period` of 0 there is none so far."""

    device: int
    stream: int = 0
    state: MinerState = figure(
        "learning",
        gauge(
            "miner_state",
            "1 for the state that holds: learning (no iteration so far), locked (followed), lost; 0 for the others.",
            labels=("state",),
            words=MINER_STATES,
        ),
    )
    loop: int = 0
    period: int = figure(
        0,
        gauge(
            "iteration_kernels",
            "Kernels of the main stream per iteration; absent while none was found.",
            needs="period",
        ),
    )
    confidence_ratio: float = figure(
        0.0,
        gauge(
            "iteration_confidence_ratio",
            "How sure the iteration is, 0 to 1; absent while none was found.",
            needs="period",
        ),
    )
    evidence: str = ""
    boundary_source: str = ""
    iterations: int = figure(0, counter("iterations_total", "Iterations found."), merge=sum, column=("iterations", 2))
    last_iteration_start_ns: int = 0
    last_iteration_ns: int = figure(0, column=("last", 3))
    last_interval_ns: int = 0
    median_iteration_ns: int = figure(0, column=("median", 5))
    foreign_kernels: int = figure(
        0, counter("foreign_kernels_total", "Kernels of the main stream that belong to no iteration.")
    )
    resets: int = figure(0, counter("miner_resets_total", "Times that the loop was lost or replaced."))


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """The last status of a rank's collector: how much it records, why, and what that costs the rank's host."""

    level: CollectorLevel = figure(
        "full",
        gauge(
            "collector_level",
            "1 for the level that holds: full, duty (a share of the time is recorded), off; 0 for the others. "
            "Absent where the collector does not say.",
            labels=("level",),
            words=COLLECTOR_LEVELS,
        ),
    )
    reason: str = figure("", most=REASON_CHARS)
    since_unix_ns: int = figure(0, most=COUNT_LIMIT)
    duty_ratio: float = figure(
        1.0, gauge("collector_duty_ratio", "Share of the time that is recorded, as the collector says."), most=1.0
    )
    overhead_ratio: float = figure(
        0.0,
        gauge(
            "collector_overhead_ratio",
            "CPU time that collecting takes, as a share of one core, as the collector says.",
            unit="cores",
        ),
        most=OVERHEAD_LIMIT,
    )
    spool_nbytes: int = figure(
        0, gauge("collector_spool_bytes", "Records that wait on the rank's host to be sent."), most=COUNT_LIMIT
    )
    lost: int = figure(0, most=COUNT_LIMIT)
    level_changes: int = figure(
        0, counter("collector_level_changes_total", "Times that the collector's level has changed."), most=COUNT_LIMIT
    )
    notice: str = figure("", most=NOTICE_CHARS)


@dataclass(frozen=True, slots=True)
class StageFigures:
    """What a stage of training takes of an iteration: means over the complete ones of a rank's longest loop.

    The device works for it `busy_ns` and waits `idle_ns` for its first or next event; the threads that launch are in it
    `host_ns`, None where that is not recorded. `confidence_ratio` is None where it has no work of the device.
    """

    stage: str
    busy_ns: int = figure(
        0,
        gauge(
            "stage_seconds",
            "Time in which the device works or waits for the stage: the mean of an iteration, in the latest examined "
            "records; absent where they do not show it.",
            samples=lambda stage: (((), stage.device_ns / NS_PER_S),),
        ),
    )
    idle_ns: int = 0
    host_ns: int | None = figure(
        None,
        gauge(
            "stage_host_seconds",
            "Time for which the threads that launch are in the stage: the mean of an iteration, in the latest "
            "examined records; absent where they do not show it.",
        ),
    )
    confidence_ratio: float | None = figure(
        None,
        gauge("stage_confidence_ratio", "How sure the stage is, 0 to 1; absent where the device does no work for it."),
    )

    @property
    def device_ns(self) -> int:
        """How long the device works or waits for it."""
        return self.busy_ns + self.idle_ns


@dataclass(frozen=True, slots=True)
class ContextFigures:
    """What a line of code took, with the operators and frameworks that it called: since it leads, and of late."""

    context: str
    host_ns: int = figure(
        0,
        counter(
            "context_host_seconds_total",
            "Time on threads of the host in a line of code and what it calls of frameworks, for the lines that lead; "
            "all others are `(other)`. Absent where the job sends no calling contexts.",
        ),
        merge=sum,
    )
    device_ns: int = figure(
        0,
        counter(
            "context_device_seconds_total",
            "Time on devices, added up, of what a line of code launched, for the lines that lead; all others are "
            "`(other)`. Absent where the job sends no calling contexts.",
        ),
        merge=sum,
    )
    latest_host_ns: int = figure(0, merge=sum)
    latest_device_ns: int = figure(0, merge=sum)


@dataclass(frozen=True, slots=True)
class LeadingFigures:
    """The lines of code that use most of a rank's time, the largest first, and all others together.

    `latest_…` figures are of a window of `window_ns`.
    """

    lines: tuple[ContextFigures, ...] = ()
    other: ContextFigures = field(default_factory=lambda: ContextFigures(""))
    window_ns: int = 0


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank: the collector that sends its records, what became of them, its devices, and its examined stages.

    `contexts` are those of its lines of code that lead, None where it sends no calling contexts.
    """

    job: str
    rank: int
    world_size: int = figure(
        0, merge=max, of_job=gauge("job_world_size", "Ranks that the job says it has; 0: it does not say.")
    )
    host: str = figure(
        "", gauge("rank_info", "Always 1; `host` is where the rank says it runs.", labels=("host",)), column=("host", 8)
    )
    collector: str = ""
    connected: bool = figure(
        False,
        gauge("rank_connected", "1 while a collector is connected for the rank."),
        merge=sum,
        of_job=gauge("job_ranks_connected", "Ranks of the job with a connected collector."),
    )
    ended: bool = figure(
        False,
        gauge("rank_ended", "1 after the rank's collector said that the recording is over."),
        merge=sum,
        of_job=gauge("job_ranks_ended", "Ranks of the job whose recording is over."),
    )
    settled: bool = False
    first_seen_unix_ns: int = figure(0, merge=min)
    last_record_unix_ns: int = figure(
        0,
        gauge("last_record_timestamp_seconds", "When the rank's last batch arrived.", needs="last_record_unix_ns"),
        merge=max,
    )
    clock_offset_ns: int = figure(
        0, gauge("rank_clock_offset_seconds", "Daemon's clock less the rank's, as its collector says.")
    )
    account: Account = figure(Account, merge=_merge_accounts)
    devices: tuple[DeviceState, ...] = ()
    status: CollectorStatus | None = None
    stages: tuple[StageFigures, ...] = ()
    contexts: LeadingFigures | None = None


@dataclass(frozen=True, slots=True)
class FollowedLoop:
    """A loop that was followed on a rank's device, now or before."""

    rank: int
    device: int
    loop: int
    period: int = 0
    confidence_ratio: float = 0.0
    evidence: str = ""
    boundary_source: str = ""
    iterations: int = 0


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """The metrics of the paper's Table III for a loop; None where no iteration has a value."""

    rank: int
    device: int
    loop: int
    iterations: int = 0
    avg_interval_ns: int | None = None
    max_interval_ns: int | None = None
    avg_overlap_ratio: float | None = None
    avg_operation_ns: int | None = None
    avg_size_nbytes: int | None = None
    median_iteration_ns: int | None = None
    p5_iteration_ns: int | None = None
    p95_iteration_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ActiveFinding:
    """A rule's finding in the latest records, present in every examination since `active_since_unix_ns`."""

    rule: str
    severity: str
    title: str = ""
    summary: str = ""
    advice: str = ""
    rank: int | None = None
    confidence_ratio: float = 0.0
    active_since_unix_ns: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings of a job's last examination, and the whole report (`deepprof.report/1`) as JSON.

    `examined_unix_ns` is 0, and the report empty, before the first examination.
    """

    findings: tuple[ActiveFinding, ...] = ()
    examined_unix_ns: int = 0
    report: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ContextHistory:
    """What calling contexts of a job did in a time; `rank` is None for all ranks together.

    `nodes` has a row for every context, callers first: `context`, `parent` (0: none), `kind`, `name` and `line`, as
    `trace.context_nodes` but for the text. `sums` has a row for every context and window: `time_ns`, `window_ns`,
    `context`, `count`, `host_ns` with that of callees, and `device_count` and `device_ns` of what it launched itself.
    `windows` were merged into those of `sums`, of at least `step_ns`; `folded` is how often contexts began that were
    too many, and count for those above. `earliest_ns` is when the first window began that is kept, None without any.
    """

    job: str
    rank: int | None
    nodes: pl.DataFrame
    sums: pl.DataFrame
    windows: int
    folded: int
    step_ns: int
    earliest_ns: int | None


@dataclass(frozen=True, slots=True)
class Capture:
    """Raw records that the daemon keeps as a trace: `name` is a folder in its store."""

    name: str
    job: str = ""
    rank: int = 0
    reason: str = ""
    taken_unix_ns: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class WatchState:
    """The state at the daemon's time `now_unix_ns`: all jobs, and the ranks of the job asked for."""

    jobs: tuple[JobState, ...] = ()
    ranks: tuple[RankState, ...] = ()
    now_unix_ns: int = 0
