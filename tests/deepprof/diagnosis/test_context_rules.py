"""Rules on calling contexts: each speaks of a planted mistake with its line, and of nothing else."""

from __future__ import annotations

import re

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from benchmarks.cases.case import Case, judge
from benchmarks.cases.contexts import CASES, ITERATIONS, RULES, Call, cases, write
from deepprof.analysis import Analysis
from deepprof.diagnosis.code_places import name_lines
from deepprof.diagnosis.engine import declared_rules, diagnose_contexts
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.contexts.per_loop import read_loop_contexts
from tests.deepprof.builders import build_finding


def of_rule(analysis: Analysis, rule: str) -> Finding:
    (found,) = (each for each in analysis.findings if each.rule == rule)
    return found


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_a_mistake_is_found_at_its_line_and_its_twin_is_not(case: Case) -> None:
    verdict = judge(case)
    assert verdict.right, (verdict.headline, verdict.rules, verdict.lines)


def test_every_rule_on_contexts_has_a_case() -> None:
    declared = {each.name for each in declared_rules() if each.subject == "contexts"}
    of_work = {each.name for each in declared_rules() if each.subject == "work"}
    assert declared == {*RULES} - of_work
    assert {rule for _, rule, _ in CASES.values() if rule} == set(RULES)


def test_a_job_without_functions_has_places_by_operator() -> None:
    (trace,) = write(CASES["rows by index"][0])
    bare = replace_rows(trace, trace.host_events.filter(category="python").height)
    found = of_rule(deepprof.analyze(bare), "heavy-backward")
    assert found.location == {"operator": "aten::index", "range": "ProfilerStep#*"}
    assert found.headroom_ns_per_iteration == found.parts["compute_ns"] == 500_000 - 2 * 20_000


def replace_rows(trace: deepprof.Trace, dropped: int) -> deepprof.Trace:
    """Return the trace without Python functions."""
    kept = trace.accounting.kept - dropped
    accounting = replace(trace.accounting, kept=kept, dropped={"python": dropped})
    rows = trace.host_events.filter(trace.host_events["category"] != "python")
    return replace(trace, host_events=rows, accounting=accounting)


def test_collectives_in_the_backward_pass_are_not_its_own() -> None:
    calls = CASES["rows by index"][0]
    trace = write(calls)[0]
    names = trace.names.str.replace("IndexBackward0_kernel", "ncclDevKernel_AllReduce")
    found = deepprof.analyze(replace(trace, names=names))
    assert "heavy-backward" not in {each.rule for each in found.findings}


def test_kernels_of_nobody_silence_the_comparison_of_passes() -> None:
    (trace,) = write(CASES["rows by index"][0])
    lost = trace.device_events["name_id"] == trace.names.index_of("addmm_kernel")
    events = trace.device_events.with_columns(correlation=pl.when(~lost).then("correlation"))
    found = deepprof.analyze(replace(trace, device_events=events))
    assert "heavy-backward" not in {each.rule for each in found.findings}


def test_one_iteration_and_none_say_nothing_of_growth() -> None:
    for iterations in (1, 2):
        analysis = deepprof.analyze(write(CASES["a list that grows behind the device"][0], iterations=iterations))
        assert "growing-context" not in {each.rule for each in analysis.findings}


def test_a_recording_without_iterations_has_remarks_only() -> None:
    analysis = deepprof.analyze(write(CASES["rows by index"][0], iterations=1))
    assert {each.severity for each in analysis.findings if each.rule in RULES} <= {"info"}


def test_a_loop_whose_contexts_took_nothing() -> None:
    analysis = deepprof.analyze(write(CASES["rows by index"][0]))
    seen = read_loop_contexts(analysis.traces[0], analysis.context_trees[0], analysis.loops[0])
    assert seen is not None
    nothing = replace(seen, table=seen.table.with_columns(pl.col(pl.Float64) * 0))
    assert diagnose_contexts(nothing) == []


def test_findings_on_other_places_keep_theirs() -> None:
    analysis = deepprof.analyze(write([Call("data.py(5): load", host_us=900.0), *CASES["rows by index_select"][0]]))
    (loop,), (trace,) = analysis.loops, analysis.traces
    seen = read_loop_contexts(trace, analysis.context_trees[0], loop, analysis.timelines.values())
    assert seen is not None
    elsewhere = build_finding(rank=3, device=0, stream=7, parts={"idle_host_ns": 5})
    known = build_finding(
        **loop.place, location={"file": "a.py", "line": 1, "function": "f"}, parts={"idle_host_ns": 5}
    )
    assert name_lines([elsewhere, known], [seen]) == [elsewhere, known]
    assert name_lines([known], []) == [known]


def test_a_finding_on_idle_time_names_the_function_that_the_host_was_in() -> None:
    analysis = deepprof.analyze(write(CASES["rows selected in Python"][0]))
    place = of_rule(analysis, "host-bound").location or {}
    assert place["file"] == "data.py"
    assert re.fullmatch("select_rows|augment", str(place["function"]))
    assert analysis.loops[0].iterations.height == ITERATIONS


@pytest.mark.parametrize("iterations", [1, 2, ITERATIONS])
def test_kernels_without_length_say_nothing(iterations: int) -> None:
    (trace,) = write(CASES["a loss of small kernels"][0], iterations=iterations)
    flat = replace(trace, device_events=trace.device_events.with_columns(end_ns="start_ns"))
    assert not {each.rule for each in deepprof.analyze(flat).findings} & {
        "hotspot",
        "fusion-candidates",
        "heavy-backward",
    }


def test_without_another_operator_a_heavy_backward_pass_is_an_unsure_remark() -> None:
    (trace,) = write(CASES["rows by index"][0])
    names = trace.names.str.replace("aten::index", "aten::cumprod").str.replace("IndexBackward0", "CumprodBackward0")
    found = of_rule(deepprof.analyze(replace(trace, names=names)), "heavy-backward")
    assert found.severity == "info"
    assert found.confidence <= 0.6


def test_three_times_the_forward_pass_is_usual() -> None:
    calls = [Call("model.py(10): embed", [("aten::index", 120.0)], backward={"aten::index": 500.0})]
    analysis = deepprof.analyze(write([*calls, *CASES["a loss in one kernel"][0]]))
    assert "heavy-backward" not in {each.rule for each in analysis.findings}


def test_the_hottest_kernel_of_a_line_is_that_with_the_largest_sum() -> None:
    scale = {"aten::mul": "void scale<4>(int)", "aten::div": "void scale<2>(int)"}
    block = [("aten::mul", 100.0), ("aten::softmax", 150.0), ("aten::div", 90.0), ("aten::mul", 30.0)]
    calls = [Call("model.py(10): block", block, called=scale), Call("model.py(50): head", [("aten::mm", 130.0)])]
    found = of_rule(deepprof.analyze(write(calls)), "hotspot")
    # 100 + 30 µs of aten::mul and 90 of aten::div are one kernel: 220 of the 370 µs of the line, of 500 in all.
    assert found.title == "74.0 % of the device's work is launched in block (defined at model.py:10)"
    assert "takes 0.370 ms of an iteration; most of that is scale (0.220 ms in 3 calls)" in found.summary
    assert found.evidence["device_ns_per_iteration"] == 370_000
    assert found.evidence["kernel_ns_per_iteration"] == 220_000


def test_a_hotspot_of_many_kernels_names_the_largest_as_no_more_than_that() -> None:
    block = [("aten::mul", 100.0), ("aten::softmax", 110.0), ("aten::div", 90.0)]
    calls = [Call("model.py(10): block", block), Call("model.py(50): head", [("aten::mm", 130.0)])]
    found = of_rule(deepprof.analyze(write(calls)), "hotspot")
    assert "the largest part of that is softmax_kernel (0.110 ms in 1 call)" in found.summary
