"""The idle gaps of a device: where they are, what ends them, and what the latency of a launch is."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.breakdown.gaps import BETWEEN_NS, Endings, find_between, find_gaps, shortest_latency

US = 1_000
EVENTS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(1, 3)), max_size=9)


def work(events: list[tuple[int, int, int]], launches: list[int | None] | None = None) -> pl.DataFrame:
    """Return (start, length, stream) as the rows that `find_gaps` reads."""
    ordered = sorted(events, key=lambda e: e[0])
    begun = launches if launches is not None else [None] * len(ordered)
    return pl.DataFrame(
        {
            "start_ns": [e[0] for e in ordered],
            "end_ns": [e[0] + e[1] for e in ordered],
            "stream": [e[2] for e in ordered],
            "launch_ns": begun,
            "launched_ns": [None if t is None else t + 2 for t in begun],
        },
        schema=dict.fromkeys(("start_ns", "end_ns", "stream", "launch_ns", "launched_ns"), pl.Int64),
    )


def gaps(found: Endings) -> list[tuple[int, int]]:
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


@given(EVENTS)
def test_gaps_are_the_time_that_no_event_covers(events: list[tuple[int, int, int]]) -> None:
    found = find_gaps(work(events))
    busy = {t for start, length, _ in events for t in range(start, start + length)}
    first, last = min((e[0] for e in events), default=0), max((e[0] + e[1] for e in events), default=0)
    idle = [t for start, end in gaps(found) for t in range(start, end)]
    assert sorted(idle) == sorted(set(range(first, last)) - busy)
    starts = {start for start, _, _ in events}
    assert all(end in starts and end > start for start, end in gaps(found))


@given(EVENTS)
def test_a_gap_knows_whether_the_last_work_ran_on_the_stream_that_goes_on(events: list[tuple[int, int, int]]) -> None:
    found = find_gaps(work(events))
    ordered = sorted(events, key=lambda e: e[0])
    for i, (start, end) in enumerate(gaps(found)):
        before = [e for e in ordered if e[0] < end and e[0] + e[1] == start]
        ending = next(e for e in ordered if e[0] == end)
        assert found.stream[i] == ending[2]
        assert found.same[i] == (before[-1][2] == ending[2])


@pytest.mark.parametrize("events", [[], [(5, 3, 1)], [(5, 0, 1)]], ids=["none", "one", "one without length"])
def test_fewer_than_two_events_leave_no_gap(events: list[tuple[int, int, int]]) -> None:
    assert gaps(find_gaps(work(events))) == []


def test_the_event_that_ends_a_gap_brings_its_launch() -> None:
    found = find_gaps(work([(0, 10, 1), (50, 10, 1), (90, 10, 2)], [None, 30, None]))
    assert gaps(found) == [(10, 50), (60, 90)]
    assert found.linked.tolist() == [True, False]
    assert (found.launch_ns[0], found.launched_ns[0]) == (30, 32)


def test_the_latency_is_the_shortest_that_comes_up_often_enough() -> None:
    assert shortest_latency(np.array([4 * US] * 10 + [900 * US] * 90)) == 4 * US
    assert shortest_latency(np.array([20 * US] * 9)) == 20 * US


def test_without_a_likely_latency_there_is_a_usual_one() -> None:
    assert shortest_latency(np.array([], np.int64)) == 10 * US
    assert shortest_latency(np.array([20 * US + 1] * 9)) == 10 * US  # the queue was never empty
    assert shortest_latency(np.array([900_000 * US])) == 10 * US


def test_a_device_clock_behind_the_hosts_gives_a_negative_latency() -> None:
    assert shortest_latency(np.array([-40 * US] * 9)) == -40 * US


def test_between_two_queued_kernels_the_device_takes_its_median_time() -> None:
    queued = [(i * 10 * US + (i % 3) * 100, 8 * US, 1) for i in range(12)]
    assert find_between(work(queued, [-900 * US] * 12)) == 2 * US + 100
    assert find_between(work(queued[:10], [-900 * US] * 10)) == BETWEEN_NS  # of nine pairs
    assert find_between(work(queued, [start - 5 * US for start, _, _ in queued])) == BETWEEN_NS  # launched just in time
    assert find_between(work(queued)) == BETWEEN_NS
