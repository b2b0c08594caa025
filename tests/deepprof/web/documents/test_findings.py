"""Findings with small pictures, and links to where they are seen."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

import deepprof
from deepprof.analysis import Analysis
from deepprof.render.wording import GPU
from deepprof.web.documents.findings import write_findings
from deepprof.web.documents.pictures import MOST_POINTS, draw_bars, draw_trends
from tests.deepprof.builders import build_analysis, build_finding, build_iterations, build_loop
from tests.deepprof.render.reports import read_simulated
from tests.deepprof.web.documents.columns import again


@pytest.fixture(scope="module")
def growing() -> Analysis:
    """A job whose graph grows."""
    return deepprof.analyze(read_simulated("graph-growth", iterations=14))


def test_all_findings_are_there_in_their_order(growing: Analysis) -> None:
    document = again(write_findings(growing))
    assert [each.rule for each in document.findings] == [each.rule for each in growing.findings]
    first = document.findings[0]
    assert first.rule == "graph-growth"
    assert first.headroom_ns == growing.findings[0].headroom_ns_per_iteration
    assert 0 < first.share_ratio < 1
    assert first.cause is None
    assert all(each.cause == 0 for each in document.findings if each.cause is not None)


def test_what_grows_is_drawn_iteration_by_iteration(growing: Analysis) -> None:
    (trend,) = write_findings(growing).findings[0].trends
    known = growing.loops[0].table["interval_ns"].drop_nulls()
    assert trend.value == known.to_list()
    assert trend.unit == "ns"


def test_the_parts_that_a_finding_claims_are_marked(growing: Analysis) -> None:
    (bars,) = write_findings(growing).findings[0].bars
    marked = [label for label, each in zip(bars.label, bars.marked, strict=True) if each]
    assert marked[0] == "idle: other host work"
    assert set(marked) == {GPU.parts[part] for part in growing.findings[0].parts}
    assert bars.value == sorted(bars.value, reverse=True)
    assert sum(bars.value) == pytest.approx(float(growing.loops[0].usual["iteration_ns"].mean()))


def test_jumps_lead_to_views_with_a_loop(growing: Analysis) -> None:
    jumps = write_findings(growing).findings[0].jumps
    assert {jump.fragment.split("?")[0] for jump in jumps} >= {"iterations", "timeline"}
    assert all(re.fullmatch(r"[a-z]+(\?[a-z]+=\w+(&[a-z]+=\w+)*)?", jump.fragment) for jump in jumps)


def test_evidence_has_units(growing: Analysis) -> None:
    evidence = {figure.name: figure for figure in write_findings(growing).findings[0].evidence}
    assert evidence["first_interval_ns"].text.endswith("ms")
    assert evidence["first_interval_ns"].title == "first interval"
    assert evidence["cause"].value is None
    assert evidence["cause"].text == "interval"


def test_nothing_wrong_is_an_empty_list() -> None:
    document = again(write_findings(build_analysis(findings=())))
    assert document.findings == []


@pytest.mark.parametrize("name", ["</script><b>", "\u202eevil", "nul\0", "x" * 10_000, "\ud800"])
def test_hostile_names_are_text(name: str) -> None:
    place = {"function": name, "file": name, "line": 3}
    finding = replace(build_finding(), title=name, location=place, evidence={"name": name})
    (entry,) = again(write_findings(build_analysis(findings=(finding,)))).findings
    assert len(entry.title) <= 1_000
    assert entry.source.line == 3
    assert entry.title == entry.evidence[0].text


def test_a_loop_without_parts_has_no_bars() -> None:
    loop = build_loop()
    assert draw_bars(build_finding(parts={}), loop, GPU) == []
    assert draw_trends(build_finding(rule="host-bound"), loop) == []


def test_a_long_trend_keeps_what_stands_out() -> None:
    times = [10_000] * 1200
    for at in (100, 700, 1100):
        times[at] = 1_000_000
    loop = build_loop(iterations=build_iterations(times, partial=False))
    (trend,) = draw_trends(build_finding(rule="slow-iterations", parts={}), loop)
    assert len(trend.index) <= MOST_POINTS
    assert sorted(trend.index) == trend.index
    assert [index for index, value in zip(trend.index, trend.value, strict=True) if value > 500_000] == [100, 700, 1100]


def test_what_is_the_same_on_another_rank_is_explained_by_nothing() -> None:
    finding = build_finding(rule="launch-bound", rank=0)
    again = replace(finding, rank=1, caused_by="launch-bound")
    entries = write_findings(build_analysis(findings=(finding, again))).findings
    assert [entry.cause for entry in entries] == [None, None]
