"""A process's clock on the Unix clock: drift followed, never backward, steps told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.agent.clocks import STEP_NS, ClockFollower

SECOND = 10**9
UNIX = 1_800_000_000 * SECOND


def test_constant_offset_is_exact() -> None:
    clock = ClockFollower()
    for number in range(10):
        assert not clock.tick(number * SECOND, UNIX + number * SECOND)
    times = np.array([0, 1, 5 * SECOND + 7, 9 * SECOND, 12 * SECOND], np.int64)
    assert (clock.to_unix(times) == times + UNIX).all()
    assert clock.to_local(UNIX + 5 * SECOND + 7) == 5 * SECOND + 7


def test_without_a_tick_there_is_no_time() -> None:
    clock = ClockFollower()
    assert not clock.is_set
    with pytest.raises(ValueError, match="no tick"):
        clock.to_unix(np.zeros(1, np.int64))


def test_drift_is_followed() -> None:
    clock, drift = ClockFollower(), 20e-6  # 20 ppm: 72 ms in an hour
    for number in range(3600):
        local = number * SECOND
        clock.tick(local, UNIX + local + int(local * drift))
    late = 3599 * SECOND
    assert abs(clock.one(late) - (UNIX + late + int(late * drift))) < 1000


def test_step_ahead_is_told_and_taken() -> None:
    clock = ClockFollower()
    clock.tick(0, UNIX)
    assert clock.tick(SECOND, UNIX + SECOND + 3600 * SECOND)
    assert clock.steps == 1
    assert clock.one(2 * SECOND) == UNIX + 3602 * SECOND


def test_step_back_is_left_out_until_it_is_made_good() -> None:
    clock = ClockFollower()
    clock.tick(0, UNIX)
    assert not clock.tick(SECOND, UNIX + SECOND - 10 * SECOND)
    assert clock.one(2 * SECOND) == UNIX + 2 * SECOND
    assert clock.behind_ns == 10 * SECOND
    assert not clock.tick(3 * SECOND, UNIX + 3 * SECOND)  # set right again
    assert clock.behind_ns == 0
    assert clock.one(4 * SECOND) == UNIX + 4 * SECOND


@given(st.lists(st.tuples(st.integers(1, 5 * SECOND), st.integers(-(10**12), 10**12)), max_size=30), st.data())
def test_times_stay_in_order_whatever_the_clocks_do(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    clock, local, offset = ClockFollower(), 0, UNIX
    clock.tick(local, offset)
    given_last = clock.one(local)
    for passed, moved in steps:
        local, offset = local + passed, offset + (moved if abs(moved) > STEP_NS * 10 else moved // 10**9)
        clock.tick(local, local + offset)
        times = np.sort(np.array(data.draw(st.lists(st.integers(local - passed, local), min_size=2, max_size=8))))
        mapped = clock.to_unix(times)
        assert (np.diff(mapped) >= 0).all()
        assert clock.one(local) >= given_last  # what was promised at the tick before contains
        given_last = clock.one(local)
        assert abs(clock.one(clock.to_local(given_last)) - given_last) <= 2
