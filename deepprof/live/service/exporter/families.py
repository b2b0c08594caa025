"""Every metric that is exposed: its name, type, labels, meaning, and how its values are read from a view.

Base units throughout (seconds, bytes, ratios), `_total` on counters and nothing else, no means and no quantiles: both
parts of a quotient are exported as counters. Stages alone are means: they are known of the records that were examined,
and not of all that came. No label holds the name of a kernel, or anything else that a job has many of; lines of code
are those that lead, a few of each rank (`service.leading_contexts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, Literal, TypeVar

from deepprof.live.service.exporter.snapshot import DaemonSnapshot
from deepprof.live.service.leading_contexts import OTHER_CONTEXTS
from deepprof.live.service.model_flops import list_utilization
from deepprof.live.service.senders import SenderView
from deepprof.live.service.views import CollectorView, DeviceView, RankView
from deepprof.live.wire.figures import ContextFigures, StageFigures

Kind = Literal["counter", "gauge", "histogram"]
V = TypeVar("V")
Labels = tuple[str, ...]
JobRanks = Sequence[RankView]  # all ranks of a job, including those that are not shown one by one

NS_PER_S = 1e9
JOB_LABELS: Labels = ("job_id",)
RANK_LABELS: Labels = ("job_id", "rank")
DEVICE_LABELS: Labels = ("job_id", "rank", "device")
STATES = ("learning", "locked", "lost")
LEVELS = ("full", "duty", "off")


@dataclass(frozen=True, slots=True)
class MetricFamily(Generic[V]):
    """A metric: `samples` returns its numbers, each after the values of the metric's own `labels`.

    A histogram has a number per bucket of `BUCKETS_S`, one for all, their sum and their count.
    """

    name: str
    kind: Kind
    meaning: str
    samples: Callable[[V], Sequence[tuple[Labels, float]]]
    labels: Labels = ()


def _single(name: str, kind: Kind, meaning: str, value: Callable[[V], float | None]) -> MetricFamily[V]:
    """Return a metric without labels of its own; no series while its value is None: a zero would be taken for one."""

    def samples(view: V) -> tuple[tuple[Labels, float], ...]:
        number = value(view)
        return () if number is None else (((), number),)

    return MetricFamily(f"deepprof_{name}", kind, meaning, samples)


def _gauge(name: str, meaning: str, value: Callable[[V], float | None]) -> MetricFamily[V]:
    """Return a gauge; no series while its value is None."""
    return _single(name, "gauge", meaning, value)


def _counter(name: str, meaning: str, value: Callable[[V], float]) -> MetricFamily[V]:
    """Return a counter of one value."""
    return _single(f"{name}_total", "counter", meaning, value)


def seconds(name: str, meaning: str, value_ns: Callable[[V], int]) -> MetricFamily[V]:
    """Return a counter of nanoseconds, in seconds."""
    return _counter(f"{name}_seconds", meaning, lambda view: value_ns(view) / NS_PER_S)


def _moment(name: str, meaning: str, value_ns: Callable[[V], int]) -> MetricFamily[V]:
    """Return a gauge of a Unix time; no series while it is 0."""
    return _gauge(f"{name}_timestamp_seconds", meaning, lambda view: value_ns(view) / NS_PER_S or None)


def collector(
    name: str, meaning: str, value: Callable[[CollectorView], float], kind: Kind = "gauge"
) -> MetricFamily[RankView]:
    """Return a metric from the status of a rank's collector; it has no series without a connected one or a status."""

    def find(view: RankView) -> float | None:
        return None if (status := _find_status(view)) is None else value(status)

    return _single(f"collector_{name}", kind, meaning, find)


def _find_status(view: RankView) -> CollectorView | None:
    """Return the status of a rank's collector, None where it is not known now."""
    return view.status if view.connected and not view.ended else None


def sender(
    name: str, meaning: str, value: Callable[[SenderView], float | None], kind: Kind = "gauge"
) -> MetricFamily[DaemonSnapshot]:
    """Return a metric with a series for each sender whose value is not None."""
    return _several(
        f"sender_{name}", kind, meaning, "token", lambda view: ((each.sender, value(each)) for each in view.senders)
    )


def _stage(name: str, meaning: str, value: Callable[[StageFigures], float | None]) -> MetricFamily[RankView]:
    """Return a gauge with a series for each stage whose value is not None."""
    return _several(
        f"stage_{name}", "gauge", meaning, "stage", lambda view: ((each.stage, value(each)) for each in view.stages)
    )


def _several(
    name: str, kind: Kind, meaning: str, key: str, numbers: Callable[[V], Iterable[tuple[str, float | None]]]
) -> MetricFamily[V]:
    """Return a metric with a series for each of the numbers that is not None, after the value of the label `key`."""

    def samples(view: V) -> list[tuple[Labels, float]]:
        return [((value,), number) for value, number in numbers(view) if number is not None]

    return MetricFamily(f"deepprof_{name}", kind, meaning, samples, (key,))


def _contexts(name: str, meaning: str, value: Callable[[ContextFigures], int]) -> MetricFamily[RankView]:
    """Return a counter of seconds with a series for each line of code that leads, and one for all others."""

    def samples(view: RankView) -> list[tuple[Labels, float]]:
        found = view.contexts
        if found is None:
            return []
        named = [(each.context, each) for each in found.lines] + [(OTHER_CONTEXTS, found.other)]
        return [((line,), value(each) / NS_PER_S) for line, each in named]

    return MetricFamily(f"deepprof_context_{name}_seconds_total", "counter", meaning, samples, ("context",))


def _tally(name: str, meaning: str, key: str, counts: Callable[[V], Mapping[str, int]]) -> MetricFamily[V]:
    """Return a counter with a series for each key of a mapping, which is the value of the label `key`."""
    return _several(f"{name}_total", "counter", meaning, key, lambda view: counts(view).items())


def _one_of(values: Sequence[str], present: str) -> list[tuple[Labels, float]]:
    """Return a sample for each possible value of a label: 1 for the one that is present, 0 for the others."""
    return [((value,), int(value == present)) for value in values]


def _cumulate(view: DeviceView) -> list[tuple[Labels, float]]:
    """Return the cumulative buckets that Prometheus expects, then their sum and number."""
    counts = list(accumulate(view.duration_counts))
    return [((), number) for number in (*counts, view.duration_sum_ns / NS_PER_S, counts[-1])]


RANK: tuple[MetricFamily[RankView], ...] = (
    MetricFamily(
        "deepprof_rank_info",
        "gauge",
        "Always 1; `host` is where the rank says it runs.",
        lambda view: (((view.host,), 1),),
        ("host",),
    ),
    _gauge("rank_connected", "1 while a collector is connected for the rank.", lambda view: int(view.connected)),
    _gauge("rank_ended", "1 after the rank's collector said that the recording is over.", lambda view: int(view.ended)),
    _gauge(
        "rank_clock_offset_seconds",
        "Daemon's clock less the rank's, as its collector says.",
        lambda view: view.clock_offset_ns / NS_PER_S,
    ),
    _moment("last_record", "When the rank's last batch arrived.", lambda view: view.last_record_unix_ns),
    _moment(
        "last_iteration",
        "When an iteration of the rank was last found; absent before the first.",
        lambda view: view.last_iteration_unix_ns,
    ),
    _counter("records_received", "Records that arrived.", lambda view: view.account.received),
    _counter("records_accepted", "Records that were taken and analysed.", lambda view: view.account.accepted),
    _tally(
        "records_dropped",
        "Records that were taken and then left out, by reason.",
        "reason",
        lambda view: view.account.dropped,
    ),
    _tally(
        "records_kept",
        "Records that were taken and analysed, by kind: kernel, memcpy, memset, graph, sync, host_events, annotations, "
        "memory_events, context_sums, or unknown, from before kinds were counted.",
        "kind",
        lambda view: {each.kind: each.accepted for each in view.account.kinds},
    ),
    _tally(
        "records_missing",
        "Records that never arrived, by reason, as the collector says: lost ones, and those that it left out.",
        "reason",
        lambda view: view.account.missing,
    ),
    _counter("records_invalid", "Records that break the protocol.", lambda view: view.account.invalid),
    _counter("records_duplicate", "Records that had arrived before.", lambda view: view.account.duplicate),
    _counter("records_lost", "Records that the collector says it could not send.", lambda view: view.account.lost),
    _counter("sequence_gaps", "Holes in the sequence of records.", lambda view: view.account.gaps),
    _gauge("queue_bytes", "Records taken and not yet analysed.", lambda view: view.queued_nbytes),
    _gauge(
        "ingest_lag_seconds",
        "From the arrival of the last analysed batch to its analysis.",
        lambda view: view.lag_ns / NS_PER_S,
    ),
    MetricFamily(
        "deepprof_collector_level",
        "gauge",
        "1 for the level that holds: full, duty (a share of the time is recorded), off; 0 for the others. "
        "Absent where the collector does not say.",
        lambda view: _one_of(LEVELS, status.level) if (status := _find_status(view)) else (),
        ("level",),
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
        lambda view: [(finding, 1) for finding in view.findings.items()],
        ("finding", "severity"),
    ),
    _stage(
        "seconds",
        "Time in which the device works or waits for the stage: the mean of an iteration, in the latest examined "
        "records; absent where they do not show it.",
        lambda each: each.device_ns / NS_PER_S,
    ),
    _stage(
        "host_seconds",
        "Time for which the threads that launch are in the stage: the mean of an iteration, in the latest examined "
        "records; absent where they do not show it.",
        lambda each: None if each.host_ns is None else each.host_ns / NS_PER_S,
    ),
    _stage(
        "confidence_ratio",
        "How sure the stage is, 0 to 1; absent where the device does no work for it.",
        lambda each: each.confidence_ratio,
    ),
    _contexts(
        "host",
        "Time on threads of the host in a line of code and what it calls of frameworks, for the lines that lead; all "
        "others are `(other)`. Absent where the job sends no calling contexts.",
        lambda each: each.host_ns,
    ),
    _contexts(
        "device",
        "Time on devices, added up, of what a line of code launched, for the lines that lead; all others are "
        "`(other)`. Absent where the job sends no calling contexts.",
        lambda each: each.device_ns,
    ),
    MetricFamily(
        "deepprof_mfu_ratio",
        "gauge",
        "Model FLOP utilisation: the operations that `exporter.model_flops` states for an iteration, over what the "
        "device's peak allows in the median of the latest ones; absent for jobs of which it states none.",
        list_utilization,
        ("device",),
    ),
)

DEVICE: tuple[MetricFamily[DeviceView], ...] = (
    MetricFamily(
        "deepprof_iteration_duration_seconds",
        "histogram",
        "Iterations by duration, from an iteration's start to the next one's.",
        _cumulate,
    ),
    _counter("iterations", "Iterations found.", lambda view: view.iterations_total),
    _counter("iterations_incomplete", "Iterations found that lack a part.", lambda view: view.incomplete_total),
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
    _gauge(
        "iteration_confidence_ratio",
        "How sure the iteration is, 0 to 1; absent while none was found.",
        lambda view: None if view.loop is None else view.loop.confidence,
    ),
    _gauge(
        "iteration_kernels",
        "Kernels of the main stream per iteration; absent while none was found.",
        lambda view: None if view.loop is None else view.loop.period,
    ),
    _gauge(
        "iteration_events",
        "Device events of the last iteration; absent while there was none.",
        lambda view: view.last_events if view.iterations_total else None,
    ),
    MetricFamily(
        "deepprof_miner_state",
        "gauge",
        "1 for the state that holds: learning (no iteration so far), locked (followed), lost; 0 for the others.",
        lambda view: _one_of(STATES, view.state),
        ("state",),
    ),
    _counter("miner_resets", "Times that the loop was lost or replaced.", lambda view: view.resets_total),
    _counter("graph_growth", "Times that the followed iteration became longer.", lambda view: view.growth_total),
    _counter(
        "foreign_kernels", "Kernels of the main stream that belong to no iteration.", lambda view: view.foreign_total
    ),
    _counter("device_events", "Device events analysed.", lambda view: view.events_total),
    seconds("busy", "Time in which anything ran on the device.", lambda view: view.busy_ns_total),
    seconds("compute", "Time in which a kernel ran that is no collective.", lambda view: view.compute_ns_total),
    seconds("copy", "Time in which a copy ran.", lambda view: view.copy_ns_total),
    seconds("copy_exposed", "Time in which a copy ran and no kernel.", lambda view: view.copy_exposed_ns_total),
    _tally(
        "copied_bytes", "Bytes copied, by kind (HtoD, DtoH, DtoD, PtoP, HtoH).", "kind", lambda view: view.copied_nbytes
    ),
)

JOB: tuple[MetricFamily[JobRanks], ...] = (
    _gauge("job_ranks", "Ranks of the job that have sent something and are not forgotten.", len),
    _gauge(
        "job_ranks_connected",
        "Ranks of the job with a connected collector.",
        lambda ranks: sum(rank.connected for rank in ranks),
    ),
    _gauge("job_ranks_ended", "Ranks of the job whose recording is over.", lambda ranks: sum(r.ended for r in ranks)),
    _gauge(
        "job_world_size",
        "Ranks that the job says it has; 0: it does not say.",
        lambda ranks: max(rank.world_size for rank in ranks),
    ),
    _counter(
        "job_records_received",
        "Records that arrived from all ranks of the job.",
        lambda ranks: sum(rank.account.received for rank in ranks),
    ),
)

DAEMON: tuple[MetricFamily[DaemonSnapshot], ...] = (
    MetricFamily(
        "deepprof_build_info",
        "gauge",
        "Always 1; `version` is DeepProf's.",
        lambda view: (((view.version,), 1),),
        ("version",),
    ),
    _gauge("ready", "1 while the daemon takes records and what it shows is fresh.", lambda view: int(view.ready)),
    _moment("start", "When the daemon started.", lambda view: view.started_unix_ns),
    _gauge("streams", "Streams of collectors that are open.", lambda view: view.streams),
    _gauge("pipeline_queue_bytes", "Records of all ranks taken and not yet analysed.", lambda view: view.queue_nbytes),
    _gauge("journal_bytes", "Journal on disk.", lambda view: view.journal_nbytes),
    _gauge("history_bytes", "Iteration history on disk.", lambda view: view.history_nbytes),
    _counter(
        "refused_messages",
        "Messages that broke a limit or could not be read.",
        lambda view: view.refused_messages_total,
    ),
    MetricFamily(
        "deepprof_refusals_total",
        "counter",
        "Streams, messages and calls that were refused, by reason and the name of the token; none: not known.",
        lambda view: [*view.refusals_total.items()],
        ("reason", "token"),
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
    sender("ranks_limit", "Ranks that the sender may have; absent: no limit.", lambda each: each.share.ranks or None),
    sender(
        "records_limit_per_second",
        "Records that the sender may bring in a second; absent: no limit.",
        lambda each: each.share.records_per_s or None,
    ),
    sender(
        "kept_limit_bytes",
        "Iteration history that the sender's jobs may have; absent: no limit.",
        lambda each: each.share.kept_nbytes or None,
    ),
    _counter("examinations", "Times that the rules looked at a job's latest records.", lambda v: v.examinations_total),
)
