"""Roots and symptoms: the order in which findings are told, and that none is lost."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from deepprof.diagnosis import SEVERITIES
from deepprof.diagnosis.causes import explained_by, rank, reasons_of_delay
from deepprof.diagnosis.device_means import MeasuredDevice
from deepprof.diagnosis.engine import declared_rules
from deepprof.diagnosis.finding import Finding
from tests.deepprof.builders import build_finding

MS = 1_000_000
BUILT_IN = sorted(each.name for each in declared_rules())
RULES = [*BUILT_IN, "plugged-in"]


def finding(rule: str, ms: float | None = 10, severity: str = "warning", **more: object) -> Finding:
    headroom = None if ms is None else round(ms * MS)
    place: dict[str, object] = {"rank": 0, "device": 0, "stream": 7, "confidence": 1.0}
    return build_finding(rule=rule, headroom_ns_per_iteration=headroom, severity=severity, **place | more)


def told(*findings: Finding) -> list[tuple[str, str | None]]:
    return [(f.rule, f.caused_by) for f in rank(findings)]


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    return finding(
        draw(st.sampled_from(RULES)),
        draw(st.none() | st.integers(0, 20)),
        draw(st.sampled_from(SEVERITIES)),
        confidence=draw(st.sampled_from([0.3, 0.6, 1.0])),
        rank=draw(st.integers(0, 1)),
        stream=draw(st.none() | st.integers(7, 8)),
        title=str(draw(st.integers(0, 99))),
    )


def test_nothing_and_one() -> None:
    assert rank([]) == ()
    assert told(finding("sync-bound")) == [("sync-bound", None)]


@given(st.lists(findings(), max_size=14))
def test_no_finding_is_lost_doubled_or_changed(some: list[Finding]) -> None:
    ranked = rank(iter(some))

    def content(each: Finding) -> tuple[object, ...]:
        return each.rule, each.severity, each.title, each.headroom_ns_per_iteration, each.rank, each.stream

    assert Counter(map(content, ranked)) == Counter(map(content, some))


@given(st.lists(findings(), max_size=14))
def test_what_explains_a_symptom_is_told_before_it_and_has_no_cause_itself(some: list[Finding]) -> None:
    ranked = rank(some)
    roots = {f.rule: i for i, f in reversed(list(enumerate(ranked))) if f.caused_by is None}
    for i, each in enumerate(ranked):
        if each.caused_by is not None:
            assert roots[each.caused_by] < i


@given(st.lists(findings(), min_size=1, max_size=14))
def test_the_headline_is_no_symptom_and_every_rule_has_one_root_at_most(some: list[Finding]) -> None:
    ranked = rank(some)
    assert ranked[0].caused_by is None
    roots = [f.rule for f in ranked if f.caused_by is None]
    assert len(roots) == len(set(roots))


@given(st.lists(findings().filter(lambda each: each.stream is not None), max_size=14))
def test_a_symptom_has_a_cause_in_its_own_place(some: list[Finding]) -> None:
    for each in rank(some):
        if each.caused_by in (None, each.rule):
            continue
        near = [f for f in some if f.rule == each.caused_by and f.rank == each.rank]
        late = each.caused_by == "straggler"  # which is about its rank
        assert any(late or f.stream == each.stream for f in near)


def test_causes_explain_in_one_direction_only() -> None:
    def reach(rule: str, on_the_way: tuple[str, ...] = ()) -> None:
        assert rule not in on_the_way
        for symptom in explained_by(rule) | (reasons_of_delay() if rule == "straggler" else set()):
            reach(symptom, (*on_the_way, rule))

    for rule in BUILT_IN:
        assert explained_by(rule) <= set(BUILT_IN)
        reach(rule)


def test_the_largest_loss_comes_first_and_remarks_last() -> None:
    some = [finding("a", 9, "info"), finding("b", 1), finding("c", None, "critical"), finding("d", 2)]
    assert [f.rule for f in rank(some)] == ["d", "b", "c", "a"]


def test_the_largest_loss_leads_though_a_smaller_one_is_surer() -> None:
    some = [finding("a", 5, confidence=0.99), finding("b", 8, confidence=0.6)]
    assert [f.rule for f in rank(some)] == ["b", "a"]


def test_of_losses_of_nearly_one_size_the_surer_leads() -> None:
    some = [finding("a", 8.1, confidence=0.99), finding("b", 10, confidence=0.6), finding("c", 7, confidence=0.99)]
    assert [f.rule for f in rank(some)] == ["a", "b", "c"]


def test_what_is_much_less_sure_than_another_warning_does_not_lead() -> None:
    unsure, sure = finding("a", 50, confidence=0.4), finding("b", 2, confidence=0.9)
    assert [f.rule for f in rank([unsure, sure])] == ["b", "a"]
    assert [f.rule for f in rank([unsure, finding("b", 2, confidence=0.7)])] == ["a", "b"]
    assert [f.rule for f in rank([unsure, finding("b", 2, "info", confidence=0.9)])] == ["a", "b"]


@given(st.lists(findings(), max_size=14))
def test_no_loss_comes_before_one_that_is_plainly_larger_and_as_sure(some: list[Finding]) -> None:
    roots = [f for f in rank(some) if f.caused_by is None and f.severity != "info"]
    for i, first in enumerate(roots):
        for later in roots[i + 1 :]:
            larger = 0.8 * (later.headroom_ns_per_iteration or 0) > (first.headroom_ns_per_iteration or 0)
            assert not larger or later.confidence < first.confidence


def test_a_symptom_stands_under_its_cause_though_it_is_more_severe() -> None:
    some = [finding("launch-bound", 11, "critical"), finding("sync-bound", 10), finding("input-bound", 1)]
    assert told(*some) == [("sync-bound", None), ("launch-bound", "sync-bound"), ("input-bound", None)]


def test_a_chain_of_causes_leads_to_its_root() -> None:
    some = [finding("small-kernels", 8), finding("launch-bound", 8), finding("sync-bound", 8), finding("copy-bound", 8)]
    assert told(*some) == [
        ("copy-bound", None),
        ("small-kernels", "copy-bound"),
        ("launch-bound", "copy-bound"),
        ("sync-bound", "copy-bound"),
    ]


def test_a_small_cause_explains_no_large_symptom() -> None:
    assert told(finding("sync-bound", 7.9), finding("launch-bound", 10)) == [
        ("launch-bound", None),
        ("sync-bound", None),
    ]
    assert told(finding("sync-bound", 8), finding("launch-bound", 10))[1] == ("launch-bound", "sync-bound")


def test_an_unsure_cause_weighs_less() -> None:
    unsure = finding("sync-bound", 10, confidence=0.5)
    assert ("launch-bound", None) in told(unsure, finding("launch-bound", 10))


def test_other_streams_ranks_and_devices_are_other_places() -> None:
    for place in ({"stream": 8}, {"rank": 1}, {"device": 1}):
        assert ("launch-bound", None) in told(finding("sync-bound", **place), finding("launch-bound"))


def test_a_finding_on_the_whole_job_explains_everywhere() -> None:
    whole = finding("straggler", 50, rank=3, device=None, stream=None)
    assert ("communication-bound", "straggler") in told(whole, finding("communication-bound", 10, rank=1))


def test_what_several_streams_share_is_told_of_the_worst_and_repeated_at_the_end() -> None:
    some = [finding("sync-bound", 5, stream=8), finding("sync-bound", 9), finding("copy-bound", 1, stream=9)]
    ranked = rank(some)
    assert [(f.rule, f.stream, f.caused_by) for f in ranked] == [
        ("sync-bound", 7, None),
        ("copy-bound", 9, None),
        ("sync-bound", 8, "sync-bound"),
    ]


def test_the_cause_of_a_cause_may_lie_on_another_rank() -> None:
    late = finding("straggler", 10, rank=0)
    whole = finding("allocator-bound", 10, rank=0, device=None, stream=None)
    assert told(late, whole, finding("sync-bound", 10, rank=1)) == [
        ("straggler", None),
        ("allocator-bound", "straggler"),
        ("sync-bound", "straggler"),
    ]


def test_two_equal_findings_are_two() -> None:
    same = finding("sync-bound")
    assert told(same, same) == [("sync-bound", None), ("sync-bound", "sync-bound")]


def test_a_loss_on_several_devices_that_do_the_same_is_as_large_as_its_mean() -> None:
    group = [MeasuredDevice((0, device, 7), 20.0 * MS, {}) for device in range(4)]
    one = finding("d", 10, evidence={})
    all_of_them = [finding("b", 6, device=device, evidence={}) for device in range(4)]
    assert [f.rule for f in rank([one, *all_of_them])][:2] == ["d", "b"]
    assert [f.rule for f in rank([one, *all_of_them], [group])][:2] == ["b", "d"]


def test_a_rank_that_most_of_a_steps_communication_waits_for_explains_it() -> None:
    for waited, cause in ((0.6, "straggler"), (0.4, None)):
        late = finding("straggler", 2, stream=None, evidence={"late_ratio": 0.1, "waited_ratio": waited})
        exposed = finding("communication-bound", 6, rank=1, evidence={"share_ratio": 0.5})
        assert ("communication-bound", cause) in told(late, exposed)
