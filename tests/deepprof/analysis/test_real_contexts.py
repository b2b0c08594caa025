"""The calling contexts of every real trace: nothing is lost on the way from the device's events to the root."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import deepprof
from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.diagnosis.engine import declared_rules
from deepprof.metrics.breakdown.parts import IDLE_PARTS
from deepprof.metrics.contexts.launches import NOT_IN_TRACE
from deepprof.metrics.contexts.measures import COLUMNS, measure_contexts
from deepprof.metrics.contexts.paths import spread
from deepprof.metrics.contexts.per_iteration import measure_iterations
from deepprof.metrics.contexts.tree import ContextTree, build_tree
from tests import manifest
from tests.deepprof.analysis.conftest import Analyzed

ORPHANS = {"tl-resnet-ckpt": 968}  # as counted apart, of 3,653


def test_the_root_has_all_that_ran_and_every_context_all_within(file: Analyzed) -> None:
    row, analysis = file
    if isinstance(analysis, deepprof.TraceError):
        return
    for trace in analysis.traces:
        tree = build_tree(trace)
        timelines = [each for (rank, _), each in analysis.timelines.items() if rank == (trace.rank or 0)]
        taken = measure_contexts(trace, tree, timelines)
        work = trace.device_events.filter(pl.col("activity").is_in(WORK_ACTIVITIES))
        root = taken.row(0, named=True)
        assert root["device_ns"] == (work["end_ns"] - work["start_ns"]).sum()
        assert root["kernels"] + root["copies"] == work.height
        assert [root[part] for part in IDLE_PARTS] == [sum(t.totals_ns[part] for t in timelines) for part in IDLE_PARTS]
        check_sums(tree, taken)
        if row["file"].split("/")[0] in ORPHANS:
            assert count_orphans(trace, tree) == {NOT_IN_TRACE: ORPHANS[row["file"].split("/")[0]]}


def test_findings_on_contexts_name_a_line_where_functions_were_recorded(file: Analyzed) -> None:
    _, analysis = file
    if isinstance(analysis, deepprof.TraceError):
        return
    by_rank = {trace.rank or 0: trace for trace in analysis.traces}
    for finding in analysis.findings:
        functions = finding.rank is not None and (by_rank[finding.rank].host_events["category"] == "python").any()
        if finding.rule in ON_CONTEXTS and functions:
            assert finding.location is not None
            assert {"function", "file", "line"} <= finding.location.keys()


ON_CONTEXTS = {each.name for each in declared_rules() if each.subject == "contexts"}
OLD_STACKS = ("tb-resnet50-nw0-c", "tb-resnet50-nw4-d")  # of PyTorch before it recorded Python functions
WITH_LINES = ("tl-jax08-gemm", "tl-jax08-attention", *OLD_STACKS)
OF_KINETO = [row for row in manifest.rows("kineto-json") if row.values[0]["file"].startswith(OLD_STACKS)]  # type: ignore[index, union-attr, call-overload]


@pytest.mark.traces
@pytest.mark.parametrize("row", [*manifest.rows("xplane-pb"), *OF_KINETO])
def test_call_stacks_change_no_sum(traces: Path, row: dict[str, str]) -> None:
    path = manifest.path_of(row)
    plain, trace = deepprof.read(path), deepprof.read(path, details=True)
    assert trace.device_events.equals(plain.device_events)
    assert trace.host_events.drop("stack_id").equals(plain.host_events.drop("stack_id"))
    tree = build_tree(trace)
    taken = measure_contexts(trace, tree)
    check_sums(tree, taken)
    assert taken.row(0) == measure_contexts(plain, build_tree(plain)).row(0)
    assert tree.contexts.drop("context").is_unique().all()
    under = spread((tree.contexts["line"].is_not_null()).to_numpy(), tree.parent, tree.depth)
    own = taken["own_device_ns"].to_numpy()
    assert own[under].sum() > 0.9 * own.sum() or not row["file"].startswith(WITH_LINES)


def check_sums(tree: ContextTree, taken: pl.DataFrame) -> None:
    """Assert that each context needed what it took itself and what those within took, and nothing less than nothing."""
    for column in COLUMNS:
        own, whole = taken[f"own_{column}"].to_numpy(), taken[column].to_numpy()
        within = np.zeros_like(own)
        np.add.at(within, tree.parent[1:], whole[1:])
        assert (own >= 0).all()
        assert np.array_equal(whole, own + within)


def count_orphans(trace: Trace, tree: ContextTree) -> dict[str, int]:
    """Return how many device events no one launched, by reason."""
    around = tree.contexts[tree.parent[tree.of_events]]
    counts = around.filter(kind="unattributed").group_by("name").len()
    return dict(counts.iter_rows())


def test_what_iterations_take_is_part_of_the_whole(file: Analyzed) -> None:
    _, analysis = file
    if isinstance(analysis, deepprof.TraceError) or not analysis.loops:
        return
    loop = analysis.loops[0]
    trace = next(trace for trace in analysis.traces if (trace.rank or 0) == loop.rank)
    tree, timelines = build_tree(trace), [analysis.timelines[loop.rank, loop.device]]
    taken = measure_iterations(trace, tree, loop, timelines)
    whole = measure_contexts(trace, tree, timelines)
    sums = taken.group_by("context").agg(pl.col(COLUMNS).sum()).sort("context")
    assert (sums.select(COLUMNS) <= whole.select(COLUMNS)[sums["context"]]).select(pl.all().all()).row(0) == (
        True,
    ) * len(COLUMNS)
    inside = analysis.events_in_iterations.filter(pl.col("loop") == 0, pl.col("activity").is_in(WORK_ACTIVITIES))
    roots = taken.filter(context=0).select("iteration", "device_ns").sort("iteration")
    expected = inside.group_by("iteration").agg((pl.col("end_ns") - pl.col("start_ns")).sum()).sort("iteration")
    assert roots.rows() == expected.rows()
