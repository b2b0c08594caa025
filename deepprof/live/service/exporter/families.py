"""Every metric that is exposed, with the function that reads its samples from a view.

Metrics are declared with their figures: in `wire.figures` what clients get too, in `service.views` and `snapshot` what
only the daemon shows. Base units throughout (seconds, bytes, ratios), `_total` on counters and nothing else, no means
and no quantiles: both parts of a quotient are exported as counters. Stages alone are means: they are known of the
records that were examined, and not of all that arrived. No label contains the name of a kernel, or anything else that a
job has many of; lines of code are those that lead, a few of every rank (`service.leading_contexts`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from deepprof.live.service.exporter.snapshot import DaemonSnapshot
from deepprof.live.service.leading_contexts import OTHER_CONTEXTS
from deepprof.live.service.views import DeviceView, RankView
from deepprof.live.wire.declarations import UNITS, Labels, Metric, MetricType, Samples, find_figures
from deepprof.live.wire.figures import (
    Account,
    CollectorStatus,
    ContextFigures,
    KindAccount,
    SenderState,
    Share,
    StageFigures,
)

V = TypeVar("V")
Value = TypeVar("Value")
JobRanks = Sequence[RankView]  # all ranks of a job, including those that are not shown one by one

JOB_LABELS: Labels = ("job_id",)
RANK_LABELS: Labels = ("job_id", "rank")
DEVICE_LABELS: Labels = ("job_id", "rank", "device")


@dataclass(frozen=True, slots=True)
class MetricFamily(Generic[V]):
    """A metric: `samples` returns its numbers, each after the values of the metric's own `labels`.

    A histogram has a number per bucket of `BUCKETS_S`, one for all, their sum and their count.
    """

    name: str
    kind: MetricType
    meaning: str
    samples: Callable[[V], Samples]
    labels: Labels = ()
    unit: str = "number"


def _make(metric: Metric, default: object, samples: Callable[[V], Samples], labels: Labels = ()) -> MetricFamily[V]:
    """Return a metric that is declared with a figure; `labels` come before its own."""
    end = metric.name.removesuffix("_total")
    unit = metric.unit or next((unit for suffix, unit in UNITS.items() if end.endswith(suffix)), "")
    if not unit:
        is_mark = isinstance(default, bool) or (metric.type == "gauge" and metric.labels)
        unit = "0 or 1" if is_mark else "number"
    name, own = f"deepprof_{metric.name}", (*labels, *metric.labels)
    return MetricFamily(name, metric.type, metric.meaning, samples, own, unit)


def _list_metrics(kind: Any) -> Iterator[tuple[str, Metric, object]]:
    """Yield the figures of a value that are exported: their fields, metrics and defaults."""
    defaults = {each.name: each.default for each in fields(kind)}
    for name, each in find_figures(kind).items():
        if each.metric is not None:
            yield name, each.metric, defaults[name]


def _own(kind: type[V]) -> tuple[MetricFamily[V], ...]:
    return tuple(_make(metric, default, metric.make_reader(name)) for name, metric, default in _list_metrics(kind))


def list_single(_: type[V], kind: type[Value], find: Callable[[V], Value | None]) -> tuple[MetricFamily[V], ...]:
    """Return the metrics of a value that a view has once; no series while it is None."""

    def reading(read: Callable[[Value], Samples]) -> Callable[[V], Samples]:
        return lambda view: () if (value := find(view)) is None else read(value)

    return tuple(
        _make(metric, default, reading(metric.make_reader(name))) for name, metric, default in _list_metrics(kind)
    )


def _several(
    _: type[V], kind: type[Value], label: str, find: Callable[[V], Iterable[tuple[str, Value]]]
) -> tuple[MetricFamily[V], ...]:
    """Return the metrics of values of which a view has several, each with its own value of `label`."""

    def reading(read: Callable[[Value], Samples]) -> Callable[[V], Samples]:
        return lambda view: [((key, *more), number) for key, value in find(view) for more, number in read(value)]

    return tuple(
        _make(metric, default, reading(metric.make_reader(name)), (label,))
        for name, metric, default in _list_metrics(kind)
    )


def _merged(kind: type, find: Callable[[RankView], object]) -> Iterator[MetricFamily[JobRanks]]:
    for name, each in find_figures(kind).items():
        if each.of_job is not None and each.merge is not None:
            yield _make(each.of_job, None, _merging(name, each.merge, find))


def _merging(
    name: str, merge: Callable[[Iterable[float]], float], find: Callable[[RankView], object]
) -> Callable[[JobRanks], Samples]:
    return lambda ranks: (((), merge(getattr(find(rank), name) for rank in ranks)),)


def _find_status(view: RankView) -> CollectorStatus | None:
    """Return the status of a rank's collector, None where it is unknown now."""
    return view.status if view.connected and not view.ended else None


def _list_contexts(view: RankView) -> Iterable[tuple[str, ContextFigures]]:
    """Return the lines of code that lead, and all others as one."""
    found = view.contexts
    return () if found is None else [*((each.context, each) for each in found.lines), (OTHER_CONTEXTS, found.other)]


RANK: tuple[MetricFamily[RankView], ...] = (
    *_own(RankView),
    *list_single(RankView, Account, lambda view: view.account),
    *_several(RankView, KindAccount, "kind", lambda view: ((each.kind, each) for each in view.account.kinds)),
    *list_single(RankView, CollectorStatus, _find_status),
    *_several(RankView, StageFigures, "stage", lambda view: ((each.stage, each) for each in view.stages)),
    *_several(RankView, ContextFigures, "context", _list_contexts),
)

DEVICE: tuple[MetricFamily[DeviceView], ...] = _own(DeviceView)

JOB: tuple[MetricFamily[JobRanks], ...] = (
    MetricFamily(
        "deepprof_job_ranks",
        "gauge",
        "Ranks of the job that have sent something and are not forgotten.",
        lambda ranks: (((), len(ranks)),),
    ),
    *_merged(RankView, lambda view: view),
    *_merged(Account, lambda view: view.account),
)

DAEMON: tuple[MetricFamily[DaemonSnapshot], ...] = (
    *_own(DaemonSnapshot),
    *_several(DaemonSnapshot, SenderState, "token", lambda view: ((each.sender, each) for each in view.senders)),
    *_several(DaemonSnapshot, Share, "token", lambda view: ((each.sender, each.share) for each in view.senders)),
)
