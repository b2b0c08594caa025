"""The rule on contexts of running jobs: what it states, and where it is silent."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from deepprof.diagnosis.engine import declared_rules, diagnose_history
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.contexts.history import ContextsOfRank
from tests.metrics.contexts.test_growing_sent import MINUTE_NS, NODES, grows, history
from tests.metrics.contexts.test_sent import nodes_of, sums_of


def found(sums: pl.DataFrame, nodes: pl.DataFrame = NODES) -> list[Finding]:
    return diagnose_history(ContextsOfRank("train", 3, nodes, sums))


def test_the_line_and_the_rise_are_named() -> None:
    (finding,) = found(history(31, grows))
    assert (finding.rule, finding.rank, finding.device, finding.severity) == ("rising-context", 3, None, "warning")
    assert finding.title == "log train.py:44 takes longer and longer"
    assert finding.location is not None
    assert {key: finding.location[key] for key in ("function", "file", "line", "operator")} == {
        "function": "log",
        "file": "train.py",
        "line": 44,
        "operator": "aten::stack",
    }
    assert finding.evidence["windows"] == 30
    assert finding.evidence["end_ns"] == 31 * MINUTE_NS
    assert "of the host's time at the begin" in finding.summary
    assert "1800.0 s" in finding.summary
    assert finding.summary.endswith(f"{100 * float(str(finding.evidence['share_ratio'])):.0f} % of all.")
    assert finding.confidence == 1.0


@pytest.mark.parametrize(
    ("last_s", "severity"), [(0.25, "info"), (0.6, "warning"), (2.0, "critical")], ids=["info", "warning", "critical"]
)
def test_it_is_as_bad_as_the_share_that_was_added(last_s: float, severity: str) -> None:
    (finding,) = found(history(31, lambda at, n: 0.1 + (last_s - 0.1) * at / n))
    assert finding.severity == severity


def test_few_windows_are_less_sure() -> None:
    (finding,) = found(history(12, grows))
    assert finding.confidence == pytest.approx(0.5 + 0.5 * 11 / 30, abs=1e-3)


def test_without_a_line_the_operator_is_named() -> None:
    operators = NODES.filter(pl.col("kind") == "operator").with_columns(parent=pl.lit(0, pl.UInt64))
    sums = history(31, grows).filter(pl.col("context").is_in(operators["context"].implode()))
    (finding,) = found(sums, operators)
    assert finding.title == "aten::stack takes longer and longer"


@pytest.mark.parametrize(
    "sums",
    [
        pytest.param(lambda: history(40, lambda *_: 0.3, passes=lambda at: 5 + at), id="more work in each window"),
        pytest.param(lambda: history(40, lambda at, n: 0.1 if at < n / 2 else 0.4), id="another phase"),
        pytest.param(lambda: history(40, lambda *_: 0.3, noise=0.2), id="noise"),
        pytest.param(lambda: history(5, grows), id="too short"),
        pytest.param(lambda: history(1, grows), id="one window"),
        pytest.param(sums_of, id="nothing"),
    ],
)
def test_its_twins_are_silent(sums: Callable[[], pl.DataFrame]) -> None:
    assert found(sums()) == []


def test_nodes_alone_are_no_history() -> None:
    assert found(sums_of(), nodes_of()) == []


def test_it_is_the_only_rule_on_histories() -> None:
    assert [each.name for each in declared_rules() if each.subject == "history"] == ["rising-context"]
