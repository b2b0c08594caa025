"""`communication-bound`: collectives that nothing hides."""

from __future__ import annotations

import pytest

from deepprof.diagnosis.rules.communication_bound import communication_bound
from tests.deepprof.diagnosis.loops import Job, Work, compute

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_exposed_and_hidden_time_and_the_largest_collective() -> None:
    work = [compute(60_000), Work(40_000, 80_000, 1, REDUCE, 20), Work(85_000, 90_000, 2, GATHER, 20)]
    (found,) = Job(100_000, work).found(communication_bound)
    assert found.severity == "warning"
    assert found.headroom_ns_per_iteration == 25_000_000
    assert found.evidence["communication_ns_per_iteration"] == 45_000_000
    assert found.evidence["hidden_ratio"] == pytest.approx(20 / 45, abs=1e-4)
    assert found.evidence["collectives_per_iteration"] == 2
    assert found.location == {"kernel": REDUCE}
    assert "44 % of the 45.0 ms" in found.summary


def test_collectives_that_overlap_each_other_count_once() -> None:
    work = [compute(60_000), Work(60_000, 80_000, 1, REDUCE, 20), Work(60_000, 80_000, 2, GATHER, 21)]
    (found,) = Job(100_000, work).found(communication_bound)
    assert found.evidence["communication_ns_per_iteration"] == 20_000_000
    assert found.evidence["hidden_ratio"] == 0


def test_hidden_communication_is_no_matter() -> None:
    assert Job(100_000, [compute(99_000), Work(1_000, 98_000, 1, REDUCE, 20)]).found(communication_bound) == []


def test_a_copy_under_it_does_not_hide_it() -> None:
    copy = Work(60_000, 90_000, None, "Memcpy DtoH", 9, "memcpy", {"copy_kind": "DtoH"})
    (found,) = Job(100_000, [compute(60_000), Work(60_000, 80_000, 1, REDUCE, 20), copy]).found(communication_bound)
    assert found.headroom_ns_per_iteration == 20_000_000
