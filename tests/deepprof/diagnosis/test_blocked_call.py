"""`blocked-call`: a call of milliseconds among those of microseconds, in a loop."""

from __future__ import annotations

from dataclasses import replace

from deepprof.diagnosis.rules.blocked_call import blocked_call
from deepprof.diagnosis.rules.launch_bound import launch_bound
from tests.deepprof.diagnosis.loops import START_US, Did, Job, Work

BUSY = [Work(100 * i, 100 * i + 90, 100 * i - START_US) for i in range(10)]
EVENT = "cudaEventRecord"


def blocked(until: float) -> Job:
    """Return iterations of 2 ms with 1 ms of work, between which a call lasts from 1 ms to `until`."""
    short = [Did(EVENT, 100 * i + 20, 100 * i + 24) for i in range(9)]
    return Job(2_000, BUSY, [*short, Did(EVENT, 1_000, until)])


def test_a_call_that_takes_a_hundred_times_as_long_as_others_is_named() -> None:
    (found,) = blocked(1_900).found(blocked_call)
    assert found.severity == "critical"
    assert found.title == f"The host is blocked in {EVENT}"
    assert found.location == {"call": EVENT}
    assert found.evidence["longest_ns"] == 900_000
    assert f"most of it in {EVENT}: 6 calls, up to 0.900 ms" in found.summary


def test_the_same_time_in_many_short_calls_is_none() -> None:
    assert blocked(1_004).found(blocked_call) == []
    late = [replace(work, start=2 * work.start, end=2 * work.start + 90, launched=2 * work.start - 5) for work in BUSY]
    job = Job(2_000, late)
    assert job.found(blocked_call) == []
    assert len(job.found(launch_bound)) == 1


def test_short_and_empty_input() -> None:
    for count in (1, 2):
        assert all(f.evidence["blocked_calls"] for f in replace(blocked(1_900), iterations=count).found(blocked_call))
    assert Job(1_000, BUSY, iterations=1).found(blocked_call) == []
