"""`host-bound`: other work of the host, known from its calls or concluded from the interval alone."""

from __future__ import annotations

import pytest

from deepprof.diagnosis.rules.host_bound import TITLE, host_bound
from tests.deepprof.diagnosis.loops import START_US, Did, Job, Work, compute

LENGTH = 100_000


def test_a_long_pause_of_the_launching_thread_is_other_work() -> None:
    (found,) = Job(LENGTH, [compute(60_000)]).found(host_bound)
    assert (found.severity, found.confidence, found.location) == ("warning", 1.0, None)
    assert found.headroom_ns_per_iteration == (40_000 - START_US) * 1_000
    assert "40.0 %" in found.summary


def test_what_the_host_does_is_named() -> None:
    does = [Did("save_checkpoint", 60_000, 99_000, "range"), Did("train.py(3): log", 59_000, 99_900, "python")]
    (found,) = Job(LENGTH, [compute(60_000)], does).found(host_bound)
    assert found.location == {"range": "save_checkpoint", "frame": "train.py(3): log"}
    assert found.summary.endswith("it does other work in save_checkpoint.")
    assert found.title == "The device waits while the host is in train.py(3): log"
    assert found.advice.startswith("Look at train.py(3): log: it writes:")


@pytest.mark.parametrize(
    ("name", "category", "advice"),
    [
        ("aten::normal_", "op", "it sets values of tensors on the host"),
        ("aten::item", "op", "it makes a value of the device's results"),
        ("json/decoder.py(343): raw_decode", "python", "it reads or parses"),
        ("queue.py(154): get", "python", "it waits there"),
        ("PjRtLoadedExecutable::EnqueueExecution", "op", "do it before or while the device works"),
        ("postprocess", "range", "do it before or while the device works"),
    ],
)
def test_the_advice_is_about_the_work_that_is_known(name: str, category: str, advice: str) -> None:
    (found,) = Job(LENGTH, [compute(60_000)], [Did(name, 60_000, 99_900, category)]).found(host_bound)
    assert found.title == f"The device waits while the host is in {name}"
    assert found.advice.startswith(f"Look at {name}: {advice}")


def test_what_another_thread_does_is_left_to_other_thread() -> None:
    does = Did("statistics.py(4): collect", 60_000, 99_900, "python", thread=9)
    assert Job(LENGTH, [compute(60_000)], [does]).found(host_bound) == []


def test_building_code_in_every_iteration_is_other_work_however_short_the_pauses() -> None:
    builds = [Did("cuModuleLoadData", at, at + 800) for at in range(60_000, 100_000, 1_000)]
    (found,) = Job(LENGTH, [compute(60_000)], builds).found(host_bound)
    assert found.evidence["cost_ns_per_iteration"] == 40 * 800_000


@pytest.mark.parametrize("pause", [900, 1_000])
def test_short_pauses_are_launching(pause: int) -> None:
    events = [Did("cudaEventRecord", at, at + 1) for at in range(60_000, 100_000, pause)]
    assert Job(LENGTH, [compute(60_000)], events).found(host_bound) == []


def unlinked(gap: float, *, within: float = 0, ranges: list[Did] | None = None) -> Job:
    """Return iterations of two kernels without launch records, with idle time between and `within` them."""
    first = (LENGTH - gap - within) / 2
    return Job(LENGTH, [Work(0, first), Work(first + within, LENGTH - gap)], ranges or [])


def test_without_launch_records_an_interval_is_put_down_to_the_host_with_less_confidence() -> None:
    (found,) = unlinked(50_000, ranges=[Did("evaluate", 50_000, 99_000, "range")]).found(host_bound)
    assert (found.severity, found.confidence) == ("critical", 0.75)
    assert found.headroom_ns_per_iteration == 50_000_000
    assert found.evidence["interval_share_ratio"] == 0.5
    assert found.location == {"range": "evaluate"}
    assert "no launch records" in found.summary


@pytest.mark.parametrize(("gap", "fires"), [(14_900, False), (15_000, True)])
def test_the_limit_without_launch_records(gap: float, fires: bool) -> None:
    assert bool(unlinked(gap).found(host_bound)) == fires


def test_idle_time_within_iterations_is_neither_its_matter_nor_its_headroom() -> None:
    assert unlinked(10_000, within=60_000).found(host_bound) == []
    assert unlinked(20_000, within=21_000).found(host_bound) == []  # most of it is not between iterations
    (found,) = unlinked(20_000, within=20_000).found(host_bound)
    assert (found.headroom_ns_per_iteration, found.severity) == (20_000_000, "warning")


def test_copies_in_the_interval_are_not_put_down_to_the_host() -> None:
    copy = Work(50_000, 92_000, None, "Memcpy HtoD", 9, "memcpy", {"copy_kind": "HtoD"})
    assert Job(LENGTH, [compute(50_000, launched=None), copy]).found(host_bound) == []


def test_the_stage_of_an_iteration_is_no_work() -> None:
    (found,) = Job(LENGTH, [compute(60_000)], [Did("Model.forward", 60_000, 99_900, "range")]).found(host_bound)
    assert (found.title, found.location) == (TITLE, {"range": "Model.forward"})


def test_the_loss_is_no_longer_than_the_work_that_is_named() -> None:
    (found,) = Job(LENGTH, [compute(60_000)], [Did("aten::empty", 60_000, 90_000, "op")]).found(host_bound)
    assert found.title == "The device waits while the host is in aten::empty"
    assert (found.headroom_ns_per_iteration, found.evidence["saved_ratio"]) == (30_000_000, 0.3)
    assert found.evidence["share_ratio"] == pytest.approx(0.4, abs=0.001)
    assert found.summary.endswith("aten::empty takes 30.0 ms of that.")


def test_work_that_takes_a_part_of_the_time_is_its_place_and_not_the_cause() -> None:
    (found,) = Job(LENGTH, [compute(60_000)], [Did("aten::empty", 60_000, 85_000, "op")]).found(host_bound)
    assert (found.title, found.location) == (TITLE, {"operator": "aten::empty"})
    assert (found.headroom_ns_per_iteration, "saved_ratio" in found.evidence) == ((40_000 - START_US) * 1_000, False)
    assert found.advice.startswith("Look at aten::empty")


def test_work_that_takes_nearly_all_of_the_time_costs_all_of_it() -> None:
    (found,) = Job(LENGTH, [compute(60_000)], [Did("aten::empty", 60_000, 99_000, "op")]).found(host_bound)
    assert "saved_ratio" not in found.evidence
    assert "of that" not in found.summary


@pytest.mark.parametrize(("later", "named"), [(65_000, True), (86_000, False)])
def test_a_stage_is_named_where_most_of_what_is_not_explained_lies_in_it(later: float, named: bool) -> None:
    """The kernel at `later` has no launch record; the pause before it may have any cause."""
    work = [compute(40_000), Work(60_000, 60_010, 59_990), Work(later, 90_000, None)]
    (found,) = Job(LENGTH, work, [Did("forward", 40_000, 60_000, "range")]).found(host_bound)
    assert found.location == ({"range": "forward"} if named else None)
