"""`sync-bound` and `launch-bound`: whether the host waited, or was too slow."""

from __future__ import annotations

import pytest

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.launch_bound import launch_bound
from deepprof.diagnosis.rules.sync_bound import sync_bound
from deepprof.metrics.breakdown.gaps import BETWEEN_NS
from tests.deepprof.diagnosis.loops import START_US, Did, Job, Work

LENGTH = 2_000


def steps(busy: float, *, step: float = 200) -> list[Work]:
    """Return ten kernels, one every `step` µs, each launched just before it begins."""
    return [Work(step * i, step * i + busy, step * i - START_US) for i in range(10)]


def waits(until: float, count: int = 10, *, name: str = "cudaStreamSynchronize", thread: int = 1) -> list[Did]:
    """Return a wait for each of the first `count` kernels."""
    return [Did(name, 200 * i, 200 * i + until, thread=thread) for i in range(count)]


def both(job: Job) -> dict[str, Finding]:
    """Return what either rule states."""
    return {f.rule: f for rule in (sync_bound, launch_bound) for f in job.found(rule)}


def test_a_host_that_never_waits_is_too_slow() -> None:
    found = both(Job(LENGTH, steps(100)))
    assert list(found) == ["launch-bound"]
    launch = found["launch-bound"]
    assert (launch.severity, launch.headroom_ns_per_iteration) == ("critical", 1_000_000 - 10 * BETWEEN_NS)
    assert launch.evidence["launches_per_iteration"] == 10
    assert launch.evidence["host_ns_per_launch"] == 100_000
    assert "10 launches per iteration, each 100.0 µs too late on average" in launch.summary


def test_what_the_device_itself_takes_between_kernels_cannot_be_saved() -> None:
    slow = [Work(2 * i, 2 * i + 0.2, 2 * i - 1) for i in range(1_000)]
    launch = both(Job(LENGTH, slow))["launch-bound"]
    assert launch.evidence["cost_ns_per_iteration"] == 1_000 * 1_800
    assert launch.headroom_ns_per_iteration == 1_000 * 1_800 - 1_000 * BETWEEN_NS
    assert launch.evidence["saved_ratio"] == 0.4
    assert launch.summary.endswith("1.0 ms of that would stay: the device itself needs time between two kernels.")


def test_a_device_that_takes_nearly_all_of_the_time_between_kernels_is_no_slow_host() -> None:
    slow = [Work(2 * i, 2 * i + 0.9, 2 * i - 1) for i in range(1_000)]
    assert both(Job(LENGTH, slow)) == {}


def test_the_operator_in_which_most_of_the_time_is_spent_is_named() -> None:
    items = [Did("aten::embedding", 200 * i + 60, 200 * i + 199, "op") for i in range(10)]
    found = both(Job(LENGTH, steps(100), items))["launch-bound"]
    assert found.title == "The host launches too slowly, most of the time in aten::embedding"
    assert found.advice.startswith("Look at aten::embedding first. Launch less")
    elsewhere = [Did("aten::embedding", 200 * i + 60, 200 * i + 199, "op", thread=9) for i in range(10)]
    found = both(Job(LENGTH, steps(100), elsewhere))["launch-bound"]
    assert found.title == "The host launches too slowly: the device's queue is empty"


def test_a_host_that_waits_for_every_kernel_could_have_launched_ahead() -> None:
    found = both(Job(LENGTH, steps(100), waits(110)))
    assert list(found) == ["sync-bound"]
    sync = found["sync-bound"]
    assert (sync.severity, sync.headroom_ns_per_iteration) == ("critical", 1_000_000 - 10 * BETWEEN_NS)
    assert sync.evidence["waits_per_iteration"] == 10
    assert sync.evidence["waiting_ns_per_iteration"] == 1_100_000
    assert sync.evidence["idle_after_waits_ns_per_iteration"] == 10 * 100 * 1_000
    assert sync.location == {"call": "cudaStreamSynchronize"}


def test_a_short_wait_is_no_excuse_for_launching_late_all_the_time() -> None:
    # Of 1,000 µs of idle time 50 are within the one wait, and 90 are the lead that it needs: too little to be told.
    found = both(Job(LENGTH, steps(100), [Did("cudaStreamSynchronize", -50, 90)]))
    assert list(found) == ["launch-bound"]
    assert found["launch-bound"].evidence["cost_ns_per_iteration"] == 860_000


def test_the_operator_that_waits_is_named() -> None:
    items = [Did("aten::item", 200 * i - 1, 200 * i + 112, "op") for i in range(10)]
    found = both(Job(LENGTH, steps(100), [*waits(110), *items]))["sync-bound"]
    assert found.location == {"call": "cudaStreamSynchronize", "operator": "aten::item"}
    assert "in aten::item" in found.summary


@pytest.mark.parametrize("name", ["cudaMemcpy_v3020", "hipStreamSynchronize", "cuStreamSynchronize", "cudaMemcpyAsync"])
def test_a_wait_is_a_wait_under_any_name(name: str) -> None:
    found = both(Job(LENGTH, steps(100), waits(110, name=name)))
    assert found["sync-bound"].location == {"call": name}


def test_a_watchdog_that_synchronizes_all_day_neither_counts_nor_is_named() -> None:
    watchdog = [Did("cudaEventSynchronize", 0, 1_999, thread=9)]
    assert list(both(Job(LENGTH, steps(100), watchdog))) == ["launch-bound"]
    found = both(Job(LENGTH, steps(100), [*watchdog, *waits(110)]))
    assert found["sync-bound"].location == {"call": "cudaStreamSynchronize"}


def test_waits_that_the_device_does_not_notice_are_no_matter() -> None:
    ahead = [Work(200 * i, 200 * i + 199, 200 * i - 900) for i in range(10)]
    assert both(Job(LENGTH, ahead, waits(150))) == {}


def test_one_wait_for_many_iterations_is_none_of_the_loop() -> None:
    rare = [Did("cudaStreamSynchronize", 0, 110, every=3)]
    assert list(both(Job(LENGTH, steps(100), rare, iterations=13))) == ["launch-bound"]


def test_without_launch_records_neither_is_guessed() -> None:
    unlinked = [Work(200 * i, 200 * i + 100) for i in range(10)]
    assert both(Job(LENGTH, unlinked, waits(110))) == {}
