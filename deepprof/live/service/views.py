"""The views of ranks and devices: what a session produces, and the exporter and queries read.

They add figures that only the daemon shows to those that it sends to clients (`wire.figures`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import polars as pl

from deepprof.live.wire.declarations import NS_PER_S, Metric, Samples, counter, figure, gauge, no_counts
from deepprof.live.wire.figures import DeviceState, RankState
from deepprof.metrics.iteration import ITERATIONS

# Upper bounds of the iteration duration histogram, log-spaced from 1 ms to 600 s (1, 2.5, 5 per decade).
BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 600.0),
)

# One row of the history: an iteration of a device of a rank, as measured while it ran (or settled at the end).
HISTORY = pl.Schema({"device": pl.Int64(), "stream": pl.Int64(), "loop": pl.Int64(), **ITERATIONS})


@dataclass(frozen=True, slots=True)
class LoopView:
    """A loop that was followed: `period` in kernels of the main stream, `confidence` 0..1, iterations given so far."""

    number: int
    period: int
    confidence: float
    evidence: str
    boundary_source: str
    iterations: int

    def shown(self) -> dict[str, Any]:
        """Return the fields that it shares with `DeviceState` and `FollowedLoop`."""
        return {
            "loop": self.number,
            "period": self.period,
            "confidence_ratio": self.confidence,
            "evidence": self.evidence,
            "boundary_source": self.boundary_source,
        }


def _cumulate(view: DeviceView) -> Samples:
    """Return the cumulative buckets that Prometheus expects, then their sum and number."""
    counts = list(accumulate(view.duration_counts))
    return [((), number) for number in (*counts, view.duration_sum_ns / NS_PER_S, counts[-1])]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView(DeviceState):
    """One device of a rank. Times in ns on the rank's clock; all counters only ever grow while the rank runs:
    at its end the iterations of the analysis of all its records replace the live ones.

    `loops` are those followed, the latest last. `duration_counts` are iterations per bucket of `BUCKETS_S` (not
    cumulative), and one more for longer ones; `duration_sum_ns` is their sum. Interval and copy totals follow the
    paper: `interval_ns_total` idle time of the main stream between adjacent iterations, `interval_copy_ns_total` the
    copy time from the host inside those intervals. `copy_ns_total` is the union of all copies, `copy_exposed_ns_total`
    the part of it in which no kernel ran. `compute_ns_total` is the union of kernels that are no collectives,
    `busy_ns_total` that of everything.
    """

    loops: tuple[LoopView, ...] = ()
    duration_counts: tuple[int, ...] = figure(
        (0,) * (len(BUCKETS_S) + 1),
        Metric(
            name="iteration_duration_seconds",
            type="histogram",
            meaning="Iterations by duration, from an iteration's start to the next one's.",
            samples=_cumulate,
        ),
    )
    duration_sum_ns: int = 0
    incomplete_total: int = figure(0, counter("iterations_incomplete_total", "Iterations found that lack a part."))
    interval_ns_total: int = figure(
        0,
        counter("iteration_interval_seconds_total", "Idle time of the main stream between adjacent iterations."),
    )
    interval_copy_ns_total: int = figure(
        0,
        counter(
            "interval_copy_seconds_total",
            "Copies from the host inside those intervals; divided by them it is the interval overlap.",
        ),
    )
    last_events: int = figure(
        0,
        gauge(
            "iteration_events",
            "Device events of the last iteration; absent while there was none.",
            needs="iterations",
        ),
    )
    latest_ns: tuple[int, ...] = ()  # times of the latest complete iterations, the last one last
    growth_total: int = figure(0, counter("graph_growth_total", "Times that the followed iteration became longer."))
    events_total: int = figure(0, counter("device_events_total", "Device events analysed."))
    busy_ns_total: int = figure(0, counter("busy_seconds_total", "Time in which anything ran on the device."))
    compute_ns_total: int = figure(
        0, counter("compute_seconds_total", "Time in which a kernel ran that is no collective.")
    )
    copy_ns_total: int = figure(0, counter("copy_seconds_total", "Time in which a copy ran."))
    copy_exposed_ns_total: int = figure(
        0, counter("copy_exposed_seconds_total", "Time in which a copy ran and no kernel.")
    )
    copied_nbytes: Mapping[str, int] = figure(
        no_counts,
        counter("copied_bytes_total", "Bytes copied, by kind (HtoD, DtoH, DtoD, PtoP, HtoH).", labels=("kind",)),
    )


def _list_utilization(view: RankView) -> Samples:
    """Return the share of every device's median iteration that its model's operations would take at the peak."""
    ideal_ns = view.ideal_iteration_ns
    if ideal_ns is None:
        return []
    known = [device for device in view.devices if device.median_iteration_ns > 0]
    return [((str(device.device),), ideal_ns / device.median_iteration_ns) for device in known]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView(RankState):
    """One rank of a job, as last shown. Unix times are the daemon's clock."""

    devices: tuple[DeviceView, ...] = ()
    last_iteration_unix_ns: int = figure(
        0,
        gauge(
            "last_iteration_timestamp_seconds",
            "When an iteration of the rank was last found; absent before the first.",
            needs="last_iteration_unix_ns",
        ),
    )
    queued_nbytes: int = figure(0, gauge("queue_bytes", "Records taken and not yet analysed."))
    lag_ns: int = figure(0, gauge("ingest_lag_seconds", "From the arrival of the last analysed batch to its analysis."))
    findings: Mapping[str, str] = figure(  # open ones: rule → severity
        no_counts,
        gauge(
            "diagnosis_active",
            "1 while the latest records show the finding; no series when they do not.",
            unit="0 or 1",
            labels=("finding", "severity"),
            samples=lambda view: [(finding, 1) for finding in view.findings.items()],
        ),
    )
    ideal_iteration_ns: float | None = figure(  # of an iteration at the device's peak, if the configuration has it
        None,
        gauge(
            "mfu_ratio",
            "Model FLOP utilisation: the operations that `exporter.model_flops` states for an iteration, over what the "
            "device's peak allows in the median of the latest ones; absent for jobs of which it states none.",
            labels=("device",),
            samples=_list_utilization,
        ),
    )
    sender: str = ""  # the name of the token that sent it, or of another proof; "": unknown
