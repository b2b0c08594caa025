"""The rule on stall reasons: what it states, of which kernels, and when it is silent."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from benchmarks.cases.contexts import CASES, write
from deepprof.collectors.trace import STALLS, Trace
from deepprof.diagnosis.engine import diagnose_contexts
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.stalled_kernels import ADVICE, ELSE
from deepprof.metrics.contexts.per_loop import read_loop_contexts
from tests.tables import table

Reasons = dict[str, float]


def build(stalls: dict[str, Reasons], iterations: int = 24) -> Trace:
    """Return a trace whose kernels have these reasons: of 1,520 µs addmm has 270, gelu 170, softmax 30."""
    (trace,) = write(CASES["a function with half of the work"][0], iterations=iterations)
    rows = [
        {"name_id": trace.names.index_of(kernel), "reason": reason, "share_ratio": share}
        for kernel, reasons in stalls.items()
        for reason, share in reasons.items()
    ]
    return replace(trace, stalls=table(rows, STALLS))


def find(stalls: dict[str, Reasons], iterations: int = 24) -> list[Finding]:
    found = deepprof.analyze(build(stalls, iterations)).findings
    return [each for each in found if each.rule == "stalled-kernels"]


MEMORY = {"long_scoreboard": 0.5, "selected": 0.2, "not_selected": 0.15, "wait": 0.1, "barrier": 0.06, "drain": 0.05}


def test_it_names_the_three_largest_reasons_with_advice_and_the_line() -> None:
    (found,) = find({"addmm_kernel": MEMORY})
    assert found.severity == "info"
    assert found.title == "The warps of addmm_kernel wait: long_scoreboard"
    assert found.summary.endswith("found long_scoreboard 50.0 %, wait 10.0 %, barrier 6.0 %.")
    assert found.advice == " ".join(ADVICE[reason] for reason in ("long_scoreboard", "wait", "barrier"))
    assert (found.location or {})["file"] == "model.py"
    assert (found.location or {})["line"] == 20  # where 200 of its µs are begun; 70 are on line 30
    evidence = dict(found.evidence)
    assert (evidence["long_scoreboard_ratio"], evidence["barrier_ratio"]) == (0.5, 0.06)
    assert "selected_ratio" not in evidence
    assert evidence["device_ns_per_iteration"] == 270_000
    assert found.headroom_ns_per_iteration is None


def test_each_long_kernel_is_named_longest_first() -> None:
    found = find({"gelu_kernel": {"wait": 1.0}, "addmm_kernel": {"barrier": 1.0}, "softmax_kernel": {"wait": 1.0}})
    assert [each.title.split()[3] for each in found] == ["addmm_kernel", "gelu_kernel"]


def test_small_reasons_and_running_warps_are_nothing_to_say() -> None:
    assert find({"addmm_kernel": {"selected": 0.6, "not_selected": 0.38, "wait": 0.02}}) == []


def test_an_unknown_reason_has_advice_too() -> None:
    (found,) = find({"addmm_kernel": {"of_a_later_device": 1.0}})
    assert found.advice == ELSE


@pytest.mark.parametrize("iterations", [1, 2, 24])
def test_without_an_export_it_is_silent(iterations: int) -> None:
    assert find({}, iterations) == []


def test_one_iteration_is_enough_for_a_remark() -> None:
    (found,) = find({"addmm_kernel": MEMORY}, iterations=1)
    assert found.iterations is None


def test_a_loop_whose_contexts_took_nothing() -> None:
    analysis = deepprof.analyze(build({"addmm_kernel": MEMORY}))
    seen = read_loop_contexts(analysis.traces[0], analysis.context_trees[0], analysis.loops[0])
    assert seen is not None
    nothing = replace(seen, table=seen.table.with_columns(pl.col(pl.Float64) * 0))
    assert [each for each in diagnose_contexts(nothing) if each.rule == "stalled-kernels"] == []
