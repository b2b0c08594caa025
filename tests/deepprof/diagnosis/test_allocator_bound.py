"""`allocator-bound`: the device idles in calls that allocate and free its memory."""

from __future__ import annotations

import pytest

from deepprof.diagnosis.rules.allocator_bound import allocator_bound
from tests.deepprof.diagnosis.loops import Did, Job, compute


@pytest.mark.parametrize(
    "names", [("cudaMalloc", "cudaFree"), ("hipMalloc_v3", "hipFree"), ("cuMemAlloc_v2", "cuMemFree_v2")]
)
def test_calls_are_counted_and_the_place_is_named(names: tuple[str, str]) -> None:
    calls = [Did(names[0], 70_000, 75_000), Did(names[1], 59_000, 66_000), Did("aten::empty", 55_000, 80_000, "op")]
    (found,) = Job(100_000, [compute(60_000)], calls).found(allocator_bound)
    assert found.severity == "warning"
    assert found.headroom_ns_per_iteration == 11_000_000  # a millisecond of the free is hidden
    assert found.evidence["allocations_per_iteration"] == 2
    assert found.location == {"operator": "aten::empty"}
    assert "2.0 calls per iteration" in found.summary


def test_another_threads_allocations_hold_nothing_up() -> None:
    assert Job(100_000, [compute(60_000)], [Did("cudaMalloc", 60_000, 95_000, thread=2)]).found(allocator_bound) == []


def test_allocations_while_the_device_is_busy_cost_nothing() -> None:
    assert Job(100_000, [compute(99_000)], [Did("cudaMalloc", 0, 98_000)]).found(allocator_bound) == []
