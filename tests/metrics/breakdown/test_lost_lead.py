"""Late launches are due to a wait after it, for as long as it took from the host's lead, until the queue is filled."""

from __future__ import annotations

import numpy as np
import pytest

from deepprof.metrics.breakdown.timeline import find_due, find_filled
from deepprof.metrics.spans import NOTHING, Spans, intersect, union

NEVER_FILLED = np.empty(0, np.int64)
LATE = [(0, 10), (40, 60), (70, 90), (200, 220)]
BUSY = [(10, 40), (60, 70), (90, 200)]


def spans(*pairs: tuple[int, int]) -> Spans:
    return union(*np.array(pairs, np.int64).reshape(-1, 2).T)


def due(*waits: tuple[int, int], filled: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    waiting = spans(*waits)
    found = find_due(spans(*LATE), waiting.starts, waiting.ends, spans(*BUSY), np.array(filled, np.int64))
    found = intersect(spans(*LATE), found)
    return list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))


def test_without_waits_or_late_launches_nothing_is_due() -> None:
    assert due() == []
    assert find_due(NOTHING, *np.array([[0], [9]]), spans(*BUSY), NEVER_FILLED) == spans((0, 9))


def test_as_much_is_due_as_the_host_waited_for_a_busy_device() -> None:
    assert due((15, 40)) == [(40, 60), (70, 75)]
    assert due((39, 40)) == [(40, 41)]
    assert due((10, 40)) == [(40, 60), (70, 80)]


def test_late_launches_before_the_first_wait_and_after_the_queue_is_filled_are_the_hosts_own() -> None:
    assert due((100, 200)) == [(200, 220)]
    assert due((10, 40), filled=(20, 55)) == [(40, 55)]


def test_lead_that_is_left_at_the_next_wait_is_kept_until_the_queue_is_filled() -> None:
    assert due((10, 40), (65, 70), (199, 200)) == [(40, 60), (70, 85), (200, 201)]
    assert due((10, 40), (65, 70), filled=(62,)) == [(40, 60), (70, 75)]


def test_what_is_late_within_a_wait_is_due_to_it() -> None:
    assert due((2, 8)) == [(2, 8)]


@pytest.mark.parametrize(("start", "filled"), [(2_000_005, []), (2_000_006, [5])])
def test_a_queue_is_filled_where_launches_begin_much_later(start: int, filled: list[int]) -> None:
    assert find_filled(np.array([5]), np.array([start])).tolist() == filled
