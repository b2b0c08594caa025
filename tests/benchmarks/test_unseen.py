"""The second judge: its truth comes from schedules, its recordings can happen, and its verdicts are as told."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import polars as pl
import pytest

from benchmarks.unseen import blocking, looping, passing, saying, several, vocabulary
from benchmarks.unseen.answering import Answer, describe, examine
from benchmarks.unseen.drawing import FAMILIES, ROTATION, Drawn, draw, family_of, record
from benchmarks.unseen.judging import ACCEPTABLE, PLAINLY_RIGHT, SILENT, WRONG, LoopVerdict, Said, judge, judge_loops
from benchmarks.unseen.parts import divide, merge
from benchmarks.unseen.played import DeviceRow
from benchmarks.unseen.playing import play
from benchmarks.unseen.scoring import tables
from benchmarks.unseen.sketch import Recorder, Sketch
from benchmarks.unseen.steps import MAIN_STREAM, Launch, Mark, Program, Sync, Work
from benchmarks.unseen.truth import LEAST, NEGLIGIBLE, Truth, View, find_truth
from benchmarks.unseen.vocabulary import (
    CAUSES,
    COMPUTING,
    COPYING,
    DATA_LOADING,
    FIRST_USE,
    HOST_ONLY,
    HOST_WORK,
    KINDS,
    LATE_RANK,
    LAUNCHING,
    LOOP,
    MARKED_STEP,
    NOTHING,
    PARTS,
    SINGLE_PASS,
    STALL,
    SYNCHRONIZATION,
    TRAINING_LOOP,
    UNKNOWN,
    WAITING,
)
from deepprof.collectors.trace import Trace

SEED = "test"
NUMBERS = range(2 * len(ROTATION))
MS = 1_000_000


@pytest.fixture(scope="module")
def block() -> list[Drawn]:
    return [draw(SEED, number) for number in NUMBERS]


def a_truth(causes: dict[str, float], acceptable: tuple[str, ...] = (), **changes: object) -> Truth:
    view = View("iteration", {COMPUTING: 0.6, WAITING: 0.4, COPYING: 0.0}, causes)
    truth = Truth(TRAINING_LOOP, (), (20,), 10 * MS, (view,), frozenset(acceptable))
    return replace(truth, **changes)  # type: ignore[arg-type]


def a_said(**changes: object) -> Said:
    said = Said(TRAINING_LOOP, COMPUTING, 0.6, DATA_LOADING, 0.4, 0.9, 20)
    return replace(said, **changes)  # type: ignore[arg-type]


def test_the_family_of_a_recording_is_known_before_it_is_drawn() -> None:
    assert [family_of(number) for number in (0, 1, 8)] == [draw("families", number).family for number in (0, 1, 8)]


def test_the_same_seed_draws_the_same_recording_and_another_one_does_not() -> None:
    first, again, other = draw(SEED, 3), draw(SEED, 3), draw("another", 3)
    assert first == again
    assert first.truth != other.truth
    for one, two in zip(record(first), record(again), strict=True):
        assert one.device_events.equals(two.device_events)
        assert one.host_events.equals(two.host_events)


def test_every_family_is_drawn_and_every_kind_can_be(block: list[Drawn]) -> None:
    assert {drawn.family for drawn in block} == set(FAMILIES) == set(ROTATION)
    drawn = {variant(Random(f"kinds {n}"), True).kind for v in FAMILIES.values() for variant in v for n in range(2)}
    assert drawn == set(KINDS)


def test_shares_add_up_and_are_out_of_the_grey_zone(block: list[Drawn]) -> None:
    for drawn in block:
        for view in drawn.truth.views:
            assert set(view.parts) == set(PARTS) or drawn.sketch.variant == "ranges only"
            assert not view.parts or sum(view.parts.values()) == pytest.approx(1)
            assert all(0 <= share <= 1 for share in (*view.parts.values(), *view.causes.values())), describe(drawn)
        view = drawn.truth.views[0]
        largest = max(view.compared.values(), default=0.0)
        assert largest <= NEGLIGIBLE or largest >= LEAST
        assert set(view.causes) <= set(CAUSES) - {NOTHING}
        assert drawn.truth.acceptable <= set(CAUSES)


def test_an_iteration_is_as_long_as_what_runs_in_it(block: list[Drawn]) -> None:
    for drawn in (each for each in block if each.sketch.base == "iteration" and each.truth.kind != HOST_ONLY):
        rows = [row for each in play(drawn.sketch.programs) for row in each.device if row.stream == MAIN_STREAM]
        if len({row.device for row in rows}) == 1:
            mean = sum(row.end - row.start for row in rows) / drawn.truth.loops
            busy = drawn.truth.period_ns * (1 - drawn.truth.parts[WAITING])
            assert mean / 2 < busy < 1.2 * mean, describe(drawn)


def test_twins_differ_in_one_thing(block: list[Drawn]) -> None:
    for healthy, disturbed in zip(block[::2], block[1::2], strict=True):
        assert (healthy.family, healthy.disturbed, disturbed.disturbed) == (disturbed.family, False, True)
        assert disturbed.truth.views[0].largest or disturbed.sketch.variant == "idle device"


def test_recordings_can_happen(block: list[Drawn]) -> None:
    for drawn in block:
        for trace in record(drawn):
            assert_streams_run_one_thing_at_a_time(trace)
            assert_work_follows_its_launch(trace, whole=not drawn.sketch.cut)
            assert_ranges_nest(trace)


def assert_streams_run_one_thing_at_a_time(trace: Trace) -> None:
    work = trace.device_events.filter(pl.col("activity") != "sync").sort("start_ns", "end_ns")
    for rows in work.partition_by("device", "context", "stream"):
        assert (rows["start_ns"] >= rows["end_ns"].shift(1, fill_value=0)).all()


def assert_work_follows_its_launch(trace: Trace, *, whole: bool) -> None:
    calls = trace.host_events.filter(pl.col("correlation").is_not_null())
    assert calls["correlation"].is_unique().all()
    work = trace.device_events.filter(pl.col("activity") != "sync")
    joined = work.join(calls.select("correlation", called="start_ns"), on="correlation")
    assert (joined["start_ns"] >= joined["called"]).all()
    if whole and calls.height and work["correlation"].null_count() == 0:
        assert joined.height == work.height


def assert_ranges_nest(trace: Trace) -> None:
    rows = [trace.host_events, trace.annotations.filter(pl.col("side") == "host")]
    spans = pl.concat([each.select("process", "thread", "start_ns", "end_ns") for each in rows])
    for thread in spans.partition_by("process", "thread"):
        above: list[int] = []
        for start, end in thread.sort("start_ns", "end_ns", descending=[False, True])["start_ns", "end_ns"].iter_rows():
            while above and above[-1] <= start:
                above.pop()
            assert not above or end <= above[-1]
            above.append(end)


def looped(*steps: Work | Launch | Sync, count: int = 12) -> tuple[Program, ...]:
    return (
        Program(
            (*(each for _ in range(count) for each in (Mark(), *steps)), Mark()),
        ),
    )


def test_a_loader_costs_what_the_device_waits_for_it() -> None:
    kernels = [Launch("gemm", MS, "aten::mm") for _ in range(6)]
    program = looped(Work(4 * MS, "next", "range", DATA_LOADING), *kernels, Sync())
    truth = find_truth(Sketch("loader", TRAINING_LOOP, program, counts=(12,), base="iteration"))
    assert truth.period_ns == pytest.approx(10 * MS, rel=0.02)
    assert truth.parts[WAITING] == pytest.approx(0.4, abs=0.01)
    assert truth.causes[DATA_LOADING] == pytest.approx(0.4, abs=0.01)
    assert DATA_LOADING in truth.acceptable


def test_a_loader_that_was_not_marked_is_work_of_the_host() -> None:
    program = looped(Work(4 * MS, "next", "range", DATA_LOADING), Launch("gemm", 2 * MS))
    sketch = Sketch("loader", LOOP, program, Recorder(ranges=False), (12,), "iteration")
    assert find_truth(sketch).views[0].largest == HOST_WORK
    assert DATA_LOADING in find_truth(sketch).acceptable
    blind = find_truth(replace(sketch, recorder=Recorder(host=False)))
    assert blind.views[0].largest == UNKNOWN
    assert {DATA_LOADING, HOST_WORK, LAUNCHING} <= blind.acceptable


def test_idle_time_that_no_wait_caused_is_launching() -> None:
    program = looped(*(Launch("short", 2_000, call_ns=9_000) for _ in range(50)), Sync())
    truth = find_truth(Sketch("short", LOOP, program, counts=(12,), base="iteration"))
    assert truth.views[0].largest == LAUNCHING
    assert truth.causes.get(SYNCHRONIZATION, 0.0) < 0.05


def test_a_stall_is_a_share_of_the_recording_and_leaves_the_usual_iteration() -> None:
    healthy, stalled = (looping.stalled(Random("a stall"), disturbed) for disturbed in (False, True))
    before, after = find_truth(healthy), find_truth(stalled)
    assert after.period_ns == pytest.approx(before.period_ns, rel=0.05)
    assert after.causes[STALL] > 0.3
    assert after.views[0].largest == STALL
    assert {view.base for view in after.views} == {"iteration", "recording", "device"}


def test_first_use_holds_the_time_before_the_first_kernel() -> None:
    for number in range(6):
        truth = find_truth(passing.start_up(Random(f"start {number}"), True))
        assert truth.parts[WAITING] > LEAST
        assert truth.causes[FIRST_USE] > LEAST
        assert len(truth.views) == 1


def test_a_marked_step_is_the_base_where_something_stands_before_it() -> None:
    sketches = [passing.marked_step(Random(f"step {number}"), False) for number in range(20)]
    truths = [find_truth(sketch) for sketch in sketches]
    assert all(truth.views[0].base == "marked" and truth.parts[WAITING] < 0.3 for truth in truths)
    assert any(truth.views[1].parts[WAITING] > 0.7 for truth in truths)


def test_a_rank_that_starts_late_makes_the_other_one_wait() -> None:
    sketch = several.late_start(Random("late"), True)
    met = [next(row for row in each.device if row.part == "communicating") for each in play(sketch.programs)]
    assert len({row.end for row in met}) == 1
    assert met[0].end - met[0].start > 5 * (met[-1].end - met[-1].start)
    assert find_truth(sketch).causes[LATE_RANK] > LEAST
    apart = Drawn(0, "several devices", True, replace(sketch, separate=True), find_truth(sketch))
    assert [trace.rank for trace in record(apart)] == list(range(len(sketch.programs)))


def test_a_call_that_blocks_is_not_the_copy_that_it_makes() -> None:
    truth = find_truth(blocking.long_copy_call(Random("long call"), True))
    assert truth.views[0].largest == "blocked call"
    assert truth.causes.get("copy to device", 0.0) < 0.05


def test_parts_of_a_window_are_its_time() -> None:
    rows = [
        DeviceRow(0, 10, 0, 7, "kernel", "gemm", 1, None),
        DeviceRow(5, 20, 0, 24, "kernel", "ncclAllReduce", 2, None),
        DeviceRow(15, 40, 0, 20, "memcpy", "Memcpy HtoD", 3, None),
    ]
    assert divide(rows, [(0, 50)]) == {"computing": 10, "copying": 20, "communicating": 10, "waiting": 10}
    assert divide(rows, [(8, 12), (38, 44)]) == {"computing": 2, "copying": 2, "communicating": 2, "waiting": 4}
    assert merge([(5, 6), (0, 2), (1, 3)]) == [(0, 3), (5, 6)]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, PLAINLY_RIGHT),
        ({"part_share": 0.629, "cause_share": 0.371}, PLAINLY_RIGHT),
        ({"part_share": 0.64}, ACCEPTABLE),  # outside of 3 points, with the right cause
        ({"cause_share": 0.44}, ACCEPTABLE),
        ({"cause": SYNCHRONIZATION, "cause_share": 0.3}, ACCEPTABLE),  # close in size
        ({"cause": LAUNCHING}, WRONG),
        ({"cause": NOTHING, "cause_share": 0.0}, ACCEPTABLE),  # the part, and nothing false
        ({"cause": NOTHING, "part_share": 0.7}, WRONG),
        ({"cause": NOTHING, "kind": SINGLE_PASS}, WRONG),
        ({"part": WAITING, "part_share": 0.4}, ACCEPTABLE),
        ({"kind": LOOP}, ACCEPTABLE),
        ({"cause": NOTHING, "part": ""}, SILENT),
    ],
)
def test_an_answer_is_judged_as_what_it_is(changes: dict[str, object], verdict: str) -> None:
    truth = a_truth({DATA_LOADING: 0.4, SYNCHRONIZATION: 0.3}, (DATA_LOADING, SYNCHRONIZATION))
    assert judge(truth, a_said(**changes)) == verdict


def test_where_nothing_is_avoidable_no_cause_is_right() -> None:
    truth = a_truth({LAUNCHING: 0.03})
    assert judge(truth, a_said(cause=NOTHING)) == PLAINLY_RIGHT
    assert judge(truth, a_said(cause=LAUNCHING, cause_share=0.03)) == WRONG
    benchmark = a_truth({DATA_LOADING: 0.4}, (NOTHING,))
    assert judge(benchmark, a_said(cause=NOTHING)) == PLAINLY_RIGHT


def test_equal_causes_and_other_bases_are_as_right() -> None:
    causes = {DATA_LOADING: 0.38, SYNCHRONIZATION: 0.4}
    assert judge(a_truth(causes), a_said(cause_share=0.39)) == PLAINLY_RIGHT
    other = View("recording", {WAITING: 0.9, COMPUTING: 0.1}, {STALL: 0.8})
    truth = replace(a_truth(causes), views=(*a_truth(causes).views, other))
    assert judge(truth, a_said(part=WAITING, part_share=0.9, cause=STALL, cause_share=0.8)) == PLAINLY_RIGHT
    assert judge(truth, a_said(part=WAITING, part_share=0.9)) == WRONG


def test_what_happens_once_is_compared_on_the_whole_recording() -> None:
    causes, whole = {HOST_WORK: 0.76, STALL: 0.6}, {HOST_WORK: 0.3, STALL: 0.6}
    truth = replace(a_truth(causes), views=(View("iteration", {COMPUTING: 0.6, WAITING: 0.4}, causes, whole),))
    assert truth.views[0].largest == STALL
    assert judge(truth, a_said(cause=STALL, cause_share=0.6)) == PLAINLY_RIGHT
    assert judge(truth, a_said(cause=HOST_WORK, cause_share=0.76)) == WRONG


def test_ranges_alone_have_causes_and_no_parts() -> None:
    sketches = [passing.host_only(Random(f"ranges {number}"), True) for number in range(12)]
    truths = [find_truth(sketch) for sketch in sketches if sketch.variant == "ranges only"]
    assert truths
    for truth in truths:
        assert (dict(truth.parts), truth.views[0].largest) == ({}, DATA_LOADING)
        share = truth.causes[DATA_LOADING]
        said = a_said(kind=HOST_ONLY, part="", cause=DATA_LOADING, cause_share=share)
        assert judge(truth, said) == PLAINLY_RIGHT
        assert judge(truth, replace(said, cause=NOTHING)) == SILENT


def test_passes_may_have_one_anothers_names() -> None:
    truth = a_truth({}, kind=SINGLE_PASS, counts=(0,))
    assert judge(truth, a_said(kind=MARKED_STEP, cause=NOTHING)) == PLAINLY_RIGHT
    assert judge(truth, a_said(kind=TRAINING_LOOP, cause=NOTHING)) == WRONG


@pytest.mark.parametrize(
    ("counts", "loops", "verdict"),
    [
        ((20,), 20, LoopVerdict(False, False, False, True)),
        ((20,), 18, LoopVerdict(False, False, False, True)),
        ((20,), 0, LoopVerdict(False, False, True, False)),
        ((20,), 160, LoopVerdict(False, True, False, False)),
        ((20, 40), 40, LoopVerdict(False, False, False, True)),
        ((4, 0), 0, LoopVerdict(False, False, False, True)),
        ((0,), 12, LoopVerdict(True, False, False, False)),
        ((0,), 0, LoopVerdict(False, False, False, True)),
    ],
)
def test_loops_are_judged(counts: tuple[int, ...], loops: int, verdict: LoopVerdict) -> None:
    assert judge_loops(a_truth({}, counts=counts), a_said(loops=loops)) == verdict


def test_tables_count_each_verdict() -> None:
    fine = LoopVerdict(False, False, False, True)
    some = [
        Answer("stall", TRAINING_LOOP, PLAINLY_RIGHT, 0.9, fine, True, ""),
        Answer("stall", TRAINING_LOOP, WRONG, 0.9, LoopVerdict(False, False, True, False), True, "why"),
        Answer("chunks", LOOP, SILENT, 0.0, LoopVerdict(True, False, False, False), False, "why"),
    ]
    drawn, kinds = tables(some)
    assert [row[0] for row in drawn.rows] == ["stall", "chunks", "all"]
    assert [row[0] for row in kinds.rows] == [TRAINING_LOOP, LOOP, "all"]
    assert drawn.rows[-1][1:6] == ["3", "1", "0", "1", "1"]
    assert drawn.rows[-1][-4:] == ["1 of 1", "0 of 2", "1 of 2", "1 of 3"]


@pytest.mark.parametrize("number", [1, 5, 11, 16, 24, 35])
def test_recordings_pass_through_an_analysis(block: list[Drawn], number: int) -> None:
    assert examine(block[number]).recordings


@pytest.mark.parametrize("number", [60, 61])
def test_layers_of_experts_are_no_iterations(number: int) -> None:
    assert not examine(draw("look 904", number)).loops


def test_every_kind_of_loss_that_is_drawn_has_a_rule() -> None:
    named = set(saying.CAUSES.values()) | {vocabulary.COPY_TO_HOST, vocabulary.UNKNOWN, vocabulary.NOTHING}
    assert set(vocabulary.CAUSES) == named


def test_an_answer_is_read_in_the_words_of_the_benchmark(block: list[Drawn]) -> None:
    said = [saying.read_said(examine(each)) for each in block[:4]]
    assert {each.kind for each in said} <= set(vocabulary.KINDS)
    assert {each.part for each in said} <= {*vocabulary.PARTS, ""}
