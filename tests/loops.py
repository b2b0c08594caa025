"""Measured loops by hand: a row per iteration, with the parts and counts that a test is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from deepprof.metrics.breakdown.parts import PARTS
from deepprof.metrics.iteration import ITERATIONS
from deepprof.metrics.iteration_table import summarize
from deepprof.metrics.loop import Loop

MS = 1_000_000


def make_loop(times_ms: Sequence[float], *, warmup: int = 0, cut: int = 0, **columns: Sequence[float] | float) -> Loop:
    """Return a loop whose usual iterations need `times_ms`, and one more that none follows.

    `columns` are columns of the two tables, one value per time or one for all; parts (in ms) that are not given are
    compute. `warmup` of the first are warm-up, `cut` more at the end are incomplete.
    """
    given: Mapping[str, Any] = {name: np.broadcast_to(values, len(times_ms)) for name, values in columns.items()}
    count, length = len(times_ms) + 1 + cut, np.append(times_ms, np.full(1 + cut, 1.0)) * MS
    return Loop(
        rank=0,
        device=0,
        stream=7,
        period=100,
        confidence=1.0,
        evidence="made by hand",
        boundary_source="mined",
        boundary_confidence=0.9,
        agreement=None,
        iterations=(rows := build_iterations(length, count - cut, warmup, given)),
        metrics=summarize(rows),
        parts=build_parts(length, given),
    )


def build_iterations(length: np.ndarray, complete: int, warmup: int, given: Mapping[str, Any]) -> pl.DataFrame:
    """Return the table with the schema `ITERATIONS`."""
    index, start = np.arange(len(length)), np.concatenate([[0], np.cumsum(length)[:-1]])
    fixed: dict[str, Any] = {
        "index": index,
        "start_ns": start,
        "end_ns": start + 0.9 * length,
        "complete": index < complete,
        "warmup": index < warmup,
        "iteration_ns": pl.Series(length).set(pl.Series(index >= complete - 1), None),
        "operation_ns": 0.9 * length,
        "interval_ns": pl.Series(0.1 * length).set(pl.Series(index >= complete - 1), None),
        "busy_ns": length,
    }
    defaults = {
        "kernels": 100,
        "events": 110,
        "edits": 0,
        "overlap_ratio": 0,
        "htod_ns": 0,
        "htod_bytes": 0,
        "idle_ns": 0,
    }
    known = {name: extend(given.get(name, value), len(length)) for name, value in defaults.items()}
    return pl.DataFrame(fixed | known).select(ITERATIONS.names()).cast(dict(ITERATIONS))


def build_parts(length: np.ndarray, given: Mapping[str, Any]) -> pl.DataFrame:
    """Return the table with the schema `PARTS`."""
    named = {name: extend(given.get(name, 0), len(length)) for name in PARTS if name not in ("index", "compute_ns")}
    parts = {name: values * (MS if name.endswith("_ns") else 1) for name, values in named.items()}
    taken = sum(values for name, values in parts.items() if name.endswith("_ns") and name != "waiting_ns")
    return (
        pl.DataFrame({"index": np.arange(len(length)), "compute_ns": length - taken, **parts})
        .select(PARTS.names())
        .cast(dict(PARTS))
    )


def extend(values: Any, count: int) -> np.ndarray:
    """Return one value per row; the last given one represents the rows after it."""
    flat = np.atleast_1d(np.asarray(values, np.float64))
    return np.concatenate([flat, np.full(max(0, count - len(flat)), flat[-1] if len(flat) else 0)])[:count]


def agrees_live(given: pl.DataFrame, wanted: pl.DataFrame) -> bool:
    """Return whether iterations found live are those of a whole recording, figures included.

    Only the whole has until when the last iteration lasts, and that only by its marker (`metrics.trace_loops`).
    """
    followed = given["interval_ns"].is_not_null()
    if given.height != wanted.height or not given["start_ns"].equals(wanted["start_ns"]):
        return False
    return given.filter(followed).equals(wanted.filter(followed))
