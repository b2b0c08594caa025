"""No row of the committed accuracy tables may get worse."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy import sections
from benchmarks.accuracy.looks import look_at
from benchmarks.accuracy.tables import Table, worse
from benchmarks.accuracy.workers import each
from tests.widening import slow_unless

DOCUMENT = (Path(__file__).parents[1] / "docs" / "generated" / "accuracy.md").read_text()
OF_REAL_TRACES = ("semireal", "real", "stages")
QUICK = {"negatives", "real"}


def tables(section: str, traces: Path) -> list[Table]:
    """Return the section's tables as they are now, made in this process: the test runner has processes enough."""
    outcomes = [outcome for some in each(look_at, sections.cases(section, traces), 1) for outcome in some]
    return sections.tables(section, outcomes, traces, workers=1)


def assert_no_worse(section: str, traces: Path) -> None:
    for table in tables(section, traces):
        assert not list(worse(table, DOCUMENT))


@pytest.mark.parametrize(
    "section", slow_unless(QUICK.__contains__, [s for s in sections.SECTIONS if s not in OF_REAL_TRACES])
)
def test_no_row_gets_worse(section: str, tmp_path: Path) -> None:
    assert_no_worse(section, tmp_path)


@pytest.mark.parametrize("section", slow_unless(QUICK.__contains__, OF_REAL_TRACES))
def test_no_row_of_real_traces_gets_worse(section: str, traces: Path) -> None:
    assert_no_worse(section, traces)
