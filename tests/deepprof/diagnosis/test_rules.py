"""The rules together: which there are, that others' are asked too, and that none speaks of next to nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deepprof.analysis import analyze
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.engine import BUILTIN_RULES, declared_rules, diagnose_loop
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules import dependency_bound
from deepprof.metrics.loop import Loop
from tests.deepprof.builders import build_finding
from tests.deepprof.diagnosis.loops import Did, Job, Work, compute
from tests.tables import Row, copy, event, launch, make_trace, span

ROOT = Path(__file__).resolve().parents[3]
PAGE, GUIDE = (ROOT / "docs" / "diagnosis.md").read_text(), (ROOT / "CONTRIBUTING.md").read_text()
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def rules_that_speak(job: Job) -> list[str]:
    return [found.rule for found in diagnose_loop(*job.build())]


def test_every_built_in_rule_is_named_once() -> None:
    assert len(BUILTIN_RULES) == len(set(BUILTIN_RULES)) >= 9
    built_in = {name.partition(":")[2].replace("_", "-") for name in BUILTIN_RULES}
    assert {each.name for each in declared_rules()} == built_in


def test_the_example_for_contributors_is_a_whole_rule() -> None:
    (example,) = re.findall(r"^```python\n(\"\"\".*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    assert example == Path(dependency_bound.__file__).read_text()


def test_the_page_on_rules_has_a_row_for_each_with_its_limits() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", PAGE.partition("## Rules")[2], re.MULTILINE)
    shown = {name: cells.split(" | ") for name, cells in rows}
    assert len(rows) == len(shown)
    assert set(shown) == {each.name for each in declared_rules()}
    for each in declared_rules():
        if each.limits is not None and each.subject == "loop":
            warning, critical = shown[each.name][1:3]
            assert warning == f"{100 * each.limits.warning:.0f} %"
            assert critical == f"{100 * each.limits.critical:.0f} %" or critical.startswith("never")


@pytest.mark.parametrize(
    ("job", "rule"),
    [
        (Job(100_000, [compute(60_000)]), "host-bound"),
        (Job(100_000, [compute(60_000)], [Did(LOADER, 59_000, 99_900, "range")]), "input-bound"),
        (Job(100_000, [compute(60_000)], [Did("cudaMalloc", 59_000, 99_900)]), "allocator-bound"),
        (Job(100_000, [compute(60_000, launched=None)]), "host-bound"),
        (
            Job(100_000, [compute(60_000), Work(60_000, 99_000, 1, "ncclDevKernel_AllReduce", 20)]),
            "communication-bound",
        ),
        (
            Job(100_000, [compute(60_000), Work(60_000, 99_990, 1, "Memcpy", 9, "memcpy", {"copy_kind": "HtoD"})]),
            "copy-bound",
        ),
        (Job(2_000, [Work(200 * i, 200 * i + 100, 200 * i - 5) for i in range(10)]), "launch-bound"),
        (
            Job(
                2_000,
                [Work(200 * i, 200 * i + 100, 200 * i - 5) for i in range(10)],
                [Did("cudaStreamSynchronize", 200 * i, 200 * i + 110) for i in range(10)],
            ),
            "sync-bound",
        ),
    ],
)
def test_one_mistake_is_one_finding(job: Job, rule: str) -> None:
    assert rules_that_speak(job) == [rule]


@pytest.mark.parametrize(
    "job",
    [
        Job(100_000, [compute(99_990)], iterations=20),
        Job(100_000, [compute(95_000), Work(95_000, 99_990, 1, "Memcpy", 9, "memcpy", {"copy_kind": "HtoD"})]),
        Job(100_000, [compute(1)], iterations=1),
        Job(100_000, [compute(60_000, launched=None)], iterations=1),
    ],
    ids=["busy", "small copies", "one", "one, unlinked"],
)
def test_rules_are_silent_where_there_is_little_to_say(job: Job) -> None:
    assert set(rules_that_speak(job)) <= {"capture-incomplete"}  # which states that there is little


def test_one_followed_iteration_says_what_is_certain_of_it() -> None:
    assert set(rules_that_speak(Job(100_000, [compute(1)], iterations=2))) == {"capture-incomplete", "host-bound"}


HOST = [launch(1, 0, 90, 1)]
NAMES = ["-", "cudaStreamSynchronize", LOADER]


@pytest.mark.parametrize(
    ("device", "host", "ranges"),
    [
        ([], [], []),
        ([event(0, 5, 9)], [], []),
        ([event(0, 5, 9, correlation=1)], HOST, [span(2, 0, 9)]),
        ([copy(at, at + 5, 9, correlation=1) for at in range(0, 50, 10)], HOST, []),
        ([event(0, at, at + 5, activity="memset") for at in range(0, 900, 10)], HOST, []),
        ([event(0, at, at + 5, activity="sync") for at in range(0, 900, 10)], HOST, []),
        ([], HOST, [span(2, 0, 90)]),
        ([event(0, at, at) for at in range(0, 900, 10)], HOST, []),
    ],
    ids=["empty", "one event", "one launch", "five copies", "memsets", "syncs", "host only", "no length"],
)
def test_traces_with_next_to_nothing_in_them_have_no_findings(
    device: list[Row], host: list[Row], ranges: list[Row]
) -> None:
    analysis = analyze(make_trace(device, host, ranges, NAMES))
    assert analysis.findings == ()
    assert analysis.breakdown.drop("rank", "device").sum_horizontal().sum() == analysis.summary.span_ns


def test_many_copies_alone_are_what_such_a_recording_loses() -> None:
    copies = [copy(at, at + 5, 9, correlation=1) for at in range(0, 900, 10)]
    (found,) = analyze(make_trace(copies, HOST, [], NAMES)).findings
    assert (found.rule, found.severity) == ("copy-bound", "info")


def test_rules_of_others_are_asked_too() -> None:
    def stranger(loop: Loop, trace: Trace) -> list[Finding]:
        return [build_finding(rule="theirs", evidence={"period": loop.period})]

    loop, trace = Job(100_000, [compute(99_990)]).build()
    assert [(f.rule, f.evidence) for f in diagnose_loop(loop, trace, [stranger])] == [("theirs", {"period": 1})]
