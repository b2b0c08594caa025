"""Snapshots in Prometheus' text format: the choice of the ranks that are shown, and their lines.

The lines are not written by prometheus_client, which makes an object per sample and takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

from deepprof.collectors.errors import UsageError, escaped
from deepprof.live.service.exporter.families import (
    DAEMON,
    DEVICE,
    DEVICE_LABELS,
    JOB,
    JOB_LABELS,
    RANK,
    RANK_LABELS,
    JobRanks,
    MetricFamily,
)
from deepprof.live.service.exporter.snapshot import DaemonSnapshot
from deepprof.live.service.model_flops import ModelFlops, add_ideal
from deepprof.live.service.views import BUCKETS_S, RankView
from deepprof.live.wire.declarations import Labels

TTL_S = 900.0  # the alert on a silent collector needs seven minutes, and should then stay active for a while
SERIES_CAP = 100_000  # some 1,800 ranks, 9 MB a scrape
SERIES_DROPPED: MetricFamily[int] = MetricFamily(
    "deepprof_series_dropped_total",
    "counter",
    "Series left out of scrapes because there were too many, summed over scrapes.",
    lambda dropped: (((), dropped),),
)
FAMILIES_OF_RANKS: tuple[MetricFamily[Any], ...] = (*RANK, *DEVICE)
HISTOGRAM = (
    *(("_bucket", f',le="{bound}"') for bound in (*map(repr, BUCKETS_S), "+Inf")),
    ("_sum", ""),
    ("_count", ""),
)
NS_PER_S = 1_000_000_000
KEPT_LABELS = 4096  # label texts that are kept from one scrape to the next

V = TypeVar("V")
RankText = list[str]
"""The lines of a rank, a text per family."""


class Exposition:
    """Writes snapshots as text; keeps the lines of every rank until its view changes. Not for several threads at once.

    A rank is shown while its collector is connected and for `ttl_s` seconds after its last record. If there are more
    than `series_cap` series, the oldest ranks are shown, each with all its series. `model_flops` state of which jobs
    the utilisation is known."""

    def __init__(
        self, *, ttl_s: float = TTL_S, series_cap: int = SERIES_CAP, model_flops: Sequence[ModelFlops] = ()
    ) -> None:
        self._ttl_ns, self._cap, self._models = int(ttl_s * NS_PER_S), series_cap, model_flops
        self._written: dict[tuple[str, int], tuple[RankView, RankText]] = {}
        self._dropped = 0

    def render(self, snapshot: DaemonSnapshot) -> str:
        """Return the snapshot in the text format, version 0.0.4."""
        shown = self._shown(snapshot)
        jobs = self._fit_jobs(_group_jobs(snapshot.ranks, dict.fromkeys(view.job for view in shown)))
        self._written = {(view.job, view.rank): (view, self._write(view)) for view in shown}
        ranks = self._fit((texts for _, texts in self._written.values()), len(jobs) * len(JOB))
        return "".join(self._lines(snapshot, jobs, ranks))

    def _write(self, view: RankView) -> RankText:
        """Return the lines of a rank, those of the last scrape where it is the same."""
        last, texts = self._written.get((view.job, view.rank), (None, []))
        return texts if last is view or last == view else _write_rank(view)

    def _shown(self, snapshot: DaemonSnapshot) -> list[RankView]:
        """Return the ranks that are not too old, in the order in which they were first seen."""
        oldest_ns = snapshot.now_unix_ns - self._ttl_ns
        fresh = [view for view in snapshot.ranks if view.connected or _seen_unix_ns(view) > oldest_ns]
        if self._models:
            fresh = [add_ideal(view, self._models) for view in fresh]
        return sorted(fresh, key=lambda view: (view.first_seen_unix_ns, view.job, view.rank))

    def _fit_jobs(self, jobs: list[tuple[str, JobRanks]]) -> list[tuple[str, JobRanks]]:
        """Return the first jobs whose series fit; jobs take precedence over ranks, as they are few and show most."""
        room = self._cap // len(JOB)
        self._dropped += len(jobs[room:]) * len(JOB)
        return jobs[:room]

    def _fit(self, ranks: Iterable[RankText], used: int) -> list[RankText]:
        """Return the first ranks that fit together; after one that does not fit, no other is shown."""
        fitting = []
        for texts in ranks:
            series = sum(text.count("\n") for text in texts)
            used += series
            if used <= self._cap:
                fitting.append(texts)
            else:
                self._dropped += series
        return fitting

    def _lines(
        self, snapshot: DaemonSnapshot, jobs: Sequence[tuple[str, JobRanks]], ranks: Sequence[RankText]
    ) -> Iterator[str]:
        yield from _write_whole(DAEMON, [("", snapshot)])
        yield from _write_whole((SERIES_DROPPED,), [("", self._dropped)])
        yield from _write_whole(JOB, [(_label(JOB_LABELS, (job,)), views) for job, views in jobs])
        for family, texts in zip(FAMILIES_OF_RANKS, zip(*ranks, strict=True), strict=False):  # no rank: no texts
            yield head(family)
            yield from texts


def measure_process() -> Callable[[], bytes]:
    """Return what writes the usual `process_…` metrics of this process: CPU time, memory, open files.

    Raises `UsageError` where prometheus_client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    except ImportError:
        raise UsageError('metrics need prometheus_client; pip install "deepprof[service]"') from None
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    return partial(generate_latest, registry)


def _seen_unix_ns(view: RankView) -> int:
    """Return when the rank last sent, or was first seen."""
    return max(view.first_seen_unix_ns, view.last_record_unix_ns)


def _group_jobs(ranks: Iterable[RankView], shown: Iterable[str]) -> list[tuple[str, JobRanks]]:
    """Return the jobs that have a rank to show, in the order of `shown`, with all their ranks."""
    by_job: dict[str, list[RankView]] = {job: [] for job in shown}
    for view in ranks:
        if view.job in by_job:
            by_job[view.job].append(view)
    return [*by_job.items()]


def _write_rank(view: RankView) -> RankText:
    own = _label(RANK_LABELS, (view.job, str(view.rank)))
    devices = [(f"{own},{_label(DEVICE_LABELS[-1:], (str(each.device),))}", each) for each in view.devices]
    return [
        *[_write_series(family, own, view) for family in RANK],
        *["".join([_write_series(family, labels, each) for labels, each in devices]) for family in DEVICE],
    ]


def _write_whole(families: Iterable[MetricFamily[V]], views: Sequence[tuple[str, V]]) -> Iterator[str]:
    for family in families:
        yield head(family)
        for labels, view in views:
            yield _write_series(family, labels, view)


def _write_series(family: MetricFamily[V], labels: str, view: V) -> str:
    """Return the lines of a family's series for one view, whose own labels are `labels`."""
    name, samples = family.name, family.samples(view)
    if family.kind == "histogram":
        numbered = zip(HISTOGRAM, samples, strict=True)
        return "".join([f"{name}{suffix}{{{labels}{bound}}} {number}\n" for (suffix, bound), (_, number) in numbered])
    if labels and not family.labels:  # nearly all lines of a scrape
        return f"{name}{{{labels}}} {samples[0][1]}\n" if samples else ""
    every = ((f"{labels},{_label(family.labels, values)}".strip(","), number) for values, number in samples)
    return "".join([f"{name}{{{text}}} {number}\n" if text else f"{name} {number}\n" for text, number in every])


def head(family: MetricFamily[Any]) -> str:
    """Return the lines before a family's samples."""
    return f"# HELP {family.name} {family.meaning}\n# TYPE {family.name} {family.kind}\n"


@lru_cache(KEPT_LABELS)
def _label(names: Labels, values: Labels) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))


def _escape(value: str) -> str:
    """Return a label's value escaped for the text format, without control characters."""
    return escaped(value).replace("\\", "\\\\").replace('"', '\\"')
