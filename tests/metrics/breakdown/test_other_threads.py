"""What launching threads wait for in other threads of their process."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from deepprof.metrics.breakdown.host_states import HostStates, read_states
from deepprof.metrics.breakdown.other_threads import AwaitedThread, find_awaited
from deepprof.metrics.spans import NOTHING, union
from tests.metrics.breakdown.test_host_states import launches
from tests.metrics.breakdown.test_places import MAIN, SPANS, frame
from tests.tables import Row, make_trace, span

WORK, GET, MAIN_FRAME = "metrics.py(5): gather", "queue.py(154): get", "train.py(3): step"


def every(name: int, begin: int, length: int, **more: int | str) -> list[Row]:
    """Return a frame in each of ten sections of 100 ns; another thread than the launching one is 9."""
    return [frame(name, at + begin, at + begin + length) | more for at in range(0, 1_000, 100)]


def silent() -> HostStates:
    """Return a launching thread that makes no call in the first half of every section."""
    trace = make_trace([], [], [], [])
    other = union(np.arange(0, 1_000, 100), np.arange(0, 1_000, 100) + 50)
    return replace(read_states(trace, launches(0)), threads=MAIN, other=other)


def awaited(names: list[str], *rows: list[Row]) -> AwaitedThread | None:
    return find_awaited(make_trace([], [each for some in rows for each in some], [], names), SPANS, silent())


def test_a_thread_that_works_exactly_while_the_launching_one_shows_nothing() -> None:
    assert awaited([WORK], every(0, 0, 42, thread=9)) == AwaitedThread(None, {"frame": WORK})


def test_a_thread_that_works_all_the_time_is_not_waited_for() -> None:
    assert awaited([WORK], every(0, 0, 95, thread=9)) is None


def test_it_may_begin_while_the_device_still_works() -> None:
    spans = union(np.arange(20, 1_000, 100), np.arange(20, 1_000, 100) + 30)
    trace = make_trace([], every(0, 0, 49, thread=9), [], [WORK])
    assert find_awaited(trace, spans, silent()) == AwaitedThread(None, {"frame": WORK})


def test_a_thread_that_works_in_half_of_the_time_is_not_waited_for() -> None:
    assert awaited([WORK], every(0, 0, 25, thread=9)) is None


def test_a_launching_thread_that_works_itself_waits_for_none() -> None:
    assert awaited([WORK, MAIN_FRAME], every(0, 0, 42, thread=9), every(1, 0, 45)) is None


def test_other_processes_are_not_waited_for() -> None:
    assert awaited([WORK], every(0, 0, 42, thread=9, process=77)) is None


@pytest.mark.parametrize(
    "name",
    ["pthread_mutex_lock", "pthread_cond_wait", "sem_wait", GET, "<method 'acquire' of '_thread.lock' objects>"],
)
def test_a_thread_in_a_lock_waits_though_the_other_works_longer(name: str) -> None:
    kind, word = ("python", "frame") if "(" in name or "<" in name else ("other", "call")
    locks = every(0, 0, 40, category=kind)
    assert awaited([name, WORK], locks, every(1, 0, 70, thread=9)) == AwaitedThread({word: name}, {"frame": WORK})
    alone = AwaitedThread({word: name}, None) if name == "pthread_mutex_lock" else None
    assert awaited([name], locks) == alone  # the others wait where there is nothing to do, too


def test_short_locks_explain_nothing() -> None:
    assert awaited(["pthread_mutex_lock"], every(0, 0, 10, category="other")) is None


def test_frames_of_one_wait_are_counted_once_and_the_outermost_is_named() -> None:
    inner = "threading.py(355): wait"
    works = every(2, 0, 40, thread=9)
    found = awaited([GET, inner, WORK], every(0, 0, 40), every(1, 1, 39), works)
    assert found == AwaitedThread({"frame": GET}, {"frame": WORK})


def test_a_thread_that_calls_backward_waits_for_the_engines() -> None:
    ranges = [span(0, at, at + 40) for at in range(0, 1_000, 100)]
    trace = make_trace([], every(1, 0, 30, thread=9, category="op"), ranges, ["## backward ##", "aten::mm"])
    assert find_awaited(trace, SPANS, silent()) == AwaitedThread({"range": "## backward ##"}, {"operator": "aten::mm"})
    alone = make_trace([], [], ranges, ["## backward ##"])
    assert find_awaited(alone, SPANS, silent()) == AwaitedThread({"range": "## backward ##"}, None)


def test_a_thread_that_works_in_its_backward_range_waits_for_none() -> None:
    ranges = [span(0, at, at + 40) for at in range(0, 1_000, 100)]
    works = every(1, 0, 10, category="op")
    assert find_awaited(make_trace([], works, ranges, ["backward", "aten::mm"]), SPANS, silent()) is None


def test_without_threads_or_time_nothing_is_known() -> None:
    trace = make_trace([], every(0, 0, 42, thread=9), [], [WORK])
    assert find_awaited(trace, SPANS, None) is None
    assert find_awaited(trace, NOTHING, silent()) is None
    assert find_awaited(make_trace(), SPANS, silent()) is None
