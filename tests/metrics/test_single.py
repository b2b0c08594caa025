"""Where no loop is found, a marked step or the recording is measured as one iteration."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import polars as pl
import pytest

from deepprof.analysis import Analysis, analyze
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.breakdown.timeline import lay_out, recorded_bounds
from deepprof.metrics.evidence import gather_evidence
from deepprof.metrics.host import read_host
from deepprof.metrics.loop import Loop
from deepprof.metrics.sequence import main_sequence
from deepprof.metrics.single import measure_single
from tests.deepprof.diagnosis.loops import MAIN, Did, Job, Work

# Forty kernels, all of them different, 90 µs apart, each launched just before it begins.
WORK = [Work(90 * i, 90 * i + 10, 90 * i - 5, name=f"kernel_{i}_") for i in range(40)]
COPY = ("Memcpy HtoD", 9, "memcpy", {"copy_kind": "HtoD"})
STEP = Did("ProfilerStep#1", 890, 2_690, "range")


def measured(job: Job) -> Loop | None:
    trace = job.trace()
    host = read_host(trace)
    sequence = main_sequence(trace, 0, MAIN, host)
    families = gather_evidence(trace, sequence, host).families
    return measure_single(trace, sequence, families, lay_out(trace, 0, host.launches), host)


def test_a_marked_step_is_measured_from_its_mark_on() -> None:
    loop = measured(Job(4_000, WORK, [STEP], iterations=1))
    assert loop is not None
    assert (loop.single, loop.period, loop.iterations.height) == ("marked step", 20, 1)
    assert loop.iterations["start_ns"].item() == 890_000
    assert loop.usual["iteration_ns"].item() == 1_800_000 == sum(loop.parts.select(PART_NAMES).row(0))


def test_what_a_marked_step_does_before_its_first_kernel_and_after_its_last_counts() -> None:
    loads = Did("enumerate(DataLoader)#_next", -3_000, -1_200, "range")
    step = Did("ProfilerStep#1", -3_100, 3_600, "range")
    copies = [Work(-1_100, -100, -1_150, *COPY), Work(3_550, 9_550, 3_500, *COPY)]  # the last one outlasts the mark
    later = Work(20_000, 21_000, 3_700, *COPY)
    loop = measured(Job(30_000, [*copies, *WORK, later], [loads, step], iterations=1))
    assert loop is not None
    assert (loop.single, loop.period) == ("marked step", 40)
    assert (loop.iterations["start_ns"].item(), loop.iterations["end_ns"].item()) == (-3_100_000, 9_550_000)
    assert loop.parts["exposed_htod_ns"].item() == loop.iterations["htod_ns"].item() == 7_000_000
    assert loop.parts["idle_input_ns"].item() == 1_800_000
    assert loop.parts["compute_ns"].item() == 400_000
    assert sum(loop.parts.select(PART_NAMES).row(0)) == 12_650_000


def test_a_marked_step_begins_when_what_was_launched_before_it_is_done() -> None:
    earlier = [Work(-900, -10, -2_000, "before"), Work(-3_000, -2_000, -3_005, "long before")]
    loop = measured(Job(6_000, [*earlier, *WORK], [Did("ProfilerStep#1", -500, 3_600, "range")], iterations=1))
    assert loop is not None
    assert loop.iterations["start_ns"].item() == -10_000
    behind = measured(
        Job(6_000, [Work(-900, 500, -2_000, "before", 9), *WORK], [Did("step 1", -500, 3_600, "range")], iterations=1)
    )
    assert behind is not None
    assert behind.iterations["start_ns"].item() == 0  # its own kernels run next to what arrived before


def test_what_was_launched_before_the_recording_is_no_part_of_a_marked_step() -> None:
    earlier = [Work(600 + 100 * i, 690 + 100 * i, None, f"before_{i}_") for i in range(4)]
    own = [replace(w, start=w.start + 1_000, end=w.end + 1_000, launched=90 * i + 995) for i, w in enumerate(WORK)]
    loop = measured(Job(6_000, [*earlier, *own], [Did("ProfilerStep#1", 500, 4_600, "range")], iterations=1))
    assert loop is not None
    assert (loop.iterations["start_ns"].item(), loop.period) == (990_000, 40)


def test_without_launch_records_a_marked_step_is_what_runs_in_it() -> None:
    copies = [Work(-1_100, -100, None, *COPY), Work(3_550, 9_550, None, *COPY)]
    kernels = [replace(each, launched=None) for each in WORK]
    loop = measured(Job(30_000, [*copies, *kernels], [Did("ProfilerStep#1", -1_500, 3_600, "range")], iterations=1))
    assert loop is not None
    assert (loop.iterations["start_ns"].item(), loop.iterations["end_ns"].item()) == (-1_500_000, 9_550_000)


def test_a_marked_step_on_the_host_alone_begins_with_its_loading() -> None:
    names = ("aten::addmm", "aten::relu_", "aten::sum", "aten::conv2d")
    operators = [Did(names[i % 4] + "_" * (i // 4), 1_000 + 100 * i, 1_095 + 100 * i, "op") for i in range(20)]
    loads = Did("enumerate(DataLoader)#_next", 10, 990, "range")
    answer = analyze(
        [Job(4_000, [], [*operators, loads, Did("ProfilerStep#1", 0, 3_000, "range")], iterations=1).trace()]
    ).answer
    assert (answer.kind, round(answer.whole_ns)) == ("marked step", 3_000_000)
    assert answer.groups == pytest.approx({"computing": 1_900 / 3_000, "waiting": 1_100 / 3_000})
    assert answer.loss is not None
    assert answer.loss.rule == "input-bound"
    assert answer.loss_ratio == pytest.approx(980 / 3_000, abs=0.001)


def test_without_a_marker_all_that_was_recorded_is_measured() -> None:
    copy = Work(4_000, 5_000, 3_990, "Memcpy HtoD", 9, "memcpy", {"copy_kind": "HtoD"})
    loop = measured(Job(6_000, [*WORK, copy], iterations=1))
    assert loop is not None
    assert (loop.single, loop.usual["iteration_ns"].item()) == ("recording", 5_005_000)
    assert sum(loop.parts.select(PART_NAMES).row(0)) == 5_005_000  # from the first launch call on


def test_a_recording_begins_with_the_host() -> None:
    waits = [Did("enumerate(DataLoader)#_next", -800_000, -20_000, "range"), Did("cudaMemcpyAsync", -19_000, -18_990)]
    loop = measured(Job(6_000, WORK, waits, iterations=1))
    assert loop is not None
    length = loop.usual["iteration_ns"].item()
    assert length == (800_000 + 90 * 39 + 10) * 1_000 == sum(loop.parts.select(PART_NAMES).row(0))
    assert loop.parts["idle_input_ns"].item() == 780_000_000


@pytest.mark.parametrize(("pause", "part"), [(5_000, "idle_host_ns"), (700, "idle_launch_ns")])
def test_a_pause_before_the_first_call_and_after_the_last_is_whole(pause: int, part: str) -> None:
    queued = [Work(10 * i, 10 * i + 10, 5 * i - 5, name=f"kernel_{i}_") for i in range(40)]  # without a gap
    setup, report = Did("setup", -pause - 5, -500, "range"), Did("report", 250, 400 + pause, "range")
    loop = measured(Job(20_000, queued, [setup, report], iterations=1))
    assert loop is not None
    idle = {"idle_host_ns": 0, "idle_launch_ns": 5_000}  # from the first call to its kernel
    idle[part] += 2 * pause * 1_000
    assert {name: loop.parts[name].item() for name in idle} == idle


def test_a_recording_on_both_sides_of_2_31_ns_is_measured_whole() -> None:
    """First and last moment are numbers of 32 bits there, whose sum with a length is none."""
    late = [
        Work(2_000_000 + 5_000 * i, 2_000_010 + 5_000 * i, 1_999_990 + 5_000 * i, name=f"kernel_{i}_")
        for i in range(40)
    ]
    loop = measured(Job(2_300_000, late, iterations=1))
    assert loop is not None
    assert sum(loop.parts.select(PART_NAMES).row(0)) == loop.usual["iteration_ns"].item() > 190_000_000


def test_what_other_processes_did_before_is_no_part_of_a_recording() -> None:
    job = Job(6_000, WORK, [Did("enumerate(DataLoader)#_next", -800_000, -20_000, "range")], iterations=1)
    trace = job.trace()
    away = trace.annotations.with_columns(process=pl.col("process") + 1)
    trace = msgspec.structs.replace(trace, annotations=away)
    timeline = lay_out(trace, 0, read_host(trace).launches)
    assert recorded_bounds(trace, timeline)[0] == -5_000


def test_a_program_that_starts_is_told_from_one_that_waits() -> None:
    starts = [Did("cudaFree", -500_000, -100_000), Did("cudaMalloc", -90_000, -89_000)]
    answer = analysis(*starts).answer
    assert (answer.kind, round(answer.whole_ns)) == ("start-up", (500_000 + 90 * 39 + 10) * 1_000)
    assert answer.loss is not None
    assert answer.loss.rule == "first-use"
    assert answer.loss_ratio == pytest.approx(400_000 / 503_520, abs=0.001)
    waits = analysis(Did("enumerate(DataLoader)#_next", -800_000, -20_000, "range"), starts[1]).answer
    assert waits.kind == "recording"
    assert waits.loss is not None
    assert waits.loss.rule == "input-bound"
    assert analysis().answer.whole_ns == pytest.approx((90 * 39 + 15) * 1_000)


@pytest.mark.parametrize("kernels", [0, 1])
def test_next_to_no_kernels_are_no_stretch(kernels: int) -> None:
    assert kernels == 0 or measured(Job(4_000, WORK[:kernels], iterations=1)) is None


def analysis(*host: Did) -> Analysis:
    return analyze([Job(4_000, WORK, list(host), iterations=1).trace()])


def test_a_marked_step_that_waits_for_launches_has_a_headline_of_less_confidence() -> None:
    found = analysis(STEP)
    assert found.loops == ()
    assert found.headline is not None
    assert found.headline.rule == "launch-bound"
    assert 0.3 <= found.headline.confidence <= 0.68
    assert "of the marked step" in found.headline.summary
    assert found.headline.iterations is None


def test_of_an_unmarked_recording_everything_is_a_remark() -> None:
    found = analysis()
    assert found.headline is None
    assert [(f.rule, f.severity) for f in found.findings] == [("launch-bound", "info")]
    assert found.findings[0].headroom_ns_per_iteration is None
    assert "of the recording" in found.findings[0].summary
