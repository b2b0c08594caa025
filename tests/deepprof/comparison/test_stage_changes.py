"""Stages of two runs side by side, when nothing is stated of them, and the one that contains the change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from deepprof.analysis import Analysis, Loop
from deepprof.comparison import compare
from deepprof.comparison.stage_changes import compare_stages, find_main_stage
from deepprof.metrics.annotation.stage_names import STAGES
from deepprof.results.comparison_result import LAYER_CHANGES, STAGE_CHANGES
from tests.deepprof.builders import build_analysis
from tests.deepprof.comparison.annotated_loops import annotate_loop
from tests.deepprof.comparison.test_contexts import PLAIN, REST, plain, run

EQUAL = {"forward": [100] * 6, "backward": [200] * 6, "optimizer": [30] * 6}


def main_of(a: Loop, b: Loop) -> tuple[str, float] | None:
    return find_main_stage(compare_stages(a, b), a, b)


def slowed(stage: str, more: int) -> dict[str, list[int]]:
    return {**EQUAL, stage: [ns + more for ns in EQUAL.get(stage, [0] * 6)]}


def test_equal_loops_have_no_difference_and_no_main_stage() -> None:
    loop = annotate_loop(EQUAL, host={"forward": 50})
    stages = compare_stages(loop, annotate_loop(EQUAL, host={"forward": 50}))
    assert [(row.stage, row.a_ns, row.b_ns, row.difference_ns) for row in stages.rows] == [
        ("forward", 100, 100, 0),
        ("backward", 200, 200, 0),
        ("optimizer", 30, 30, 0),
    ]
    assert {row.presence for row in stages.rows} == {"both"}
    assert {row.host_difference_ns for row in stages.rows} == {0}
    assert stages.problem is None
    assert main_of(loop, loop) is None


def test_what_only_one_run_has_stands_in_the_order_of_an_iteration() -> None:
    a = annotate_loop({"optimizer": [30], "loss": [7], "forward": [100]})
    b = annotate_loop({"checkpoint": [40], "forward": [100], "optimizer": [30]}, host={"forward": 5})
    rows = compare_stages(a, b).rows
    assert [(row.stage, row.presence, row.a_ns, row.b_ns) for row in rows] == [
        ("forward", "both", 100, 100),
        ("loss", "gone", 7, 0),
        ("optimizer", "both", 30, 30),
        ("checkpoint", "new", 0, 40),
    ]
    assert [(row.a_host_ns, row.b_host_ns, row.host_difference_ns) for row in rows] == [
        (None, 5, None),
        *[(None, 0, None)] * 3,
    ]
    assert [(row.a_confidence, row.b_confidence) for row in rows][1::2] == [(1.0, None), (None, 1.0)]


@given(
    st.dictionaries(
        st.sampled_from([stage for stage in STAGES if stage != "unknown"]),
        st.lists(st.integers(1, 10**9), min_size=3, max_size=3),
        min_size=1,
    ),
    st.dictionaries(st.just("forward"), st.lists(st.integers(1, 10**9), min_size=7, max_size=7), min_size=1),
)
def test_stages_add_up_to_the_mean_iteration(one: dict[str, list[int]], other: dict[str, list[int]]) -> None:
    rows = compare_stages(annotate_loop(one), annotate_loop(other)).rows
    assert sum(row.a_ns for row in rows) == round(sum(map(sum, one.values())) / 3)
    assert sum(row.b_ns for row in rows) == round(sum(map(sum, other.values())) / 7)


def test_nothing_is_said_where_stages_are_not_known() -> None:
    sure, none = annotate_loop(EQUAL), structs.replace(annotate_loop(EQUAL), anatomy=None)
    unknown = annotate_loop({"forward": [49], "unknown": [51]}, confidence={"forward": 1.0, "unknown": 0.0})
    doubted = annotate_loop({"forward": [100], "backward": [100]}, confidence={"forward": 0.6, "backward": 0.8})
    for a, b, problem in (
        (none, none, "the stages of both runs are unknown"),
        (none, unknown, "the stages of both runs are unknown"),
        (none, sure, "the stages of A are unknown"),
        (sure, unknown, "the stages of B are unknown"),
        (doubted, sure, "the stages of A are only 0.70 sure"),
        (doubted, unknown, "the stages of A are only 0.70 sure, the stages of B are unknown"),
    ):
        stages = compare_stages(a, b)
        assert (stages.rows, stages.problem) == ((), problem)
        assert find_main_stage(stages, a, b) is None


def test_less_unknown_than_known_is_a_row_of_its_own() -> None:
    partly = annotate_loop({"forward": [60], "unknown": [40]}, confidence={"forward": 0.75, "unknown": 0.0})
    rows = compare_stages(annotate_loop({"forward": [100]}), partly).rows
    assert [(row.stage, row.difference_ns) for row in rows] == [("forward", -40), ("unknown", 40)]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_stage_with_four_fifths_of_what_changed_is_the_main_one(sign: int) -> None:
    slow = annotate_loop(slowed("backward", 80) | {"forward": [120] * 6})
    sides = (annotate_loop(EQUAL), slow)[::sign]
    assert main_of(*sides) == ("backward", 0.8)
    less = annotate_loop(slowed("backward", 79) | {"forward": [121] * 6})
    assert main_of(*(annotate_loop(EQUAL), less)[::sign]) is None


def test_what_others_gained_counts_against_the_main_stage() -> None:
    against = annotate_loop(slowed("backward", 80) | {"forward": [80] * 6})
    assert main_of(annotate_loop(EQUAL), against) == ("backward", pytest.approx(80 / 60))
    much = annotate_loop(slowed("backward", 80) | {"forward": [79] * 6})
    assert main_of(annotate_loop(EQUAL), much) is None


@pytest.mark.parametrize("stage", ["other", "unknown"])
def test_no_change_is_in_a_stage_that_says_nothing(stage: str) -> None:
    assert main_of(annotate_loop(EQUAL), annotate_loop(slowed(stage, 90))) is None


def test_no_change_is_in_a_stage_that_is_not_sure() -> None:
    sure = {"forward": 1.0, "optimizer": 1.0, "loss": 0.74}
    assert main_of(annotate_loop(EQUAL), annotate_loop(slowed("loss", 50), confidence=sure)) is None
    assert (
        main_of(annotate_loop(EQUAL), annotate_loop(slowed("loss", 50), confidence=sure | {"loss": 0.75})) is not None
    )


def test_one_slow_iteration_is_no_change_of_a_stage() -> None:
    once = annotate_loop({**EQUAL, "backward": [200] * 5 + [2_000]})
    assert main_of(annotate_loop(EQUAL), once) is None


def test_one_iteration_each_is_compared() -> None:
    a, b = annotate_loop({"forward": [100], "backward": [10]}), annotate_loop({"forward": [100], "backward": [40]})
    assert [row.difference_ns for row in compare_stages(a, b).rows] == [0, 30]
    assert main_of(a, b) == ("backward", 1.0)


def headline_of(a: Analysis, b: Analysis) -> str:
    return compare(a, b).headline.sentence


def test_the_headline_names_the_stage_of_a_slower_kernel() -> None:
    slower = [replace(REST[0], backward={"aten::addmm": 330.0}), *REST[1:]]
    comparison = compare(plain(), run(PLAIN[0], *slower))
    assert comparison.headline.sentence.startswith("B takes 22.6 % more time, all of the change in backward: 885 µs → ")
    assert (comparison.headline.stage, comparison.headline.stage_share) == ("backward", 1.0)
    worst = comparison.worst
    assert worst is not None
    assert {row.stage: row.difference_ns for row in worst.stages.rows if row.difference_ns} == {"backward": 200_000}
    assert sum(row.b_ns for row in worst.stages.rows) == worst.b_mean_ns
    faster = headline_of(run(PLAIN[0], *slower), plain())
    assert faster.startswith("B takes 18.4 % less time, all of the change in backward: 1.08 ms → ")


def test_equal_runs_name_no_stage() -> None:
    comparison = compare(plain(), run(*PLAIN))
    assert (comparison.headline.stage, comparison.headline.stage_share) == (None, None)
    assert comparison.worst is not None
    assert [row.difference_ns for row in comparison.worst.stages.rows] == [0] * len(comparison.worst.stages.rows)


def test_a_loop_whose_anatomy_was_not_read_is_compared_without_stages() -> None:
    bare = structs.replace(plain(), loops=tuple(structs.replace(loop, anatomy=None) for loop in plain().loops))
    comparison = compare(bare, plain())
    assert comparison.worst is not None
    assert comparison.worst.stages.problem == "the stages of A are unknown"
    assert comparison.headline.stage is None
    assert comparison.stages.height == comparison.layers.height == 0


def test_the_tables_have_their_schemas_with_and_without_rows() -> None:
    for comparison in (compare(plain(), plain()), compare(build_analysis(loops=()), build_analysis(loops=()))):
        assert (comparison.stages.schema, comparison.layers.schema) == (STAGE_CHANGES, LAYER_CHANGES)
    stages = compare(plain(), plain()).stages
    assert stages["stage"].to_list() == ["forward", "backward", "optimizer", "other"]
    assert stages["difference_ns"].to_list() == [0, 0, 0, 0]
    assert stages["a_ns"].sum() == 885_000
