"""Stages as statistics, the typical iteration, and its boxes."""

from __future__ import annotations

import polars as pl
import pytest

import deepprof
from deepprof.analysis import Analysis
from deepprof.metrics.annotation.anatomy import STAGE_TIMES
from deepprof.metrics.annotation.boxes import BOXES
from tests.metrics.annotation.test_event_stages import ITERATION, NAMES, US, play
from tests.metrics.annotation.test_layers import train
from tests.tables import Row, make_trace


def stretch(rows: list[Row], iteration: int, factor: int) -> list[Row]:
    """Return kernels of which those of one iteration last longer, and all later ones come later."""
    size, late, found = len(ITERATION), 0, []
    for number, row in enumerate(rows):
        start, end = int(str(row["start_ns"])) + late, int(str(row["end_ns"])) + late
        if number // size == iteration:
            more = (factor - 1) * (end - start)
            end, late = end + more, late + more
        found.append(row | {"start_ns": start, "end_ns": end})
    return found


def run(iterations: int = 8, slow: int | None = None) -> Analysis:
    rows = play([ITERATION] * iterations)
    return deepprof.analyze(make_trace(rows if slow is None else stretch(rows, slow, 3), names=NAMES))


def test_stages_of_iterations_and_of_the_loop() -> None:
    analysis = run()
    (loop,) = analysis.loops
    assert loop.anatomy is not None
    times = {row["stage"]: row for row in loop.anatomy.in_iterations.filter(iteration=3).iter_rows(named=True)}
    assert {stage: row["busy_ns"] // US for stage, row in times.items()} == {
        "forward": 64,
        "loss": 8,
        "backward": 64,
        "optimizer": 16,
    }
    assert [row["kernels"] for row in times.values()] == [8, 1, 8, 2]
    assert sum(row["idle_ns"] for row in times.values()) == loop.table["idle_ns"][3]
    assert loop.anatomy.in_iterations.schema == STAGE_TIMES
    assert loop.anatomy.in_iterations["host_ns"].null_count() == loop.anatomy.in_iterations.height
    stages = {row["stage"]: row for row in loop.anatomy.stages.iter_rows(named=True)}
    assert stages["backward"]["mean_busy_ns"] == 64 * US
    assert stages["backward"]["confidence"] == pytest.approx(0.8)
    assert analysis.stages["stage"].to_list() == ["forward", "loss", "backward", "optimizer"]


def test_the_typical_iteration_is_none_that_is_unlike_the_others() -> None:
    (loop,) = run(9, slow=1).loops
    assert loop.anatomy is not None
    assert loop.anatomy.representative not in (None, 1)
    spread = loop.anatomy.stages.filter(stage="forward").row(0, named=True)
    assert spread["low_ns"] <= spread["device_ns"] <= spread["high_ns"]


def test_boxes_lie_within_each_other() -> None:
    analysis = train()
    boxes = analysis.annotations.drop("loop", "rank")
    assert boxes.schema == BOXES
    assert boxes["box"].to_list() == list(range(boxes.height))
    inner = boxes.filter(pl.col("parent").is_not_null())
    around = inner.join(boxes, left_on="parent", right_on="box", suffix="_around")
    assert (around["parent"] < around["box"]).all()
    assert (around["depth"] == around["depth_around"] + 1).all()
    assert (around["start_ns"] >= around["start_ns_around"]).all()
    assert (around["end_ns"] <= around["end_ns_around"]).all()
    assert (around["side"] == around["side_around"]).all()
    device = boxes.filter(side="device").select("depth", "kind", "title").rows()
    number = analysis.loops[0].anatomy.representative if analysis.loops[0].anatomy else None
    assert device[:6] == [
        (0, "iteration", f"iteration {number}"),
        (1, "stage", "forward"),
        (2, "layer", "Net_0"),
        (3, "layer", "Linear_0"),
        (4, "operator", "linear"),
        (5, "kernel", "gemm"),
    ]
    assert [title for _, kind, title in device if kind == "stage"] == ["forward", "backward", "optimizer"]
    host = boxes.filter(side="host", kind="stage")["title"].to_list()
    assert {"forward", "backward"} <= set(host)


@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_too_few_iterations_have_no_anatomy(iterations: int) -> None:
    analysis = run(iterations)
    assert analysis.loops == ()
    assert analysis.annotations.is_empty()
    assert analysis.stages.is_empty()
    assert analysis.events["stage"].null_count() == iterations * len(ITERATION)
