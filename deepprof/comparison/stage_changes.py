"""The stages of the mean iteration of both runs side by side, and the one that holds most of the change."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from deepprof.metrics.annotation.anatomy_tables import Anatomy
from deepprof.metrics.annotation.stage_names import STAGES
from deepprof.metrics.breakdown.costs import divide
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.statistics import bootstrap_change
from deepprof.render.anatomy import UNKNOWN
from deepprof.render.units import format_confidence
from deepprof.results.comparison_result import Presence, StageChange, StagesInBoth

COMPARABLE = 0.75  # with less confidence stages are not compared
MOST_UNKNOWN = 0.5  # of a run's time: with more, what its stages need is not what they take in the other run
MOSTLY = 0.8  # of all that stages gained and lost: this much of it is one stage's change
NAMELESS = {UNKNOWN, "other"}


def compare_stages(a: Loop, b: Loop) -> StagesInBoth:
    """Return the stages of the usual iterations of two loops; only the reason where those of a run are unknown."""
    doubts = _find_doubt(a.anatomy), _find_doubt(b.anatomy)
    if a.anatomy is None or b.anatomy is None or any(doubts):
        return StagesInBoth(problem=_describe_doubts(*doubts))
    before, after = _read_stages(a.anatomy, a.usual.height), _read_stages(b.anatomy, b.usual.height)
    found = before.device_ns.keys() | after.device_ns.keys()
    return StagesInBoth(rows=tuple(_compare(stage, before, after) for stage in STAGES if stage in found))


def _find_doubt(anatomy: Anatomy | None) -> str:
    """Return why the stages of a run cannot be compared, "" where they can."""
    if anatomy is None:
        return "unknown"
    stages = anatomy.stages
    time, unknown = stages["mean_busy_ns"] + stages["mean_idle_ns"], stages["stage"] == UNKNOWN
    whole = float(time.sum())
    if whole <= 0 or float(time.filter(unknown).sum()) > MOST_UNKNOWN * whole:
        return "unknown"
    known = stages.filter(~unknown & stages["confidence"].is_not_null())
    busy = float(known["mean_busy_ns"].sum())
    sure = float((known["confidence"] * known["mean_busy_ns"]).sum()) / busy if busy else 1.0
    return "" if sure >= COMPARABLE else f"only {format_confidence(sure)} sure"


def _describe_doubts(a: str, b: str) -> str:
    """Return a clause on why stages are not compared."""
    if a == b:
        return f"the stages of both runs are {a}"
    return ", ".join(f"the stages of {run} are {doubt}" for run, doubt in (("A", a), ("B", b)) if doubt)


class _RunStages(Struct, frozen=True):
    """What the stages of a run take of its mean iteration, in ns by name; `host_ns` is None where it is unknown."""

    device_ns: Mapping[str, int]
    idle_ns: Mapping[str, int]
    host_ns: Mapping[str, int] | None
    confidence: Mapping[str, float | None]


def _read_stages(anatomy: Anatomy, many: int) -> _RunStages:
    """Return the means over `many` iterations, in whole nanoseconds that add up."""
    stages = anatomy.stages
    device = _add_up(stages, stages["mean_busy_ns"] + stages["mean_idle_ns"], many)
    idle = {stage: round(ns) for stage, ns in zip(stages["stage"], stages["mean_idle_ns"], strict=True)}
    host = stages["mean_host_ns"]
    return _RunStages(
        device,
        {stage: min(ns, device[stage]) for stage, ns in idle.items()},
        None if host.null_count() else _add_up(stages, host, many),
        dict(zip(stages["stage"], stages["confidence"], strict=True)),
    )


def _add_up(stages: pl.DataFrame, means: pl.Series, many: int) -> dict[str, int]:
    return divide({stage: round(mean * many) for stage, mean in zip(stages["stage"], means, strict=True)}, many)


def _compare(stage: str, a: _RunStages, b: _RunStages) -> StageChange:
    return StageChange(
        stage=stage,
        presence=_find_presence(stage, a, b),
        a_ns=a.device_ns.get(stage, 0),
        b_ns=b.device_ns.get(stage, 0),
        a_idle_ns=a.idle_ns.get(stage, 0),
        b_idle_ns=b.idle_ns.get(stage, 0),
        a_host_ns=None if a.host_ns is None else a.host_ns.get(stage, 0),
        b_host_ns=None if b.host_ns is None else b.host_ns.get(stage, 0),
        a_confidence=a.confidence.get(stage),
        b_confidence=b.confidence.get(stage),
    )


def _find_presence(stage: str, a: _RunStages, b: _RunStages) -> Presence:
    if stage not in a.device_ns:
        return "new"
    return "both" if stage in b.device_ns else "gone"


def find_main_stage(stages: StagesInBoth, a: Loop, b: Loop) -> tuple[str, float] | None:
    """Return the stage that holds most of the change, and its share of it; None where none surely does.

    The share is above 1 where other stages changed the other way.
    """
    moved = sum(abs(row.difference_ns) for row in stages.rows)
    change = sum(row.difference_ns for row in stages.rows)
    if not change:
        return None
    main = max(stages.rows, key=lambda row: abs(row.difference_ns))
    known = [each for each in (main.a_confidence, main.b_confidence) if each is not None]
    named = main.stage not in NAMELESS and min(known, default=1.0) >= COMPARABLE
    if not named or abs(main.difference_ns) < MOSTLY * moved or not _surely_changed(main, a, b):
        return None
    return main.stage, main.difference_ns / change


def _surely_changed(row: StageChange, a: Loop, b: Loop) -> bool:
    """Return whether a stage changed beyond chance, in the direction of its mean; of few iterations it may have."""
    interval = bootstrap_change(_list_times(row.stage, a), _list_times(row.stage, b), relative=False)
    return interval is None or (interval[0] > 0 if row.difference_ns > 0 else interval[1] < 0)


def _list_times(stage: str, loop: Loop) -> pl.Series:
    """Return how long the device worked or waited for a stage in every usual iteration."""
    usual = loop.usual.select(iteration="index")
    if loop.anatomy is None:
        return pl.Series([0] * usual.height)
    times = loop.anatomy.in_iterations.filter(pl.col("stage") == stage)
    times = times.select("iteration", ns=pl.col("busy_ns") + pl.col("idle_ns"))
    return usual.join(times, on="iteration", how="left", maintain_order="left")["ns"].fill_null(0)
