"""What repeats around and next to the iteration, from the trace to the report."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

from rich.console import Console

import deepprof
from deepprof import Analysis
from deepprof.collectors.trace import Trace
from deepprof.render.text import print_report
from tests.tables import event, make_trace

FORWARD, BACKWARD = [1, 2, 3, 4, 5], [9, 3, 10, 2, 11, 12]
ITERATION = [20, *FORWARD * 8, 6, 7, 8, *BACKWARD * 8, *[13, 14] * 10]
OTHER = [40, *[41, 42, 43, 44] * 12, 45, *[46, 47, 48, 44, 41] * 12, *[49, 50] * 9]
VALIDATION = [20, *FORWARD * 8, 60, 61]
WARM_UP = [70, 71, 72, 73, 70, 74, 75, 71] * 20
KERNEL_NS, PAUSE_NS = 8_000, 2_000


def trace_of(symbols: Sequence[int]) -> Trace:
    step = KERNEL_NS + PAUSE_NS
    return make_trace([event(s, i * step, i * step + KERNEL_NS) for i, s in enumerate(symbols)])


def shown(analysis: Analysis) -> str:
    page = io.StringIO()
    print_report(analysis, Console(file=page, width=100), verbose=True)
    return page.getvalue()


def test_a_program_of_two_loops_gives_both_the_longer_one_first() -> None:
    analysis = deepprof.analyze(trace_of(OTHER * 20 + ITERATION * 30))
    assert [loop.period for loop in analysis.loops] == [len(ITERATION), len(OTHER)]
    first = {loop.period: int(loop.iterations["start_ns"][0]) for loop in analysis.loops}
    assert first[len(OTHER)] == 0
    assert first[len(ITERATION)] == len(OTHER) * 20 * (KERNEL_NS + PAUSE_NS)
    text = shown(analysis)
    assert "Loop 1: 1 iteration = 112 kernels" in text
    assert "Loop 2: 1 iteration = 128 kernels" in text


def test_an_evaluation_every_five_iterations_is_a_cycle_of_the_report() -> None:
    analysis = deepprof.analyze(trace_of((ITERATION * 5 + VALIDATION) * 8))
    report = json.loads(analysis.to_json())
    cycle = {"every": 5, "extra_events": len(VALIDATION), "kind": "evaluation"}
    assert report["loops"][0]["cycles"] == [cycle]
    assert "every 5 iterations +43 kernels (evaluation)" in shown(analysis)


def test_what_runs_before_and_after_the_iterations_is_told_with_its_time() -> None:
    analysis = deepprof.analyze(trace_of(WARM_UP + ITERATION * 20 + WARM_UP[:30]))
    loop = analysis.loops[0]
    assert (loop.prologue.kernels, loop.epilogue.kernels) == (len(WARM_UP), 30)
    assert loop.epilogue.span_ns == 30 * (KERNEL_NS + PAUSE_NS) - PAUSE_NS
    block = json.loads(analysis.to_json())["loops"][0]
    assert block["prologue"] == {"kernels": len(WARM_UP), "span_ns": loop.prologue.span_ns}
    assert block["confidence"] <= block["boundary_confidence"] <= 1
    assert "before them: 160 kernels" in shown(analysis)
    assert "after them: 30 kernels" in shown(analysis)


def test_micro_batches_without_any_range_make_one_iteration() -> None:
    micro = ITERATION[: -len([13, 14] * 10)]
    analysis = deepprof.analyze(trace_of((micro * 4 + [13, 14] * 10) * 12))
    loop = analysis.loops[0]
    assert loop.period == 4 * len(micro) + 20
    assert {"events": len(micro), "repeats": 4} in loop.nested


def test_the_loop_of_a_stream_beside_the_main_one_is_found_where_that_has_none() -> None:
    """One long solver on the main stream, and training next to it."""
    beside = trace_of(ITERATION * 20).device_events.with_columns(stream=9)
    long = [event(200 + i, i * 10**6, i * 10**6 + 900_000) for i in range(30)]
    rows = [*long, *beside.to_dicts()]
    loop = deepprof.analyze(make_trace(rows)).loops[0]
    assert (loop.stream, loop.period) == (9, len(ITERATION))


def test_a_stream_of_little_work_is_not_looked_at() -> None:
    beside = trace_of(ITERATION * 20).device_events.with_columns(stream=9)
    long = [event(200 + i, i * 10**7, i * 10**7 + 9 * 10**6) for i in range(30)]
    assert deepprof.analyze(make_trace([*long, *beside.to_dicts()])).loops == ()
