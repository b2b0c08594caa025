"""Marks of the rows of a trace: by time, of several selections at once, and what launched device events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.kept_rows import RowMarks
from deepprof.collectors.time_range import POINTS
from deepprof.collectors.trace import RECORD_TABLES, Trace
from deepprof.metrics.selection.thread_spans import merge_spans, overlap
from deepprof.metrics.spans import Spans

Bools = npt.NDArray[np.bool_]


def combine(marks: Sequence[RowMarks]) -> RowMarks:
    """Return the rows that all of some marks have."""
    return {table: np.logical_and.reduce([each[table] for each in marks]) for table in RECORD_TABLES}


def mark_nothing(trace: Trace) -> RowMarks:
    """Return marks that no row of a trace has."""
    return {table: np.zeros(getattr(trace, table).height, np.bool_) for table in RECORD_TABLES}


def mark_time(trace: Trace, events: Bools, device: Spans, host: Spans) -> RowMarks:
    """Return the marked device `events`, and what overlaps the time of a part of the trace on `device` and `host`."""
    on_host = (trace.annotations["side"] == "host").to_numpy()
    ranges = np.where(on_host, _overlap_spans(trace.annotations, host), _overlap_spans(trace.annotations, device))
    points = {table: _overlap_spans(getattr(trace, table), host) for table in POINTS}
    return points | {
        "device_events": events,
        "host_events": _overlap_spans(trace.host_events, host),
        "annotations": ranges,
    }


def _overlap_spans(rows: pl.DataFrame, spans: Spans) -> Bools:
    table = pl.DataFrame({"start_ns": spans.starts, "end_ns": spans.ends}, {"start_ns": pl.Int64, "end_ns": pl.Int64})
    return overlap(rows.with_columns(part=pl.lit(0)), table.with_columns(part=pl.lit(0, pl.Int64)), ("part",))


def start_in(spans: Spans, times: pl.Series) -> Bools:
    """Return which times are in spans."""
    time = times.to_numpy()
    at = np.searchsorted(spans.starts, time, side="right") - 1
    return (at >= 0) & (time < np.append(spans.ends, 0)[at])


def find_launchers(trace: Trace, events: Bools) -> Bools:
    """Return the host events that launched marked device events: calls, and operators for events without a call."""
    chosen = trace.device_events.filter(pl.Series(events, dtype=pl.Boolean))
    host = trace.host_events.select("category", "correlation", "external_id")
    found = (pl.col("category") == "runtime") & pl.col("correlation").is_in(_list_keys(chosen, "correlation"))
    called = host.filter(pl.col("category") == "runtime")["correlation"]
    bare = chosen.filter(
        ~pl.col("correlation").is_in(_list_keys(called.to_frame(), "correlation")).fill_null(value=False)
    )
    found |= (pl.col("category") == "op") & pl.col("external_id").is_in(_list_keys(bare, "external_id"))
    return host.select(found.fill_null(value=False)).to_series().to_numpy()


def _list_keys(rows: pl.DataFrame, column: str) -> pl.Series:
    """Return the values of a column, as one list for `is_in`."""
    return rows[column].drop_nulls().unique().implode()


def with_launchers(trace: Trace, marks: RowMarks) -> RowMarks:
    """Return marks that also have what launched the device events that they have, with all that is around it."""
    calls = trace.host_events.filter(pl.Series(find_launchers(trace, marks["device_events"]), dtype=pl.Boolean))
    spans = merge_spans(calls.with_columns(end_ns=pl.max_horizontal("end_ns", pl.col("start_ns") + 1)))
    on_host = (trace.annotations["side"] == "host").to_numpy()
    return dict(marks) | {
        "host_events": marks["host_events"] | overlap(trace.host_events, spans),
        "annotations": marks["annotations"] | (on_host & overlap(trace.annotations, spans)),
    }
