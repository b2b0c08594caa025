"""A job with the findings on it, of all ranks: what the answer rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.trace import WORK_ACTIVITIES
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.earlier_work import EarlierWork
from deepprof.metrics.cost.roofline_tables import LoopRoofline
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.comparison import RankComparison
from deepprof.metrics.top_tables import TopWork


class TimeSummary(Struct, frozen=True):
    """Device time of all ranks and devices: unions of intervals, `busy_ns + idle_ns == span_ns`.

    The span of one device runs from its first event to its last; several devices add up to device time.
    """

    span_ns: int
    busy_ns: int
    idle_ns: int
    events: Mapping[str, int]  # kernel, memcpy, memset, graph

    @property
    def busy_ratio(self) -> float | None:
        """The share of the span in which the device works, None without a span."""
        return self.busy_ns / self.span_ns if self.span_ns else None


def add_up(summaries: Iterable[TimeSummary]) -> TimeSummary:
    """Return the sums over several ranks."""
    span = busy = 0
    events: Counter[str] = Counter()
    for each in summaries:
        span, busy = span + each.span_ns, busy + each.busy_ns
        events.update(each.events)
    return TimeSummary(span, busy, span - busy, {activity: events[activity] for activity in WORK_ACTIVITIES})


class WorkWithoutLoop(Struct, frozen=True, eq=False):
    """What uses the time of a device without a loop; `stream` is its main stream, None where it has none.

    `roofline` is that of what is measured as one iteration, None where there is none or no shapes were read. `parts` is
    where the time of what is measured goes, in ns, empty where that is nothing; `start` is where that of the program's
    start goes. With `lacks_host` the host was not recorded, or for hardly any of the time. `earlier` is the work from
    before the recording that the device most likely waits for.
    """

    rank: int
    device: int
    stream: int | None
    top: TopWork
    roofline: LoopRoofline | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    start: Mapping[str, int] = field(default_factory=dict)
    lacks_host: bool = False
    earlier: EarlierWork | None = None


class DiagnosedJob(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The loops of all ranks, where the time goes, and the findings, the root cause first.

    `breakdown` has the schema `BREAKDOWN` of `deepprof.results.analysis_tables`.
    """

    summary: TimeSummary
    loops: tuple[Loop, ...]
    findings: tuple[Finding, ...]
    breakdown: pl.DataFrame
    ranks: RankComparison | None = None  # for a job of several ranks or devices
    stretches: tuple[WorkWithoutLoop, ...] = ()  # one per device without a loop
    steps: tuple[Loop, ...] = ()  # single marked steps, on devices without a loop

    @property
    def headline(self) -> Finding | None:
        """The root cause to examine first: the first finding of at least a warning that is not another one's symptom.

        `capture-incomplete` is left out: it concerns the recording, not the job.
        """
        told = (f for f in self.findings if f.severity != "info" and f.caused_by is None)
        return next((finding for finding in told if finding.rule != "capture-incomplete"), None)
