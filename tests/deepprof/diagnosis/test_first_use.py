"""`first-use`: what a program does only once, in recordings without iterations, and how the answer names it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import polars as pl
import pytest

from deepprof.analysis import Analysis, analyze
from deepprof.diagnosis.finding import Finding
from deepprof.render.answer import describe_answer
from tests.deepprof.diagnosis.loops import Did, Job, Work

# Forty kernels, all of them different, 90 µs apart, each launched just before it begins.
WORK = [Work(90 * i, 90 * i + 10, 90 * i - 5, name=f"kernel_{i}_") for i in range(40)]
CONTEXT = Did("cudaFree", -900_000, -500_000)
STARTS = Did("cudaFree", -900_000, -500)
LOAD = "cuModuleLoadData"


def analysis(*host: Did) -> Analysis:
    return analyze([Job(4_000, WORK, host, iterations=1).trace()])


def parts(found: Analysis) -> dict[str, float]:
    answer = found.answer
    return {part: round(share * answer.whole_ns / 1e6, 1) for part, share in answer.parts.items()}


def loss(found: Analysis) -> Finding:
    assert found.answer.loss is not None
    return found.answer.loss


def test_a_pause_between_two_loads_before_a_new_kernel_is_most_likely_a_library_that_is_read() -> None:
    found = analysis(Did(LOAD, -800_000, -799_000), Did(LOAD, -20_000, -10))
    assert (found.answer.kind, loss(found).rule, loss(found).evidence["first_use"]) == (
        "start-up",
        "first-use",
        "pause",
    )
    assert parts(found)["idle_first_use_ns"] == 800.0
    assert loss(found).location is None
    assert loss(found).confidence < loss(analysis(CONTEXT)).confidence
    assert "most likely for a library that is read for its first use" in next(describe_answer(found))


@pytest.mark.parametrize("first", [Did("cudaGetDevice", -800_000, -799_990), Did("cudaMalloc", -800_000, -799_000)])
def test_a_pause_after_anything_else_is_other_work_of_the_host(first: Did) -> None:
    found = analysis(first, Did(LOAD, -20_000, -10))
    assert loss(found).rule == "host-bound"
    assert parts(found)["idle_host_ns"] > 700


def test_a_pause_before_a_kernel_that_was_launched_before_is_other_work() -> None:
    loads = [Did(LOAD, 3_600, 4_600), Did(LOAD, 904_000, 904_900)]
    late = Work(905_000, 905_010, 904_995, name="kernel_0_")
    found = analyze([Job(4_000, [*WORK, late], loads, iterations=1).trace()])
    assert parts(found)["idle_host_ns"] > 800


def test_what_is_allocated_in_a_start_is_a_part_of_it() -> None:
    memory = [Did("cudaMalloc", 20_000 * i - 400_000, 20_000 * i - 385_000) for i in range(5)]
    found = analysis(CONTEXT, *memory, Did(LOAD, -20_000, -10))
    assert "idle_allocator_ns" not in parts(found)
    assert parts(found)["idle_first_use_ns"] >= 400 + 5 * 15 + 20


def test_what_is_allocated_without_a_start_is_for_the_allocator() -> None:
    found = analysis(*(Did("cudaMalloc", 20_000 * i - 400_000, 20_000 * i - 385_000) for i in range(5)))
    assert parts(found)["idle_allocator_ns"] == 75.0


def test_code_is_loaded_once_whether_the_next_kernel_is_new_or_not() -> None:
    late = Work(905_000, 905_010, 904_995, name="kernel_0_")
    found = analyze([Job(4_000, [*WORK, late], [Did(LOAD, 4_000, 904_900)], iterations=1).trace()])
    assert parts(found)["idle_first_use_ns"] == pytest.approx(900.9, abs=0.2)


def test_the_capture_of_a_graph_is_no_launching() -> None:
    capture = [Did("cudaStreamBeginCapture", 4_000, 4_010), Did("cudaStreamEndCapture", 60_000, 60_010)]
    launches = [Did("cudaLaunchKernel", 4_020 + 200 * i, 4_024 + 200 * i) for i in range(279)]
    last = Work(60_100, 60_110, 60_095, name="kernel_0_")
    found = analyze([Job(4_000, [*WORK, last], [*capture, *launches], iterations=1).trace()])
    assert "93.2 % while a graph is captured" in next(describe_answer(found))
    assert "launch-bound" not in {finding.rule for finding in found.findings}
    assert "idle_host_ns" not in parts(found)


def capture_a_graph() -> Analysis:
    capture = [Did("cudaStreamBeginCapture", 4_000, 4_010), Did("cudaStreamEndCapture", 60_000, 60_010)]
    last = Work(60_100, 60_110, 60_095, name="kernel_0_")
    return analyze([Job(4_000, [*WORK, last], capture, iterations=1).trace()])


def test_the_time_of_a_capture_is_no_avoidable_loss() -> None:
    found = capture_a_graph()
    first, second, _ = describe_answer(found)
    assert (found.answer.kind, found.answer.loss) == ("start-up", None)
    assert first.startswith("The start-up of a program that captures a graph, ")
    assert second.startswith("No loss can be avoided: the host captures a graph")
    assert "What to do: Record the replays of the graph" in second


def test_code_that_is_loaded_is_a_loss_and_no_capture() -> None:
    found = analysis(STARTS)
    assert (loss(found).rule, found.answer.capture) == ("first-use", None)


def test_what_a_program_waits_for_after_its_start_is_named() -> None:
    """Memory is allocated for 16 ms between two halves of what is launched after a library has started."""
    memory = Did("cudaMalloc", 3_910, 20_000)
    later = [Work(20_100 + 90 * i, 20_110 + 90 * i, 20_095 + 90 * i, name=f"kernel_{i}_") for i in range(40)]
    found = analyze([Job(40_000, [*WORK, *later], [STARTS, memory], iterations=1).trace()])
    line = next(describe_answer(found))
    assert found.answer.kind == "start-up"
    assert "In the other 23.6 ms the device waits 96.6 % of the time (68.1 % for memory to be allocated" in line


def test_a_program_that_works_without_waits_after_its_start_has_no_such_sentence() -> None:
    busy = [Work(100 * i, 100 * i + 99, 100 * i - 50, name=f"kernel_{i}_") for i in range(400)]
    found = analyze([Job(40_000, busy, [Did("cudaFree", -90_000, -60)], iterations=1).trace()])
    assert found.answer.kind == "start-up"
    assert "In the other" not in next(describe_answer(found))


def test_of_a_marked_step_a_larger_first_use_is_named_first() -> None:
    later = [replace(work, start=work.start + 5_000, end=work.end + 5_000) for work in WORK[1:]]
    work = [WORK[0], *(replace(each, launched=each.start - 5) for each in later)]
    trace = Job(9_000, work, [Did("ProfilerStep#1", -10, 9_000, "range")], iterations=1).trace()
    begins = pl.when(pl.col("correlation") == 2).then(pl.col("start_ns") - 5_000_000).otherwise("start_ns")
    found = analyze([msgspec.structs.replace(trace, host_events=trace.host_events.with_columns(start_ns=begins))])
    assert found.headline is not None
    assert (found.headline.rule, loss(found).rule) == ("launch-bound", "first-use")
