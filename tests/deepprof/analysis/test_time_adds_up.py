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
