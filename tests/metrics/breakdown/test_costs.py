"""What a part costs an iteration: means over regular iterations, steadiness, and when it is spent."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import empty_table
from deepprof.metrics.breakdown.costs import Cost, cost_of, mean_of, spans_of_parts, threads_of
from deepprof.metrics.breakdown.parts import PARTS
from tests.deepprof.diagnosis.loops import Did, Job, Work, compute
from tests.loops import MS, make_loop

INPUT = ("idle_input_ns",)


def test_the_mean_of_several_parts_over_the_iterations_that_are_followed() -> None:
    loop = make_loop([100] * 4, idle_input_ns=[10, 20, 10, 20], idle_sync_ns=5)
    cost = cost_of(loop, ("idle_input_ns", "idle_sync_ns"))
    assert cost == Cost(20.0 * MS, 100.0 * MS, 1.0, 4, (0, 3), 4, 25.0 * MS, 0.2)
    assert cost.share == 0.2


def test_warm_up_is_left_out_and_outliers_are_in_the_mean_alone() -> None:
    loop = make_loop([500, 100, 100, 188, 150], warmup=1, idle_input_ns=[400, 10, 10, 98, 10])
    whole = cost_of(loop, INPUT)
    assert whole is not None
    assert whole.usual_share == pytest.approx(30 / 350)  # 1, 2 and 4: the median of those after warm-up is 125 ms
    cost = cost_of(make_loop([100, 100, 151, 100], idle_input_ns=[10, 10, 61, 10]), INPUT)
    assert cost is not None
    assert (cost.iterations, cost.bounds, cost.affected, cost.most_ns) == (4, (0, 3), 1, 61 * MS)
    assert (cost.mean_ns, cost.usual_share, cost.steadiness) == (22.75 * MS, 0.1, 1.0)


@pytest.mark.parametrize(
    ("spent", "steadiness"), [([10] * 4, 1.0), ([40, 0, 0, 0], 0.25), ([20, 20, 0, 0], 0.5), ([15, 15, 15, 5], 0.75)]
)
def test_steady_is_what_at_least_half_of_the_mean_is_in(spent: list[float], steadiness: float) -> None:
    cost = cost_of(make_loop([100] * 4, idle_input_ns=spent), INPUT)
    assert cost is not None
    assert cost.steadiness == steadiness


@pytest.mark.parametrize(("times", "known"), [([], False), ([100], True), ([100, 100], True)])
def test_an_iteration_is_needed(times: list[float], known: bool) -> None:
    assert (cost_of(make_loop(times, idle_input_ns=10), INPUT) is not None) == known


def test_without_parts_there_are_no_costs() -> None:
    assert cost_of(replace(make_loop([100] * 4), parts=empty_table(PARTS)), INPUT) is None


def test_an_iteration_without_time_has_a_share_all_the_same() -> None:
    assert Cost(0.0, 0.0, 1.0, 2, (0, 1)).share == 0


def test_means_of_columns() -> None:
    loop = make_loop([100] * 3, waits=[1, 2, 6], launches=10)
    assert mean_of(loop, "waits") == 3
    assert mean_of(loop, "waits", "launches") == 13
    assert mean_of(make_loop([]), "waits") == 0


def test_spans_lie_in_regular_iterations_only() -> None:
    job = Job(100_000, [compute(60_000)], [Did("enumerate(DataLoader)#x", 60_000, 90_000, "range")], iterations=5)
    loop, _ = job.build()
    spans = spans_of_parts(loop, INPUT)
    assert spans.starts.tolist() == [(100 * i + 60) * MS for i in range(4)]
    assert spans.ends.tolist() == [(100 * i + 90) * MS for i in range(4)]
    assert spans_of_parts(replace(loop, timeline=None), INPUT).total_ns == 0


def test_threads_are_those_that_launch() -> None:
    loop, _ = Job(100, [Work(0, 50, -5)], [Did("cudaStreamSynchronize", 0, 90, thread=3)]).build()
    threads = threads_of(loop)
    assert threads is not None
    assert threads.rows() == [(1, 1)]
    assert threads_of(Job(100, [Work(0, 50)]).build()[0]) is None
    assert threads_of(replace(loop, timeline=None)) is None
