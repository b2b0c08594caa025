"""`small-kernels`: short kernels that are queued in time, and the pauses before them."""

from __future__ import annotations

import pytest

from deepprof.diagnosis.rules.small_kernels import small_kernels
from tests.deepprof.diagnosis.loops import Job, Work


def row(count: int, each: float, step: float, length: float = 1_000, beside: list[Work] | None = None) -> Job:
    """Return iterations of `count` kernels of `each` µs, one every `step` µs, all launched long before."""
    kernels = [Work(step * i, step * i + each, i - 900) for i in range(count)]
    return Job(length, [*kernels, Work(step * count, length - 10, -700), *(beside or [])])


def test_short_kernels_and_the_pauses_between_them_are_added_up() -> None:
    (found,) = row(60, 3, 10).found(small_kernels)
    assert (found.rule, found.severity) == ("small-kernels", "warning")
    assert found.evidence["short_kernels_per_iteration"] == 60
    assert found.evidence["short_kernels_ns_per_iteration"] == 180_000
    assert found.evidence["startup_ns_per_iteration"] == 60 * 7_000 + 10_000  # and the pause at the end
    assert found.evidence["cost_ns_per_iteration"] == 610_000
    assert found.evidence["median_short_kernel_ns"] == 3_000
    assert found.headroom_ns_per_iteration == 430_000
    assert "60 kernels" in found.summary
    assert "3.0 µs" in found.summary


@pytest.mark.parametrize(("count", "fires"), [(49, False), (50, True)])
def test_a_few_short_kernels_are_no_matter(count: int, fires: bool) -> None:
    assert bool(row(count, 3, 10).found(small_kernels)) == fires


@pytest.mark.parametrize(("each", "fires"), [(5.9, True), (6.0, False)])
def test_kernels_of_six_microseconds_are_long_enough(each: float, fires: bool) -> None:
    assert bool(row(60, each, 10).found(small_kernels)) == fires


@pytest.mark.parametrize(("startup", "severity"), [(89, None), (90, "warning"), (489, "warning"), (490, "critical")])
def test_limits_on_the_share(startup: int, severity: str | None) -> None:
    # 70 kernels of 3 µs use 210 of 1,000 µs, the pauses the rest.
    kernels, at = list[Work](), 0.0
    for i in range(70):
        kernels.append(Work(at, at + 3, i - 900))
        at += 3 + (startup - 10) / 70
    found = Job(1_000, [*kernels, Work(at, 990, -700)]).found(small_kernels)
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_kernels_beside_a_longer_one_cost_nothing() -> None:
    long = [Work(0, 980, -950, "gemm", 20)]
    assert row(90, 5, 10).found(small_kernels) != []
    assert row(90, 5, 10, beside=long).found(small_kernels) == []


def test_short_kernels_on_several_streams_count_their_time_once() -> None:
    twins = [Work(10 * i, 10 * i + 2, i - 900, stream=20) for i in range(60)]
    (found,) = row(60, 3, 10, beside=twins).found(small_kernels)
    assert found.evidence["short_kernels_per_iteration"] == 120
    assert found.evidence["short_kernels_ns_per_iteration"] == 180_000


def test_kernels_that_are_launched_too_late_are_not_its_matter() -> None:
    late = [Work(10 * i, 10 * i + 3, 10 * i - 5) for i in range(60)]
    found = Job(1_000, [*late, Work(600, 990, -700)]).found(small_kernels)
    assert found == []
