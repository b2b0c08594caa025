"""What contexts needed in a usual iteration, in early and late ones, and which of them grows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from benchmarks.cases.contexts import CASES, write
from deepprof.analysis import Analysis
from deepprof.metrics.breakdown.costs import spans_of_parts, threads_of, windows_of
from deepprof.metrics.contexts.blame import SAMPLES, blame_events, blame_spans
from deepprof.metrics.contexts.growing import find_growing
from deepprof.metrics.contexts.measures import COLUMNS
from deepprof.metrics.contexts.per_loop import STAGES, LoopContexts, read_loop_contexts
from deepprof.metrics.spans import NOTHING, union


def analyzed(name: str) -> Analysis:
    return deepprof.analyze(write(CASES[name][0]))


def look(analysis: Analysis) -> LoopContexts:
    (loop,), (trace,) = analysis.loops, analysis.traces
    seen = read_loop_contexts(trace, analysis.context_trees[0], loop, analysis.timelines.values())
    assert seen is not None
    return seen


@pytest.fixture(scope="module")
def growing() -> Analysis:
    return analyzed("a list that grows behind the device")


def test_means_are_those_of_the_iterations(growing: Analysis) -> None:
    seen, usual = look(growing), growing.loops[0].usual
    wanted = growing.contexts_in_iterations.filter(pl.col("iteration").is_in(usual["index"].implode()))
    sums = wanted.group_by("context").agg(pl.col(COLUMNS).sum()).sort("context")
    mine = seen.table.join(sums.select("context"), on="context", how="semi")
    assert mine["context"].to_list() == sums["context"].to_list()
    for column in COLUMNS:
        assert np.allclose(mine[column], sums[column] / usual.height)
    assert np.isclose(seen.table["own_device_ns"].sum(), seen.table["device_ns"][0])


def test_stages_are_means_one_after_the_other(growing: Analysis) -> None:
    seen = look(growing)
    assert seen.stages.shape == (STAGES, seen.table.height, len(COLUMNS))
    counts = np.bincount(np.arange(seen.loop.usual.height) * STAGES // seen.loop.usual.height)
    mean = (seen.stages_of("host_ns") * counts[:, None]).sum(axis=0) / counts.sum()
    assert np.allclose(mean, seen.table["host_ns"])


def test_the_innermost_that_carries_the_growth_is_found(growing: Analysis) -> None:
    seen = look(growing)
    found = find_growing(seen, "host_ns", 1_000.0)
    assert found is not None
    assert seen.table["name"][found.context] == "note"
    assert found.growth == found.last - found.first > 300_000
    assert find_growing(seen, "host_ns", 10 * found.growth) is None, "less than is asked for"
    assert find_growing(seen, "device_ns", 1_000.0) is None
    assert find_growing(look(analyzed("a list that does not grow")), "host_ns", 1_000.0) is None


def test_blame_for_events_adds_up_to_the_time_of_the_part(growing: Analysis) -> None:
    seen, loop = look(growing), growing.loops[0]
    blamed = blame_events(seen, ["compute_ns"])
    assert blamed.sum() == pytest.approx(float(loop.usual["compute_ns"].sum()))
    assert blame_events(seen, ["exposed_htod_ns"]).sum() == 0


def test_blame_for_spans_is_where_the_host_was() -> None:
    analysis = analyzed("rows selected in Python")
    seen, loop = look(analysis), analysis.loops[0]
    host = analysis.traces[0].host_events
    name = analysis.traces[0].names.index_of("data.py(5): select_rows")
    rows = host.filter(name_id=name)
    blamed = blame_spans(seen, union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()), threads_of(loop))
    names = seen.table.filter(pl.Series(blamed > 0))["name"].to_list()
    assert names == ["select_rows"]
    assert blamed.sum() == SAMPLES
    assert blame_spans(seen, NOTHING, None).sum() == 0
    assert blame_spans(seen, spans_of_parts(loop, ["idle_host_ns"]), None).sum() > 0


def test_without_a_usual_iteration_there_is_nothing(growing: Analysis) -> None:
    (loop,), (trace,) = growing.loops, growing.traces
    none = replace(loop, iterations=loop.iterations.clear(), parts=loop.parts.clear())
    assert read_loop_contexts(trace, growing.context_trees[0], none) is None
    few = replace(loop, iterations=loop.iterations.head(2 * STAGES - 1), parts=loop.parts.head(2 * STAGES - 1))
    seen = read_loop_contexts(trace, growing.context_trees[0], few)
    assert seen is not None
    assert windows_of(few).total_ns > 0
    assert find_growing(seen, "host_ns", 1.0) is None, "too few usual iterations for two in each stage"


def test_mean_deviation_and_trend_are_those_of_the_values(growing: Analysis) -> None:
    usual, many = growing.loops[0].usual["index"], growing.contexts.height
    table = growing.contexts_in_loops
    for column in ("host_ns", "device_ns", "launches"):
        values = np.zeros((len(usual), many))
        for row in growing.contexts_in_iterations.filter(pl.col("iteration").is_in(usual.implode())).iter_rows(
            named=True
        ):
            values[usual.index_of(row["iteration"]), row["context"]] = row[column]
        found = table.filter(measure=column)
        assert found["context"].to_list() == np.flatnonzero(values.sum(axis=0)).tolist()
        mine = values[:, found["context"].to_numpy()]
        assert np.allclose(found["mean"], mine.mean(axis=0))
        assert np.allclose(found["deviation"], mine.std(axis=0), atol=1e-3)
        assert np.allclose(found["trend"], np.polyfit(np.arange(len(usual)), mine, 1)[0], atol=1e-6)


def test_no_loop_has_no_summary() -> None:
    assert deepprof.analyze(write(CASES["rows by index"][0], iterations=1)).contexts_in_loops.is_empty()
