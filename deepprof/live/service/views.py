"""The views of ranks and devices: values that a session produces, and that the exporter and queries read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import polars as pl

from deepprof.live.wire.figures import Account, LeadingFigures, StageFigures
from deepprof.metrics.iteration import ITERATIONS

State = Literal["learning", "locked", "lost"]
Level = Literal["full", "duty", "off"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """One device of a rank. Times in ns on the rank's clock; all `_total` fields only ever grow while the rank runs:
    at its end the iterations of the analysis of all its records replace the live ones.

    `loops` are those followed, the latest last; `loop` the one followed now or last, None before the first.
    `duration_counts` are iterations per bucket of `BUCKETS_S` (not cumulative), and one more for longer ones;
    `duration_sum_ns` is their sum. Interval and copy totals follow the paper: `interval_ns_total` idle time of the main
    stream between adjacent iterations, `interval_copy_ns_total` the copy time from the host inside those intervals.
    `copy_ns_total` is the union of all copies, `copy_exposed_ns_total` the part of it in which no kernel ran.
    `compute_ns_total` is the union of kernels that are no collectives, `busy_ns_total` that of everything.
    """

    device: int
    stream: int
    state: State = "learning"
    loop: LoopView | None = None
    loops: tuple[LoopView, ...] = ()
    iterations_total: int = 0
    incomplete_total: int = 0  # incomplete ones of these iterations
    last_iteration_start_ns: int = 0
    last_iteration_ns: int = 0
    last_interval_ns: int = 0
    last_events: int = 0  # device events of the last iteration
    median_iteration_ns: int = 0  # of the latest 256 complete ones
    latest_ns: tuple[int, ...] = ()  # times of the latest complete ones, the last one last
    foreign_total: int = 0  # kernels of the main stream in no iteration
    resets_total: int = 0  # loops lost or replaced
    growth_total: int = 0  # times that the followed iteration became longer
    duration_counts: tuple[int, ...] = (0,) * (len(BUCKETS_S) + 1)
    duration_sum_ns: int = 0
    interval_ns_total: int = 0
    interval_copy_ns_total: int = 0
    copy_ns_total: int = 0
    copy_exposed_ns_total: int = 0
    copied_nbytes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # by copy kind
    compute_ns_total: int = 0
    busy_ns_total: int = 0
    events_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorView:
    """The last status of a rank's collector: its `level` since `since_unix_ns` on its host's clock, and the reason.

    `duty_ratio` is the share of the time that it records, `overhead_ratio` its CPU time as a share of one core's time;
    `lost` records and `level_changes` are counted by the collector itself.
    """

    level: Level = "full"
    reason: str = ""
    since_unix_ns: int = 0
    duty_ratio: float = 1.0
    overhead_ratio: float = 0.0
    spool_nbytes: int = 0
    lost: int = 0
    level_changes: int = 0
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """One rank of a job, as last shown. Unix times are the daemon's clock; `queued_nbytes` waits to be mined."""

    job: str
    rank: int
    world_size: int = 0
    host: str = ""
    collector: str = ""
    connected: bool = False
    ended: bool = False
    settled: bool = False
    first_seen_unix_ns: int = 0
    last_record_unix_ns: int = 0
    last_iteration_unix_ns: int = 0  # when the last iteration was found; 0: none so far
    clock_offset_ns: int = 0
    account: Account = field(default_factory=Account)
    queued_nbytes: int = 0
    lag_ns: int = 0  # from the arrival of the last mined batch until it was mined
    devices: tuple[DeviceView, ...] = ()
    findings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # open ones: rule → severity
    stages: tuple[StageFigures, ...] = ()  # the known ones of its latest examined records
    status: CollectorView | None = None  # None: the collector has sent no status
    ideal_iteration_ns: float | None = None  # of an iteration at the device's peak, if the configuration says it
    contexts: LeadingFigures | None = None  # None: it sends no calling contexts
    sender: str = ""  # the name of the token that sent it, or of another proof; "": not known
