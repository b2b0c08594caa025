"""The table of calling contexts: that the quick one comes out, and when its goals are met."""

from __future__ import annotations

import io

from rich.console import Console

from benchmarks import context_trees
from benchmarks.readers import Reading


def test_the_quick_table_comes_out() -> None:
    said = io.StringIO()
    context_trees.run(Console(file=said, width=110), quick=True)
    assert "its calling contexts alone" in said.getvalue()
    assert "Goal" not in said.getvalue()


def test_goals_are_judged_by_what_was_measured() -> None:
    base = Reading(1_000, 2.0, 100.0)
    readings = {"deepprof.read": base, "its calling contexts alone": Reading(1_000, 3.2, 500.0)}
    ratio, peak = context_trees._judge_long(readings)
    assert ratio.endswith("It is 1.60, which is not met.")
    assert peak.endswith("It is 500.00, which is met.")
    (short,) = context_trees._judge_short(readings)
    assert short.endswith("It is 3.20, which is not met.")
    assert list(context_trees._judge_long(readings | {"deepprof.read": "failed"})) == []
