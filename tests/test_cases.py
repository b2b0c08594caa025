"""The headlines of `make cases` may not get worse than their committed table; `test_programs.py` has the programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.accuracy.tables import Table, read_rows, worse
from benchmarks.cases import contexts, hard, moving, peaks, real, sharing, simulated, twins, working
from benchmarks.cases.__main__ import SOURCES
from benchmarks.cases.case import HEALTHY, SURE, Case, Verdict, examine, judge_analysis
from benchmarks.cases.scoring import COLUMNS, confusion, summary
from deepprof.diagnosis.engine import declared_rules
from tests.deepprof.diagnosis.books import check_books
from tests.programs.table import PROGRAMS
from tests.widening import slow_unless

DOCUMENT = (Path(__file__).parents[1] / "docs" / "generated" / "cases.md").read_text()
TRUST = (Path(__file__).parents[1] / "docs" / "trust.md").read_text()
HARD, HARD_REAL = dict.fromkeys(case.section for case in hard.cases())
SECTIONS = [*dict.fromkeys(case.section for case in simulated.cases()), HARD, sharing.SECTION, twins.SECTION]
SECTIONS.extend([contexts.SECTION, peaks.SECTION, working.SECTION])
LARGE = {"Simulated jobs", "Kernels alone", HARD, sharing.SECTION, twins.SECTION}
PROGRAM_ROW = "PyTorch programs on a CPU"


def assert_no_worse(cases: list[Case]) -> None:
    """Judge the cases of one section, compare its row with the committed one, and add up what is blamed in each."""
    verdicts = []
    for case in cases:
        analysis = examine(case)
        check_books(analysis)
        verdicts.append(judge_analysis(case, analysis))
    (now, _) = summary(verdicts).rows
    committed = [row for row in read_rows(DOCUMENT, "Summary") if row[0] == now[0]]
    document = "\n## Summary\n\n| x |\n| - |\n" + "".join(f"| {' | '.join(row)} |\n" for row in committed)
    blamed = [f"{v.case.name}: {v.headline} at {v.confidence}" for v in verdicts if not v.right]
    assert not list(worse(Table("Summary", "", COLUMNS, [now]), document)), blamed


@pytest.mark.parametrize("section", slow_unless(lambda section: section not in LARGE, SECTIONS))
def test_no_section_of_simulated_jobs_gets_worse(section: str) -> None:
    sources = (simulated, hard, sharing, twins, contexts, peaks, working, moving)
    every = [case for source in sources for case in source.cases()]
    assert_no_worse([case for case in every if case.section == section])


@pytest.mark.traces
def test_hard_cases_of_real_traces_get_no_worse(traces: Path) -> None:
    assert_no_worse([case for case in hard.cases() if case.section == HARD_REAL])


@pytest.mark.traces
def test_real_traces_get_no_worse(traces: Path) -> None:
    assert_no_worse(list(real.cases(traces)))


def test_the_committed_figures_meet_the_goal() -> None:
    rows = {row[0]: row for row in read_rows(DOCUMENT, "Summary")}
    assert {*SECTIONS, HARD_REAL, "Real traces", PROGRAM_ROW, "all"} <= set(rows)
    for row in rows.values():
        assert int(row[5]) == 0  # wrong headlines at a confidence that does harm
        assert float(row[6]) >= 90
    assert int(rows[PROGRAM_ROW][1]) == len(PROGRAMS)
    assert int(rows["all"][1]) == sum(int(row[1]) for name, row in rows.items() if name != "all")


def test_the_page_on_trust_says_what_is_committed() -> None:
    (row,) = (row for row in read_rows(DOCUMENT, "Summary") if row[0] == "all")
    number, right, abstained, wrong = map(int, row[1:5])
    assert "of more than 300 headlines all but one were right. One mistake was not noticed" in TRUST.replace("\n", " ")
    assert (number > 300, number - right, abstained, wrong) == (True, 1, 1, 0)


def verdict(label: str, headline: str, confidence: float = 0.9, also: tuple[str, ...] = ()) -> Verdict:
    return Verdict(Case("made up", "case", label, lambda _: [], also), headline, confidence)


def test_verdicts_are_counted_as_what_they_are() -> None:
    right, abstained, wrong = verdict("drift", "drift"), verdict("drift", HEALTHY, 0.0), verdict("drift", "copy-bound")
    unsure = verdict("drift", "copy-bound", SURE - 0.01)
    false_alarm, either = verdict(HEALTHY, "drift"), verdict("drift", "copy-bound", also=("copy-bound",))
    assert [v.right for v in (right, abstained, wrong, false_alarm, either)] == [True, False, False, False, True]
    assert [v.abstains for v in (right, abstained, wrong, false_alarm)] == [False, True, False, False]
    blamed = replace(verdict("drift", "drift"), rules=frozenset({"drift", "host-bound"}))
    assert not replace(blamed, case=replace(blamed.case, never=("host-bound",))).right
    assert not replace(right, case=replace(right.case, loops=(0, 0)), loops=1).right
    row = summary([right, abstained, wrong, unsure, false_alarm, either]).rows[-1]
    assert row == ["all", "6", "2", "1", "3", "2", "33.3"]


def test_the_matrix_holds_every_case_once() -> None:
    verdicts = [verdict("drift", "drift"), verdict("drift", HEALTHY), verdict(HEALTHY, "copy-bound")]
    cells = [cell for row in confusion(verdicts).rows for cell in row[1:]]
    assert sum(int(cell) for cell in cells if cell != ".") == 3


RULES = {rule.name for rule in declared_rules()}
REMARKS = {
    "late-start",
    "capture-incomplete",
    "first-use",
    "hotspot",
    "fusion-candidates",
    "heavy-host",
    "growing-context",
    "stalled-kernels",
    "near-limit",
    "fragmentation",
    "allocator-churn",
    "rising-context",
    "recomputed-forward",
}  # which are never a headline; the last is found in a daemon's history, and has its twins in its own test


def test_every_rule_has_a_case_and_a_healthy_one_that_looks_like_it() -> None:
    known = [
        case
        for source in (
            "simulated",
            "real",
            "hard",
            "sharing",
            "twins",
            "contexts",
            "peaks",
            "working",
            "moving",
            "programs",
        )
        for case in SOURCES[source]()
    ]
    healthy = [case for case in known if case.label == HEALTHY]
    assert {case.label for case in known} - {HEALTHY} == RULES - REMARKS
    assert {rule for case in healthy for rule in case.never} - REMARKS == RULES - REMARKS
