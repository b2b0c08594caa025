"""The pipeline: trace → streams → loops → metrics → findings, and the one object that every face shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.iteration import LoopMetrics

__all__ = ["Agreement", "Analysis", "Loop", "Summary", "analyze"]

BoundarySource = Literal["annotation", "framework", "mined"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Device time of all ranks and devices: unions of intervals, `busy_ns + idle_ns == span_ns`."""

    span_ns: int
    busy_ns: int
    idle_ns: int
    events: Mapping[str, int]  # kernel, memcpy, memset, graph


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the loop agrees with a family of annotations; `ratio` is the share of them that it meets."""

    name: str
    iterations: int
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One repeated iteration on one main stream; `iterations` has the schema `metrics.iteration.ITERATIONS`."""

    rank: int
    device: int
    stream: int
    period: int
    confidence: float
    evidence: str
    boundary_source: BoundarySource
    agreement: Agreement | None
    iterations: pl.DataFrame
    metrics: LoopMetrics
    cycles: tuple[Mapping[str, int | str], ...] = ()
    nested: tuple[Mapping[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Everything DeepProf knows of one job: what renderers, the service and the Python API share."""

    traces: tuple[Trace, ...]
    summary: Summary
    streams: pl.DataFrame  # rank, device, stream, role, events, busy_ns
    loops: tuple[Loop, ...]
    no_loop_reason: str | None
    findings: tuple[Finding, ...]

    @property
    def events(self) -> pl.DataFrame:
        """Device events of all ranks, with `rank` and `name`."""
        raise NotImplementedError

    @property
    def iterations(self) -> pl.DataFrame:
        """Iterations of all loops, with `rank`, `device`, `stream` and `loop`."""
        raise NotImplementedError

    @property
    def metrics(self) -> pl.DataFrame:
        """Table III, one row per loop."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the report `deepprof.report/1`."""
        from deepprof.render.json import encode

        return encode(self)


def analyze(traces: Trace | Sequence[Trace], *, counts: Sequence[int] = (), stream: tuple[int, int] | None = None) -> Analysis:
    """Find the iterations of one job and diagnose them.

    `traces` are its ranks. `counts` is the paper's mode: the iteration count, or one per loop. `stream` names the
    main stream as (device, stream) instead of choosing it.
    """
    raise NotImplementedError
