"""The answer: what a recording is, what takes its time, and which loss comes first."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.analysis import Analysis
from deepprof.collectors.trace import Accounting
from deepprof.diagnosis.answer import find_answer, find_group
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.outside import measure_time_outside
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.comparison import GROUP_SKEWS, GROUP_WAITS, RankComparison, RankGroup
from deepprof.metrics.ranks.ranks_table import RANKS
from deepprof.render.answer import describe_answer
from deepprof.render.wording import CPU, GPU
from deepprof.results.analysis_tables import BREAKDOWN
from tests.deepprof.builders import build_analysis, build_finding
from tests.deepprof.diagnosis.loops import Job, Work
from tests.loops import MS, make_loop
from tests.tables import Row, copy, event, launch, make_trace, span


def analysis_of(*loops: Loop, findings: tuple[Finding, ...] = ()) -> Analysis:
    return build_analysis(loops=loops, findings=findings)


def build_stall(share: float, severity: str = "info") -> Finding:
    return build_finding(rule="slow-iterations", severity=severity, evidence={"share_ratio": share})


def build_start(share: float) -> Finding:
    return build_finding(
        rule="late-start", severity="info", evidence={"share_ratio": share}, headroom_ns_per_iteration=None
    )


def test_groups_are_shares_of_a_usual_iteration() -> None:
    loop = make_loop([10] * 10, idle_input_ns=4, exposed_htod_ns=1)
    answer = find_answer(analysis_of(loop))
    assert (answer.kind, answer.whole_ns, answer.loss) == ("loop", 10 * MS, None)
    assert dict(answer.groups) == pytest.approx({"computing": 0.5, "waiting": 0.4, "copying": 0.1})


@pytest.mark.parametrize("part", PART_NAMES)
def test_every_part_that_no_finding_names_is_described(part: str) -> None:
    loop = make_loop([10] * 10, **({} if part == "compute_ns" else {part: 8}))
    lines = list(describe_answer(analysis_of(loop)))
    assert len(lines) == 3
    assert all(find_group(part) in words.groups for words in (GPU, CPU))


def describe_time(**parts: float) -> str:
    """Return what the first line states of a loop whose iteration of 1,000 ms spends this many ms on these parts."""
    line = next(describe_answer(analysis_of(make_loop([1_000] * 10, **parts))))
    return line.partition("the device ")[2]


def test_no_group_or_part_of_a_tenth_of_the_time_is_unnamed() -> None:
    assert describe_time(exposed_dtod_ns=115, exposed_htod_ns=20, exposed_communication_ns=100, idle_startup_ns=35) == (
        "computes 73.0 % of the time, only copies 13.5 % (11.5 % within its memory), and only communicates 10.0 %."
    )
    assert describe_time(idle_input_ns=220, idle_launch_ns=210, idle_sync_ns=200) == (
        "waits 63.0 % of the time (22.0 % for data, 21.0 % for launches, 20.0 % for the host to continue after a "
        "synchronization), and computes 37.0 %."
    )
    assert describe_time(exposed_htod_ns=99.6) == "computes 90.0 % of the time, and only copies from the host 10.0 %."
    assert describe_time(idle_launch_ns=79, idle_startup_ns=21) == (
        "computes 90.0 % of the time, and waits 10.0 % (7.9 % for launches)."
    )


def test_what_takes_less_than_a_tenth_is_not_in_the_first_line() -> None:
    assert describe_time(idle_launch_ns=98) == "computes 90.2 % of the time."
    assert describe_time(exposed_htod_ns=98, exposed_communication_ns=98, idle_launch_ns=98) == (
        "computes 70.6 % of the time."
    )


def test_stalls_are_apart_and_the_larger_loss_is_first() -> None:
    loop, growth = make_loop([10] * 20 + [2_000] + [10] * 19), build_finding(headroom_ns_per_iteration=6 * MS, stream=7)
    assert find_answer(analysis_of(loop, findings=(growth,))).whole_ns == 10 * MS
    for share, first in ((0.8, "slow-iterations"), (0.35, "graph-growth")):
        answer = find_answer(analysis_of(loop, findings=(growth, build_stall(share))))
        assert answer.loss is not None
        assert answer.loss.rule == first
    assert find_answer(analysis_of(loop, findings=(build_stall(0.2),))).loss is None
    assert "Iteration 20 is a stall of 2.00 s" in next(describe_answer(analysis_of(loop)))


def test_a_late_start_leads_where_it_takes_more_of_the_recording_than_the_headline() -> None:
    loop, growth = make_loop([10] * 20), build_finding(headroom_ns_per_iteration=4 * MS, stream=7)
    for share, first in ((0.3, "late-start"), (0.28, "graph-growth"), (0.05, "graph-growth")):
        answer = find_answer(analysis_of(loop, findings=(growth, build_start(share))))
        assert answer.loss is not None
        assert answer.loss.rule == first
    assert find_answer(analysis_of(loop, findings=(build_start(0.15),))).loss_ratio == 0.15
    assert find_answer(analysis_of(loop, findings=(build_start(0.05),))).loss is None


def test_among_few_iterations_none_is_a_stall() -> None:
    assert make_loop([10, 10, 100, 10]).stalls.is_empty()
    assert make_loop([10] * 8 + [100] * 2).stalls.is_empty()  # a fifth of them: that is how the job runs


def test_a_remark_leads_only_without_iterations_and_no_place_does() -> None:
    remark = build_finding(rule="copy-bound", severity="info", evidence={"share_ratio": 0.95}, iterations=None)
    place, small = (
        build_finding(rule=rule, severity="info", evidence={"share_ratio": share})
        for rule, share in (("hotspot", 0.9), ("copy-bound", 0.05))
    )
    answer = find_answer(analysis_of(findings=(place, remark)))
    assert answer.loss is remark
    assert find_answer(analysis_of(findings=(place, small))).loss is None
    assert find_answer(analysis_of(make_loop([10] * 8), findings=(remark,))).loss is None


def test_a_recording_without_work_is_one_line() -> None:
    analysis = deepprof.analyze(make_trace())
    assert analysis.answer.kind == "no work"
    assert [line.partition(":")[0] for line in describe_answer(analysis)] == ["No work of a device was recorded"]


def test_what_the_host_did_in_a_recording_without_work_is_described() -> None:
    ranges = [span(0, 1_000_000 * at, 1_000_000 * at + 800_000) for at in range(3)]
    (line,) = describe_answer(deepprof.analyze(make_trace(annotations=ranges, names=["frame"])))
    assert line.endswith("The host recorded 3 ranges in 2.80 ms, most in frame (3 times, 2.40 ms in all).")


def test_events_of_another_accelerator_are_not_denied() -> None:
    note = "holds no kernel: the events are of another accelerator (ARTEMIS: 1 x), which DeepProf does not read"
    trace = replace(make_trace(), notes=(note,), accounting=Accounting(1, 0, {"other-device": 1}))
    (line,) = describe_answer(deepprof.analyze(trace))
    assert line.startswith(
        "No work of a device that DeepProf reads was recorded: the trace holds no GPU kernel; the ev"
    )
    assert "holds no kernel" not in line


def test_of_missing_dispatches_no_idle_time_is_claimed() -> None:
    trace = Job(1_000, [Work(0, 100)], iterations=8).trace()
    noted = replace(trace, notes=("900 of 1,000 dispatches are not in the file: their numbers are missing",))
    lines = list(describe_answer(deepprof.analyze(noted)))
    assert "the device shows no work 88.7 % of the time" in lines[0]
    assert lines[0].endswith("But 900 of 1,000 dispatches (90.0 %) are not in the file and may run meanwhile.")
    assert "waits" not in lines[0]
    assert lines[1].startswith("No loss can be judged")


def test_a_loop_without_a_whole_iteration_has_an_answer() -> None:
    lines = list(describe_answer(analysis_of(make_loop([]))))
    assert lines[0].startswith("A loop of 1 iteration, none of them measured whole")


def test_only_whole_iterations_are_counted() -> None:
    lines = describe_answer(analysis_of(make_loop([10] * 5, cut=2)))
    assert next(lines).startswith("A loop of 6 iterations, 10.0 ms each")


def test_iterations_of_little_of_the_work_are_not_what_was_recorded() -> None:
    loop, own = replace(make_loop([10] * 5), coverage_ratio=0.19), build_finding(stream=7)
    copies = build_finding(rule="copy-bound", severity="info", evidence={"share_ratio": 0.9}, iterations=None)
    answer = find_answer(analysis_of(loop, findings=(own, copies)))
    assert (answer.loop, answer.loss) == (None, copies)
    assert find_answer(analysis_of(replace(loop, coverage_ratio=0.2), findings=(own, copies))).loss is own


def surrounded(loop: Loop, edges_ms: list[int], parts: list[str]) -> Loop:
    """Return the loop with the time outside it, of a device that does each of the parts from one edge to the next."""
    numbers = np.array([PART_NAMES.index(name) for name in parts], np.int16)
    timeline = Timeline(0, np.array(edges_ms) * MS, numbers, None)
    return replace(loop, outside=measure_time_outside(timeline, loop.iterations))


def test_time_outside_the_iterations_is_described() -> None:
    parts = ["compute_ns", "idle_host_ns", "compute_ns", "idle_host_ns", "compute_ns"]
    loop = surrounded(make_loop([10] * 6), [-90, -85, 0, 4, 10, 61], parts)
    outside = find_answer(analysis_of(loop)).outside
    assert outside is not None
    assert (outside.recorded_ns, outside.longest_wait_ns, outside.waited_ns) == (151 * MS, 85 * MS, 85 * MS)
    assert outside.places == {"before": 90 * MS, "after": MS // 10}
    line = next(describe_answer(analysis_of(loop)))
    assert "The iterations are 40.3 % of the recording; the rest is mostly 90.0 ms before them (59.6 %). " in line
    assert "Outside the iterations the device waits 85.0 ms while the host does other work (56.3 % of the" in line
    assert "of the recording, nearly all of it at once)" in line


def test_what_lies_before_and_after_the_iterations_is_described_together() -> None:
    line = next(describe_answer(analysis_of(surrounded(make_loop([10] * 6), [-40, 90], ["compute_ns"]))))
    assert line.endswith("the rest is mostly 40.0 ms before them (30.8 %), and 29.1 ms after them (22.4 %).")


def test_a_long_pass_before_the_iterations_is_described() -> None:
    loop = surrounded(make_loop([10] * 6), [-90, 61], ["compute_ns"])
    line = next(describe_answer(analysis_of(loop)))
    assert line.endswith("The iterations are 40.3 % of the recording; the rest is mostly 90.0 ms before them (59.6 %).")


def test_iterations_of_the_warm_up_are_outside_those_that_are_described() -> None:
    loop = surrounded(make_loop([10] * 6, warmup=2), [0, 61], ["compute_ns"])
    line = next(describe_answer(analysis_of(loop)))
    assert line.endswith(
        "The iterations after warm-up are 67.0 % of the recording; the rest is mostly 20.0 ms before them (32.8 %)."
    )


def test_of_iterations_that_are_nearly_all_of_the_recording_nothing_more_is_described() -> None:
    loop = surrounded(make_loop([10] * 6), [-14, -8, 61], ["compute_ns", "idle_host_ns"])
    assert find_answer(analysis_of(loop)).outside is not None
    assert "The iterations are 81.2 %" not in next(describe_answer(analysis_of(loop)))


@pytest.mark.parametrize(("wait_ms", "is_larger"), [(0, False), (150, False), (1_000, True)])
def test_stalls_are_compared_with_the_longest_wait_outside(wait_ms: int, is_larger: bool) -> None:
    loop, stalls = make_loop([10] * 40), build_stall(0.5, "critical")
    parts = ["compute_ns", "idle_unknown_ns", "compute_ns"]
    loop = surrounded(loop, [0, 401, 401 + wait_ms, 410 + wait_ms], parts)
    answer = find_answer(analysis_of(loop, findings=(stalls,)))
    assert (answer.is_wait_larger, answer.loss) == (is_larger, None if is_larger else stalls)
    loss = list(describe_answer(analysis_of(loop, findings=(stalls,))))[1]
    assert loss.startswith("The largest loss is one wait of 1.00 s outside the iterations (70.9 %") == is_larger


def test_several_devices_are_described_by_their_mean() -> None:
    rows = [
        {"rank": 0, "device": device, "compute_ns": 10 * MS, "idle_host_ns": idle}
        for device, idle in ((0, 0), (1, 80 * MS))
    ]
    breakdown = pl.DataFrame(rows, schema=BREAKDOWN).fill_null(0)
    answer = find_answer(replace(analysis_of(), breakdown=breakdown))
    assert answer.whole_ns == 50 * MS
    assert dict(answer.groups) == pytest.approx({"waiting": 0.8, "computing": 0.2})


def test_a_finding_without_time_of_its_own_is_no_loss() -> None:
    small = build_finding(rule="small-kernels", headroom_ns_per_iteration=0, stream=7)
    assert find_answer(analysis_of(make_loop([10] * 8, idle_unknown_ns=4), findings=(small,))).loss is None


def test_setting_memory_is_computing() -> None:
    assert (find_group("exposed_memset_ns"), find_group("exposed_dtod_ns")) == ("computing", "copying")


def _hardly_recorded(category: str | None) -> Analysis:
    """A thread copies during 60 ms; another launches kernels in the last, recorded from `category` on or only then."""
    copies = [copy(at * MS, at * MS + 10_000, 8, correlation=at) for at in range(1, 51, 5)]
    asked = [launch(at, at * MS - 9_000, at * MS - 5_000) | {"thread": 2} for at in range(1, 51, 5)]
    begins = range(60 * MS, 61 * MS, 20_000)
    kernels = [event(1 + k % 7, at, at + 15_000, correlation=100 + k) for k, at in enumerate(begins)]
    calls = [launch(100 + k, at - 9_000, at - 5_000) for k, at in enumerate(begins)]
    begun = [launch(0, 2 * MS, 2 * MS + 1_000) | {"category": category, "correlation": None}] if category else []
    return deepprof.analyze(make_trace([*copies, *kernels], sorted([*begun, *asked, *calls], key=_start_of)))


def _start_of(row: Row) -> int:
    return int(str(row["start_ns"]))


def test_the_cause_of_a_wait_is_not_known_where_the_launching_thread_is_hardly_recorded() -> None:
    first, second, *_ = describe_answer(_hardly_recorded(None))
    assert "the device waits" in first
    assert "for a reason that was not recorded" in first
    assert second.startswith("The cause of the largest loss is unknown: the device waits 9")
    assert "What to do: record the runtime calls and functions of all the host's threads" in second


def test_the_host_does_other_work_where_the_launching_thread_is_recorded_meanwhile() -> None:
    first, second, *_ = describe_answer(_hardly_recorded("python"))
    assert "while the host does other work" in first
    assert second.startswith("The largest avoidable loss: the device waits while the host does other work")


def _build_devices(*exposed_ms: float, programs: int = 1) -> Analysis:
    """Devices that run `programs`; iterations of 10 ms only communicate for so long, from 2 ms on with a finding."""
    loops = [
        replace(make_loop([10] * 8, exposed_communication_ns=ms), device=number) for number, ms in enumerate(exposed_ms)
    ]
    places = [(0, number) for number in range(len(loops))]
    groups = tuple(
        RankGroup(tuple(places[k::programs]), None, None, pl.DataFrame(schema=GROUP_WAITS)) for k in range(programs)
    )
    compared = RankComparison(pl.DataFrame(schema=RANKS), pl.DataFrame(schema=GROUP_SKEWS), groups, None, None)
    found = [
        build_finding(
            rule="communication-bound",
            headroom_ns_per_iteration=ms * MS,
            evidence={"iteration_ns": 10 * MS},
            parts={"exposed_communication_ns": ms * MS},
            device=number,
            stream=7,
        )
        for number, ms in enumerate(exposed_ms)
        if ms >= 2
    ]
    return build_analysis(loops=tuple(loops), findings=tuple(found), ranks=compared)


def test_devices_that_do_the_same_are_described_by_their_mean() -> None:
    analysis = _build_devices(4, 3, 0, 1)
    answer, lines = analysis.answer, list(describe_answer(analysis))
    assert dict(answer.groups) == pytest.approx({"computing": 0.8, "communicating": 0.2})
    assert (answer.loss_ns, answer.loss_ratio) == pytest.approx((2 * MS, 0.2))  # what is too small for a finding counts
    assert lines[0].startswith(
        "A loop of 9 iterations, 10.0 ms each (the mean of 4 devices): the device computes 80.0 %"
    )
    assert "up to 2.00 ms (20.0 %)" in lines[1]


def test_a_device_alone_and_another_program_are_in_no_mean() -> None:
    assert _build_devices(4).answer.loss_ratio == pytest.approx(0.4)
    answer = _build_devices(4, 0, 3, 0, programs=2).answer
    assert ([each.place[1] for each in answer.devices], answer.loss_ratio) == ([0, 2], pytest.approx(0.35))


def test_the_mean_time_is_stated_where_shares_are_of_a_longer_time_than_the_median() -> None:
    even, uneven = (next(describe_answer(analysis_of(make_loop([10] * 8 + [last])))) for last in (12, 16))
    assert "10.0 ms each: " in even
    assert "10.0 ms each (the median; 10.7 ms on average): " in uneven


def test_the_share_in_a_title_is_a_mean_of_the_devices() -> None:
    analysis = _build_devices(0, 0)
    found = [
        build_finding(
            rule="embedding-bound",
            title=f"{share} % of the computing time is adding to rows by index",
            headroom_ns_per_iteration=MS,
            evidence={"iteration_ns": 10 * MS, "work_share_ratio": share / 100},
            device=number,
            stream=7,
        )
        for number, share in enumerate((50.0, 40.0))
    ]
    _, second, *_ = describe_answer(replace(analysis, findings=tuple(found)))
    assert second.startswith("The largest avoidable loss: 45.0 % of the computing time is adding")


def test_a_rank_that_the_communication_waits_for_is_named_where_it_is_not_the_loss() -> None:
    launching, late, exposed = (
        build_finding(rule=rule, caused_by=cause, rank=rank, stream=7 if rank else None)
        for rule, cause, rank in (
            ("launch-bound", None, 0),
            ("straggler", None, 3),
            ("communication-bound", "straggler", 1),
        )
    )
    loop = make_loop([10] * 8)
    sentence = "Most of the communication is waiting for rank 3, which is late."
    assert sentence in next(describe_answer(analysis_of(loop, findings=(launching, late, exposed))))
    assert sentence not in next(describe_answer(analysis_of(loop, findings=(late, exposed))))
