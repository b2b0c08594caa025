"""Every real trace: the parts of the time add up, on every device and in every iteration."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.analysis import Analysis
from deepprof.metrics.breakdown.parts import BUSY_PARTS, IDLE_PARTS, PART_NAMES
from deepprof.metrics.operators import is_stand_in
from tests import manifest
from tests.deepprof.analysis.conftest import Analyzed

pytestmark = pytest.mark.traces
REFUSED = ("pyprof-csv", "nsys-rep (binary)")


def total(rows: pl.DataFrame, columns: tuple[str, ...]) -> list[int]:
    return rows.select(pl.sum_horizontal(columns)).to_series().to_list()


def device_span(analysis: Analysis, device: int) -> int:
    rows = analysis.traces[0].device_events.filter((pl.col("device") == device) & (pl.col("activity") != "sync"))
    return int(rows["end_ns"].max()) - int(rows["start_ns"].min())  # type: ignore[arg-type]


def test_the_parts_of_every_device_add_up_to_its_span(file: Analyzed) -> None:
    _, analysis = file
    if isinstance(analysis, deepprof.TraceError) or len(analysis.traces) > 1:
        return
    breakdown, summary = analysis.breakdown, analysis.summary
    spans = [device_span(analysis, device) for device in breakdown["device"].to_list()]
    assert total(breakdown, PART_NAMES) == spans
    assert sum(spans) == summary.span_ns
    assert sum(total(breakdown, BUSY_PARTS)) == summary.busy_ns
    assert sum(total(breakdown, IDLE_PARTS)) == summary.idle_ns
    assert breakdown.select(pl.min_horizontal(PART_NAMES)).to_series().min() in (None, 0)


def test_the_parts_of_every_iteration_add_up_to_its_time(file: Analyzed) -> None:
    _, analysis = file
    for loop in () if isinstance(analysis, deepprof.TraceError) else analysis.loops:
        table = loop.table
        assert loop.parts["index"].to_list() == loop.iterations["index"].to_list()
        assert total(table, PART_NAMES) == (table["busy_ns"] + table["idle_ns"]).to_list()
        assert total(table, BUSY_PARTS) == table["busy_ns"].to_list()
        followed = table.filter(pl.col("iteration_ns").is_not_null())
        assert total(followed, PART_NAMES) == followed["iteration_ns"].to_list()


def test_the_states_of_every_loop_add_up_to_its_iterations(file: Analyzed) -> None:
    _, analysis = file
    for number, loop in enumerate(() if isinstance(analysis, deepprof.TraceError) else analysis.loops):
        states, changes = analysis.states.filter(loop=number), analysis.state_changes.filter(loop=number)
        assert states["total_ns"].sum() == loop.usual["iteration_ns"].sum()
        assert states["time_ns"].sum() == round(loop.usual["iteration_ns"].mean() or 0)  # type: ignore[arg-type]
        assert states["entries"].min() != 0
        for side in ("source", "target"):
            sums = changes.group_by(pl.col(side).alias("state")).agg(pl.sum("count", "probability"))
            both = states.join(sums, on="state", how="full", coalesce=True)
            assert both["count"].to_list() == pytest.approx(both["entries"].to_list())
            assert side == "target" or both["probability"].to_list() == pytest.approx([1.0] * both.height)
        assert changes["starts"].sum() == pytest.approx(0 if states.is_empty() else 1)


def test_the_stages_of_every_iteration_add_up_to_its_time(file: Analyzed) -> None:
    _, analysis = file
    for loop in () if isinstance(analysis, deepprof.TraceError) else analysis.loops:
        assert loop.anatomy is not None
        times = loop.anatomy.in_iterations.group_by("iteration").agg(pl.sum("busy_ns", "idle_ns"))
        whole = loop.table.select(iteration="index", busy="busy_ns", idle="idle_ns")
        sums = whole.join(times, on="iteration", how="left").fill_null(0)
        assert sums["busy_ns"].to_list() == sums["busy"].to_list()
        assert sums["idle_ns"].to_list() == sums["idle"].to_list()
        means = loop.anatomy.stages.select(pl.sum("mean_busy_ns") + pl.sum("mean_idle_ns")).item()
        usual = (loop.usual["busy_ns"] + loop.usual["idle_ns"]).mean() or 0
        assert means == pytest.approx(usual)
        assert loop.anatomy.stages["confidence"].is_between(0, 1).all()


def test_the_boxes_of_typical_iterations_add_up_on_every_level(file: Analyzed) -> None:
    _, analysis = file
    for number, loop in enumerate(() if isinstance(analysis, deepprof.TraceError) else analysis.loops[:2]):
        boxes = analysis.annotations.filter(loop=number)
        inner = boxes.filter(pl.col("parent").is_not_null())
        sums = inner.group_by("parent").agg(pl.sum("busy_ns", "events").name.prefix("inner_"))
        both = sums.join(boxes, left_on="parent", right_on="box")
        assert both["inner_busy_ns"].to_list() == both["busy_ns"].to_list()
        assert both["inner_events"].to_list() == both["events"].to_list()
        assert loop.anatomy is not None
        typical = (
            loop.table.filter(index=loop.anatomy.representative) if loop.anatomy.representative is not None else None
        )
        roots = boxes.filter(pl.col("parent").is_null() & (pl.col("side") == "device"))
        assert roots["busy_ns"].to_list() == ([] if typical is None else typical["busy_ns"].to_list())
        assert inner.group_by("parent").len()["len"].max() in range(1, 25)


def test_the_layers_of_a_model_add_up_to_the_work_of_an_iteration(file: Analyzed) -> None:
    _, analysis = file
    for loop in () if isinstance(analysis, deepprof.TraceError) else analysis.loops:
        assert loop.anatomy is not None
        layers = loop.anatomy.layers
        if layers.is_empty():
            continue
        assert layers["busy_ns"][0] == pytest.approx(loop.usual["busy_ns"].median(), abs=1)
        inner = layers.filter(pl.col("parent").is_not_null())
        around = inner.join(layers, left_on="parent", right_on="layer", suffix="_around")
        assert (around["high_ns"] <= around["high_ns_around"]).all()
        assert (around["depth"] == around["depth_around"] + 1).all()


def test_without_launch_records_no_cause_is_guessed(file: Analyzed) -> None:
    _, analysis = file
    if isinstance(analysis, deepprof.TraceError) or len(analysis.traces) > 1:
        return
    (trace,) = analysis.traces
    if trace.host_events.filter((pl.col("category") == "runtime") & pl.col("correlation").is_not_null()).height:
        return
    if is_stand_in(trace):
        return
    known = [name for name in IDLE_PARTS if name != "idle_unknown_ns"]
    assert analysis.breakdown.select(known).sum().sum_horizontal().to_list() == [0]


@pytest.mark.slow
def test_enough_traces_have_no_launch_records_and_enough_have_some(traces: Path) -> None:
    readable = [row for row, *_ in (p.values for p in manifest.rows()) if row["format"] not in REFUSED]  # type: ignore[index, call-overload]
    without = [row for row in readable if deepprof.read(manifest.path_of(row)).host_events.is_empty()]  # type: ignore[arg-type]
    assert 3 <= len(without) <= len(readable) - 20


def test_the_trace_that_two_tools_disagree_on(traces: Path) -> None:
    summary = deepprof.analyze(deepprof.read(traces / "tl-resnet-ckpt/resnet_act_checkpoint.json.gz")).summary
    assert summary.events["kernel"] == 2995
    assert summary.span_ns / 1e6 == pytest.approx(86.57, abs=0.005)
    assert summary.idle_ns / summary.span_ns == pytest.approx(0.0296, abs=0.00005)
