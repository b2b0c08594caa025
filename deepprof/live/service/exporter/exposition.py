"""Snapshots in Prometheus' text format: the choice of the ranks that are shown, and their lines.

The lines are not written by prometheus_client, which makes an object per sample: with 1,000 ranks of 55 lines it took
0.4 s per scrape, and this module takes 0.06 s with every rank changed. A rank's lines are kept without their numbers;
if its view is the same as at the last scrape, they are kept with their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from deepprof.collectors.errors import escaped
from deepprof.live.service.exporter.families import (
    DAEMON,
    DEVICE,
    DEVICE_LABELS,
    JOB,
    JOB_LABELS,
    RANK,
    RANK_LABELS,
    JobTotals,
    MetricFamily,
)
from deepprof.live.service.exporter.snapshot import DaemonSnapshot
from deepprof.live.service.views import BUCKETS_S, RankView

__all__ = ["SERIES_CAP", "SERIES_DROPPED", "TTL_S", "Exposition"]

TTL_S = 900.0  # the alert on a silent collector needs seven minutes, and should then stay active for a while
SERIES_CAP = 100_000  # some 1,800 ranks, 9 MB a scrape
SERIES_DROPPED: MetricFamily[int] = MetricFamily(
    "deepprof_series_dropped_total",
    "counter",
    "Series left out of scrapes because there were too many, summed over scrapes.",
    lambda dropped: (dropped,),
)
FAMILIES_OF_RANKS: tuple[MetricFamily[Any], ...] = (*RANK, *DEVICE)
VARYING_OF_RANK = [family for family in RANK if family.varies]
VARYING_OF_DEVICE = [family for family in DEVICE if family.varies]
BUCKET_BOUNDS = (*map(repr, BUCKETS_S), "+Inf")
NS_PER_S = 1_000_000_000
BETWEEN = "\0"  # between the families of a rank's lines; no label value holds it

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class RankLines:
    """A rank's lines: `template` without numbers, `texts` with those of `view`, one text per family."""

    view: RankView
    shape: Sequence[object]
    template: str
    texts: Sequence[str]
    series: int


class Exposition:
    """Writes snapshots as text; keeps what it wrote of each rank. Not for several threads at once.

    A rank is shown while its collector is connected and for `ttl_s` seconds after its last record. If there are more
    than `series_cap` series, the oldest ranks are shown, each with all its series.
    """

    def __init__(self, *, ttl_s: float = TTL_S, series_cap: int = SERIES_CAP) -> None:
        self._ttl_ns, self._cap = int(ttl_s * NS_PER_S), series_cap
        self._blocks: dict[tuple[str, int], RankLines] = {}
        self._dropped = 0

    def render(self, snapshot: DaemonSnapshot) -> str:
        """Return the snapshot in the text format, version 0.0.4."""
        shown = self._shown(snapshot)
        blocks = {(view.job, view.rank): self._block(view) for view in shown}
        jobs = self._fit_jobs(sum_jobs(snapshot.ranks, dict.fromkeys(job for job, _ in blocks)))
        self._blocks = self._fit(blocks, len(jobs) * len(JOB))
        return "".join(self._lines(snapshot, jobs))

    def _shown(self, snapshot: DaemonSnapshot) -> list[RankView]:
        """Return the ranks that are not too old, in the order in which they were first seen."""
        oldest_ns = snapshot.now_unix_ns - self._ttl_ns
        fresh = [view for view in snapshot.ranks if view.connected or seen_unix_ns(view) > oldest_ns]
        return sorted(fresh, key=lambda view: (view.first_seen_unix_ns, view.job, view.rank))

    def _block(self, view: RankView) -> RankLines:
        """Return the rank's lines, of which only the changed parts are made again."""
        last = self._blocks.get((view.job, view.rank))
        if last is not None and (last.view is view or last.view == view):
            return last
        shape = find_shape(view)
        if last is not None and last.shape == shape:
            return fill(view, shape, last.template)
        return fill(view, shape, draw_template(view))

    def _fit_jobs(self, jobs: list[JobTotals]) -> list[JobTotals]:
        """Return the first jobs whose series fit; jobs take precedence over ranks, as they are few and show most."""
        room = self._cap // len(JOB)
        self._dropped += len(jobs[room:]) * len(JOB)
        return jobs[:room]

    def _fit(self, blocks: dict[tuple[str, int], RankLines], used: int) -> dict[tuple[str, int], RankLines]:
        """Return the first blocks that fit together; after one that does not fit, no other is shown."""
        fitting: dict[tuple[str, int], RankLines] = {}
        for key, block in blocks.items():
            used += block.series
            if used <= self._cap:
                fitting[key] = block
            else:
                self._dropped += block.series
        return fitting

    def _lines(self, snapshot: DaemonSnapshot, jobs: Sequence[JobTotals]) -> Iterator[str]:
        yield from draw_whole(DAEMON, [("", snapshot)])
        yield from draw_whole((SERIES_DROPPED,), [("", self._dropped)])
        yield from draw_whole(JOB, [(label(JOB_LABELS, (job.job,)), job) for job in jobs])
        texts = zip(*(block.texts for block in self._blocks.values()), strict=True)
        for family, lines in zip(FAMILIES_OF_RANKS, texts, strict=False):  # no rank: no texts
            yield head(family)
            yield from lines


def seen_unix_ns(view: RankView) -> int:
    """Return when the rank last sent, or was first seen."""
    return max(view.first_seen_unix_ns, view.last_record_unix_ns)


def sum_jobs(ranks: Iterable[RankView], shown: Iterable[str]) -> list[JobTotals]:
    """Return the jobs that have a rank to show, in the order of `shown`, with all their ranks summed."""
    by_job: dict[str, list[RankView]] = {job: [] for job in shown}
    for view in ranks:
        if view.job in by_job:
            by_job[view.job].append(view)
    return [
        JobTotals(
            job=job,
            ranks=len(views),
            connected=sum(view.connected for view in views),
            ended=sum(view.ended for view in views),
            world_size=max(view.world_size for view in views),
            received=sum(view.account.received for view in views),
        )
        for job, views in by_job.items()
    ]


def find_shape(view: RankView) -> Sequence[object]:
    """Return everything on which a rank's lines depend besides their numbers, its job and its rank."""
    own = [family.series(view) for family in VARYING_OF_RANK]
    return [own, [(device.device, *(family.series(device) for family in VARYING_OF_DEVICE)) for device in view.devices]]


def fill(view: RankView, shape: Sequence[object], template: str) -> RankLines:
    """Return the lines with the view's numbers."""
    numbers = tuple(find_numbers(view))
    return RankLines(view, shape, template, (template % numbers).split(BETWEEN), len(numbers))


def find_numbers(view: RankView) -> list[float]:
    """Return the numbers of all lines of a rank, in order."""
    numbers: list[float] = []
    for of_rank in RANK:
        numbers.extend(of_rank.values(view))
    for of_device in DEVICE:
        for device in view.devices:
            numbers.extend(of_device.values(device))
    return numbers


def draw_template(view: RankView) -> str:
    """Return the lines of a rank with `%s` in place of the numbers."""
    own = label(RANK_LABELS, (view.job, str(view.rank)))
    ranks = [draw_series(family, own, view) for family in RANK]
    labels = [f"{own},{label(DEVICE_LABELS[-1:], (str(device.device),))}" for device in view.devices]
    devices = [
        "".join(draw_series(family, text, device) for text, device in zip(labels, view.devices, strict=True))
        for family in DEVICE
    ]
    return BETWEEN.join([*ranks, *devices])


def draw_series(family: MetricFamily[V], labels: str, view: V) -> str:
    """Return the lines of a family's series with `%s` for their numbers."""
    draw = draw_histogram if family.kind == "histogram" else draw_line
    every = (",".join(filter(None, (labels, label(family.labels, values)))) for values in family.series(view))
    return "".join(draw(family.name, text) for text in every)


def draw_line(name: str, labels: str) -> str:
    """Return one line with `%s` for its number."""
    return f"{name}{{{labels}}} %s\n" if labels else f"{name} %s\n"


def draw_histogram(name: str, labels: str) -> str:
    """Return the lines of a histogram: its buckets, their sum and number."""
    buckets = "".join(f'{name}_bucket{{{labels},le="{bound}"}} %s\n' for bound in BUCKET_BOUNDS)
    return buckets + draw_line(f"{name}_sum", labels) + draw_line(f"{name}_count", labels)


def draw_whole(families: Iterable[MetricFamily[V]], views: Sequence[tuple[str, V]]) -> Iterator[str]:
    """Yield families with their heads, made again at each scrape: for small families only."""
    for family in families:
        yield head(family)
        for labels, view in views:
            yield draw_series(family, labels, view) % tuple(family.values(view))


def head(family: MetricFamily[Any]) -> str:
    """Return the lines before a family's samples."""
    return f"# HELP {family.name} {family.meaning}\n# TYPE {family.name} {family.kind}\n"


def label(names: Iterable[str], values: Iterable[str]) -> str:
    """Return labels with their values, as a template holds them."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in zip(names, values, strict=True))


def escape(value: str) -> str:
    """Return a label's value escaped for the text format and a template, without control characters."""
    return escaped(value).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
