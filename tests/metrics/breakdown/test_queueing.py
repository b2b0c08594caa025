"""What is saved without some of the device's work, against a schedule that is played twice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from deepprof.metrics.breakdown.costs import spans_of_parts
from deepprof.metrics.breakdown.gaps import LATENCY_NS
from deepprof.metrics.breakdown.queueing import bound_savings, saved_without
from deepprof.metrics.spans import NOTHING, union
from tests.deepprof.diagnosis.loops import Job, Work, compute

MS = 1_000_000


@dataclass(frozen=True)
class Step:
    """What the host does for `host_ms`, and then launches: work of `device_ms`, or a wait where that is None."""

    host_ms: int
    device_ms: int | None
    removed: bool = False


@dataclass
class Played:
    """When each launch was and ran, the waits, and when the device was done."""

    launches: list[tuple[int, int, int, bool]]
    waits: list[tuple[int, int]]
    done: int


def play(steps: list[Step], *, without: bool = False) -> Played:
    """One stream and one host, which waits for all that it launched."""
    host = device = 0
    played = Played([], [], 0)
    for step in steps:
        host += step.host_ms * MS
        if step.device_ms is None:
            played.waits.append((host, max(host, device)))
            host = max(host, device)
            continue
        start = max(device, host + LATENCY_NS)
        length = 0 if without and step.removed else step.device_ms * MS
        if length:
            device = start + length
        played.launches.append((host, start, start + length, step.removed))
    played.done = max(device, host)
    return played


def saved(steps: list[Step]) -> int:
    played = play(steps)
    kernels = np.array([(start, at) for at, start, _, removed in played.launches if not removed], np.int64)
    gone = np.array([(start, end) for _, start, end, removed in played.launches if removed], np.int64).reshape(-1, 2)
    waits = np.array(played.waits, np.int64).reshape(-1, 2)
    starts, launches = kernels.reshape(-1, 2).T
    return bound_savings(union(*gone.T), union(*waits.T), starts, launches)


STEPS = st.lists(
    st.one_of(
        st.builds(Step, st.integers(0, 6), st.integers(1, 8), st.booleans()),
        st.builds(Step, st.integers(1, 6), st.none()),
    ),
    max_size=24,
)


@given(STEPS)
def test_it_is_what_the_same_schedule_takes_less(steps: list[Step]) -> None:
    ends = [*steps, Step(1, 1), Step(1, None)]  # the device is waited for, and does something then
    less = play(ends).done - play(ends, without=True).done
    assert saved(ends) == pytest.approx(less, abs=(len(ends) + 1) * 2 * LATENCY_NS)


BUSY, LATE = Step(1, 5), Step(5, 1)
COPY, WAIT = Step(1, 20, removed=True), Step(1, None)


def test_all_of_it_is_saved_where_the_host_is_ahead() -> None:
    assert saved([COPY, *[BUSY] * 8, WAIT]) == pytest.approx(19 * MS, rel=0.01)  # the first was queued as long


def test_nothing_is_saved_where_every_kernel_is_launched_just_in_time() -> None:
    assert saved([COPY, *[LATE] * 8, WAIT]) == pytest.approx(0, abs=0.1 * MS)


def test_what_is_saved_before_a_wait_is_saved_for_good() -> None:
    assert saved([COPY, WAIT, *[LATE] * 8, WAIT]) == pytest.approx(19 * MS, rel=0.01)


def test_a_launch_that_takes_long_waits_for_room() -> None:
    """The host is always one kernel ahead: what it launches next is kept until there is room for it."""
    copy = Work(50_000, 70_000, None, "Memcpy HtoD", 9, "memcpy", {"copy_kind": "HtoD", "nbytes": 1})
    ahead = Job(100_000, [compute(50_000, launched=-95_000), copy])
    loop, trace = ahead.build()
    spans = spans_of_parts(loop, ("exposed_htod_ns",))
    assert saved_without(loop, trace, spans) == pytest.approx(95 * MS / 6, rel=0.01)  # launches come at their own pace
    launches = trace.host_events.with_columns(end_ns=pl.col("start_ns") + 60 * MS)
    assert saved_without(loop, structs.replace(trace, host_events=launches), spans) == pytest.approx(20 * MS, rel=0.01)


def test_what_nobody_knows_to_be_queued_is_not_bounded() -> None:
    copy = Work(50_000, 70_000, None, "Memcpy HtoD", 9, "memcpy", {"copy_kind": "HtoD", "nbytes": 1})
    loop, trace = Job(100_000, [compute(50_000, launched=None), copy]).build()
    assert saved_without(loop, trace, spans_of_parts(loop, ("exposed_htod_ns",))) is None


def test_a_kernel_with_a_wrong_link_bounds_nothing() -> None:
    copy = Work(50_000, 70_000, None, "Memcpy HtoD", 9, "memcpy", {"copy_kind": "HtoD", "nbytes": 1})
    ahead = [Work(5_000 * at, 5_000 * at + 5_000, -10_000_000) for at in range(1, 9)]
    wrong = replace(ahead[-1], start=90_000, end=91_000, launched=90_500)  # after it began
    loop, trace = Job(100_000, [compute(5_000, launched=-10_000_000), *ahead, copy, wrong]).build()
    saved_ns = saved_without(loop, trace, spans_of_parts(loop, ("exposed_htod_ns",)))
    assert saved_ns == pytest.approx(20 * MS, rel=0.01)


def test_nothing_removed_saves_nothing() -> None:
    assert bound_savings(NOTHING, NOTHING, np.array([5 * MS]), np.array([0])) == 0


def test_without_a_kernel_all_is_saved() -> None:
    none = np.empty(0, np.int64)
    assert bound_savings(union(np.array([3]), np.array([9])), NOTHING, none, none) == 6
