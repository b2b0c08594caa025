"""Every metric that is exposed: its name, type, labels, meaning, and how its values are read from a view.

Base units throughout (seconds, bytes, ratios), `_total` on counters and nothing else, no means and no quantiles: both
parts of a quotient are exported as counters. No label holds the name of a kernel or a file, or anything else that a job
has many of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Generic, Literal, TypeVar

from deepprof.live.service.exporter.snapshot import DaemonSnapshot
from deepprof.live.service.senders import SenderView
from deepprof.live.service.views import CollectorView, DeviceView, RankView

__all__ = ["DAEMON", "DEVICE", "DEVICE_LABELS", "JOB", "JOB_LABELS", "RANK", "RANK_LABELS", "JobTotals", "MetricFamily"]

Kind = Literal["counter", "gauge", "histogram"]
V = TypeVar("V")
Labels = tuple[str, ...]

NS_PER_S = 1e9
JOB_LABELS: Labels = ("job_id",)
RANK_LABELS: Labels = ("job_id", "rank")
DEVICE_LABELS: Labels = ("job_id", "rank", "device")
STATES = ("learning", "locked", "lost")
LEVELS = ("full", "duty", "off")


@dataclass(frozen=True, slots=True)
class JobTotals:
    """The sums over all ranks of a job, including those that are not shown one by one."""

    job: str
    ranks: int
    connected: int
    ended: int
    world_size: int
    received: int


def one(_: object) -> tuple[Labels, ...]:
    """Return the labels of a family that has one series and no label of its own."""
    return ((),)


@dataclass(frozen=True, slots=True)
class MetricFamily(Generic[V]):
    """A metric: `values` gives one number for each of the `series`, whose labels are named by `labels`.

    A histogram has one value per bucket of `BUCKETS_S`, one for all, their sum and their number. `series` returns
    everything on which the lines depend besides the numbers, so that lines are kept while it returns the same.
    """

    name: str
    kind: Kind
    meaning: str
    values: Callable[[V], Iterable[float]]
    labels: Labels = ()
    series: Callable[[V], Sequence[Labels]] = one

    @property
    def varies(self) -> bool:
        """Whether the series depend on the view."""
        return self.series is not one


def gauge(name: str, meaning: str, value: Callable[[V], float]) -> MetricFamily[V]:
    """Return a gauge of one value."""
    return MetricFamily(f"deepprof_{name}", "gauge", meaning, lambda view: (value(view),))


def counter(name: str, meaning: str, value: Callable[[V], float]) -> MetricFamily[V]:
    """Return a counter of one value."""
    return MetricFamily(f"deepprof_{name}_total", "counter", meaning, lambda view: (value(view),))


def seconds(name: str, meaning: str, value_ns: Callable[[V], int]) -> MetricFamily[V]:
    """Return a counter of nanoseconds, in seconds."""
    return counter(f"{name}_seconds", meaning, lambda view: value_ns(view) / NS_PER_S)


def known(name: str, meaning: str, value: Callable[[V], float | None]) -> MetricFamily[V]:
    """Return a gauge that has no series while its value is None: a zero would be taken for a value."""

    def values(view: V) -> tuple[float, ...]:
        found = value(view)
        return () if found is None else (found,)

    return MetricFamily(f"deepprof_{name}", "gauge", meaning, values, (), lambda view: ((),) if values(view) else ())


def collector(
    name: str, meaning: str, value: Callable[[CollectorView], float], kind: Kind = "gauge"
) -> MetricFamily[RankView]:
    """Return a metric from the status of a rank's collector; it has no series without a connected one or a status."""
    return MetricFamily(
        f"deepprof_collector_{name}",
        kind,
        meaning,
        lambda view: [value(status) for status in find_status(view)],
        (),
        lambda view: [() for _ in find_status(view)],
    )


def find_status(view: RankView) -> tuple[CollectorView, ...]:
    """Return the status of a rank's collector, empty where it is not known now."""
    return (view.status,) if view.status is not None and view.connected and not view.ended else ()


def sender(
    name: str, meaning: str, value: Callable[[SenderView], float], kind: Kind = "gauge"
) -> MetricFamily[DaemonSnapshot]:
    """Return a metric with a series for each sender."""
    return MetricFamily(
        f"deepprof_sender_{name}",
        kind,
        meaning,
        lambda view: [value(each) for each in view.senders],
        ("token",),
        lambda view: [alone(each.sender) for each in view.senders],
    )


def share(name: str, meaning: str, value: Callable[[SenderView], int]) -> MetricFamily[DaemonSnapshot]:
    """Return a limit with a series for each sender that has one."""
    return MetricFamily(
        f"deepprof_sender_{name}",
        "gauge",
        meaning,
        lambda view: [value(each) for each in view.senders if value(each)],
        ("token",),
        lambda view: [alone(each.sender) for each in view.senders if value(each)],
    )


def moment(name: str, meaning: str, value_ns: Callable[[V], int]) -> MetricFamily[V]:
    """Return a gauge of a Unix time; no series while it is 0."""
    return known(f"{name}_timestamp_seconds", meaning, lambda view: value_ns(view) / NS_PER_S or None)


@cache
def alone(key: str) -> Labels:
    """Return a tuple of one label's value, the same object every time."""
    return (key,)


def cumulate(view: DeviceView) -> tuple[float, ...]:
    """Return the cumulative buckets that Prometheus expects, then their sum and number."""
    counts = list(accumulate(view.duration_counts))
    return (*counts, view.duration_sum_ns / NS_PER_S, counts[-1])


RANK: tuple[MetricFamily[RankView], ...] = (
    MetricFamily(
        "deepprof_rank_info",
        "gauge",
        "Always 1; `host` is where the rank says it runs.",
        lambda view: (1,),
        ("host",),
        lambda view: (alone(view.host),),
    ),
    gauge("rank_connected", "1 while a collector is connected for the rank.", lambda view: int(view.connected)),
    gauge("rank_ended", "1 after the rank's collector said that the recording is over.", lambda view: int(view.ended)),
    gauge(
        "rank_clock_offset_seconds",
        "Daemon's clock less the rank's, as its collector says.",
        lambda view: view.clock_offset_ns / NS_PER_S,
    ),
    moment("last_record", "When the rank's last batch arrived.", lambda view: view.last_record_unix_ns),
    moment(
        "last_iteration",
        "When an iteration of the rank was last found; absent before the first.",
        lambda view: view.last_iteration_unix_ns,
    ),
    counter("records_received", "Records that arrived.", lambda view: view.account.received),
    counter("records_accepted", "Records that were taken and analysed.", lambda view: view.account.accepted),
    MetricFamily(
        "deepprof_records_dropped_total",
        "counter",
        "Records that were taken and then left out, by reason.",
        lambda view: view.account.dropped.values(),
        ("reason",),
        lambda view: [alone(reason) for reason in view.account.dropped],
    ),
    MetricFamily(
        "deepprof_records_kept_total",
        "counter",
        "Records that were taken and analysed, by kind: kernel, memcpy, memset, graph, sync, host_events, annotations, "
        "memory_events, or unknown, from before kinds were counted.",
        lambda view: [each.accepted for each in view.account.kinds],
        ("kind",),
        lambda view: [alone(each.kind) for each in view.account.kinds],
    ),
    MetricFamily(
        "deepprof_records_missing_total",
        "counter",
        "Records that never arrived, by reason, as the collector says: lost ones, and those that it left out.",
        lambda view: view.account.missing.values(),
        ("reason",),
        lambda view: [alone(reason) for reason in view.account.missing],
    ),
    counter("records_invalid", "Records that break the protocol.", lambda view: view.account.invalid),
    counter("records_duplicate", "Records that had arrived before.", lambda view: view.account.duplicate),
    counter("records_lost", "Records that the collector says it could not send.", lambda view: view.account.lost),
    counter("sequence_gaps", "Holes in the sequence of records.", lambda view: view.account.gaps),
    gauge("queue_bytes", "Records taken and not yet analysed.", lambda view: view.queued_nbytes),
    gauge(
        "ingest_lag_seconds",
        "From the arrival of the last analysed batch to its analysis.",
        lambda view: view.lag_ns / NS_PER_S,
    ),
    MetricFamily(
        "deepprof_collector_level",
        "gauge",
        "1 for the level that holds: full, duty (a share of the time is recorded), off; 0 for the others. "
        "Absent where the collector does not say.",
        lambda view: [int(status.level == level) for status in find_status(view) for level in LEVELS],
        ("level",),
        lambda view: [alone(level) for _ in find_status(view) for level in LEVELS],
    ),
    collector("duty_ratio", "Share of the time that is recorded, as the collector says.", lambda it: it.duty_ratio),
    collector(
        "overhead_ratio",
        "CPU time that collecting takes, as a share of one core, as the collector says.",
        lambda it: it.overhead_ratio,
    ),
    collector("spool_bytes", "Records that wait on the rank's host to be sent.", lambda it: it.spool_nbytes),
    collector(
        "level_changes_total", "Times that the collector's level has changed.", lambda it: it.level_changes, "counter"
    ),
    MetricFamily(
        "deepprof_diagnosis_active",
        "gauge",
        "1 while the latest records show the finding; no series when they do not.",
        lambda view: (1,) * len(view.findings),
        ("finding", "severity"),
        lambda view: [*view.findings.items()],
    ),
)

DEVICE: tuple[MetricFamily[DeviceView], ...] = (
    MetricFamily(
        "deepprof_iteration_duration_seconds",
        "histogram",
        "Iterations by duration, from an iteration's start to the next one's.",
        cumulate,
    ),
    counter("iterations", "Iterations found.", lambda view: view.iterations_total),
    counter("iterations_incomplete", "Iterations found that lack a part.", lambda view: view.incomplete_total),
    seconds(
        "iteration_interval",
        "Idle time of the main stream between adjacent iterations.",
        lambda view: view.interval_ns_total,
    ),
    seconds(
        "interval_copy",
        "Copies from the host inside those intervals; divided by them it is the interval overlap.",
        lambda view: view.interval_copy_ns_total,
    ),
    known(
        "iteration_confidence_ratio",
        "How sure the iteration is, 0 to 1; absent while none was found.",
        lambda view: None if view.loop is None else view.loop.confidence,
    ),
    known(
        "iteration_kernels",
        "Kernels of the main stream per iteration; absent while none was found.",
        lambda view: None if view.loop is None else view.loop.period,
    ),
    known(
        "iteration_events",
        "Device events of the last iteration; absent while there was none.",
        lambda view: view.last_events if view.iterations_total else None,
    ),
    MetricFamily(
        "deepprof_miner_state",
        "gauge",
        "1 for the state that holds: learning (no iteration so far), locked (followed), lost; 0 for the others.",
        lambda view: [int(view.state == state) for state in STATES],
        ("state",),
        lambda view: [alone(state) for state in STATES],
    ),
    counter("miner_resets", "Times that the loop was lost or replaced.", lambda view: view.resets_total),
    counter("graph_growth", "Times that the followed iteration became longer.", lambda view: view.growth_total),
    counter(
        "foreign_kernels", "Kernels of the main stream that belong to no iteration.", lambda view: view.foreign_total
    ),
    counter("device_events", "Device events analysed.", lambda view: view.events_total),
    seconds("busy", "Time in which anything ran on the device.", lambda view: view.busy_ns_total),
    seconds("compute", "Time in which a kernel ran that is no collective.", lambda view: view.compute_ns_total),
    seconds("copy", "Time in which a copy ran.", lambda view: view.copy_ns_total),
    seconds("copy_exposed", "Time in which a copy ran and no kernel.", lambda view: view.copy_exposed_ns_total),
    MetricFamily(
        "deepprof_copied_bytes_total",
        "counter",
        "Bytes copied, by kind (HtoD, DtoH, DtoD, PtoP, HtoH).",
        lambda view: view.copied_nbytes.values(),
        ("kind",),
        lambda view: [alone(kind) for kind in view.copied_nbytes],
    ),
)

JOB: tuple[MetricFamily[JobTotals], ...] = (
    gauge("job_ranks", "Ranks of the job that have sent something and are not forgotten.", lambda view: view.ranks),
    gauge("job_ranks_connected", "Ranks of the job with a connected collector.", lambda view: view.connected),
    gauge("job_ranks_ended", "Ranks of the job whose recording is over.", lambda view: view.ended),
    gauge("job_world_size", "Ranks that the job says it has; 0: it does not say.", lambda view: view.world_size),
    counter("job_records_received", "Records that arrived from all ranks of the job.", lambda view: view.received),
)

DAEMON: tuple[MetricFamily[DaemonSnapshot], ...] = (
    MetricFamily(
        "deepprof_build_info",
        "gauge",
        "Always 1; `version` is DeepProf's.",
        lambda view: (1,),
        ("version",),
        lambda view: (alone(view.version),),
    ),
    gauge("ready", "1 while the daemon takes records and what it shows is fresh.", lambda view: int(view.ready)),
    moment("start", "When the daemon started.", lambda view: view.started_unix_ns),
    gauge("streams", "Streams of collectors that are open.", lambda view: view.streams),
    gauge("pipeline_queue_bytes", "Records of all ranks taken and not yet analysed.", lambda view: view.queue_nbytes),
    gauge("journal_bytes", "Journal on disk.", lambda view: view.journal_nbytes),
    gauge("history_bytes", "Iteration history on disk.", lambda view: view.history_nbytes),
    counter(
        "refused_messages",
        "Messages that broke a limit or could not be read.",
        lambda view: view.refused_messages_total,
    ),
    MetricFamily(
        "deepprof_refusals_total",
        "counter",
        "Streams, messages and calls that were refused, by reason and the name of the token; none: not known.",
        lambda view: view.refusals_total.values(),
        ("reason", "token"),
        lambda view: list(view.refusals_total),
    ),
    sender("ranks", "Ranks of the sender that are held.", lambda each: each.ranks),
    sender("ranks_connected", "Ranks of the sender with a connected collector.", lambda each: each.connected),
    sender(
        "records_received_total", "Records that the sender brought.", lambda each: each.records_total, kind="counter"
    ),
    sender(
        "paced_seconds_total",
        "Time for which the sender's messages were held back by its limit, all its streams together.",
        lambda each: each.paced_ns_total / NS_PER_S,
        kind="counter",
    ),
    sender("waiting_bytes", "Records of the sender taken and not yet analysed.", lambda each: each.waiting_nbytes),
    sender("kept_bytes", "Iteration history of the sender's jobs, about.", lambda each: each.kept_nbytes),
    share("ranks_limit", "Ranks that the sender may have; absent: no limit.", lambda each: each.share.ranks),
    share(
        "records_limit_per_second",
        "Records that the sender may bring in a second; absent: no limit.",
        lambda each: each.share.records_per_s,
    ),
    share(
        "kept_limit_bytes",
        "Iteration history that the sender's jobs may have; absent: no limit.",
        lambda each: each.share.kept_nbytes,
    ),
    counter("examinations", "Times that the rules looked at a job's latest records.", lambda v: v.examinations_total),
)
