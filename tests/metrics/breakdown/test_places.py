"""The place of a cost: the narrowest thing around most of it that is not open all the time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from deepprof.metrics.breakdown.program_places import find_calls, find_place
from deepprof.metrics.spans import NOTHING, Spans, union
from tests.tables import Row, launch, make_trace, span

SPANS = union(np.arange(0, 1_000, 100), np.arange(0, 1_000, 100) + 40)  # ten spans of 40 ns, 60 ns apart
ONE = union(np.array([100]), np.array([140]))
MAIN = pl.DataFrame({"process": [1], "thread": [1]})


def place(names: list[str], ranges: list[Row], host: Sequence[Row] = (), spans: Spans = SPANS) -> object:
    return find_place(make_trace([], host, ranges, names), spans)


def frame(name: int, start: int, end: int, category: str = "python", thread: int = 1) -> Row:
    return launch(0, start, end, name) | {"category": category, "correlation": None, "thread": thread}


def every(name: int, start: int, end: int, step: int = 1) -> list[Row]:
    """Return a range in every `step`th period of 100 ns."""
    return [span(name, at + start, at + end) for at in range(0, 1_000, 100 * step)]


def test_no_time_has_no_place() -> None:
    assert place(["a"], every(0, 0, 50), spans=NOTHING) is None
    assert place([], []) is None


def test_half_of_the_time_is_enough_and_less_is_not() -> None:
    assert place(["load"], every(0, 20, 60)) == {"range": "load"}
    assert place(["load"], every(0, 21, 60)) is None
    assert place(["load"], every(0, 0, 40, step=2)) == {"range": "load"}


def test_the_shortest_around_wins() -> None:
    assert place(["outer", "inner"], [*every(0, 0, 90), *every(1, 0, 45)]) == {"range": "inner"}


def test_nested_ranges_of_one_name_count_once() -> None:
    assert place(["load", "part"], [*every(0, 0, 50), *every(1, 0, 19), *every(1, 1, 18)]) == {"range": "load"}


def test_what_is_open_all_the_time_is_no_place() -> None:
    assert place(["train"], [span(0, -500, 2_000)]) is None
    assert place(["step"], every(0, 0, 99)) is None
    assert place(["step"], every(0, 0, 90)) == {"range": "step"}  # 50 of the 60 ns between the spans


def test_waits_that_fill_nearly_all_the_time_have_a_place_too() -> None:
    starts = np.arange(0, 1_000, 100)
    nearly_all = union(starts, starts + 97)
    assert place(["enumerate(DataLoader)", "train"], [*every(0, 0, 98), span(1, 0, 2_000)], spans=nearly_all) == {
        "range": "enumerate(DataLoader)"
    }


def test_a_single_span_has_the_place_that_fits_it() -> None:
    ranges = [span(0, 95, 150), span(1, 0, 1_000)]
    assert place(["load", "train"], ranges, spans=ONE) == {"range": "load"}
    assert place(["load", "train"], ranges[1:], spans=ONE) is None


def test_step_markers_are_open_all_the_time_together() -> None:
    two = union(np.array([0, 100]), np.array([40, 140]))
    steps = [span(0, 0, 100), span(1, 100, 200)]
    assert place(["ProfilerStep#4", "ProfilerStep#5"], steps, spans=two) is None


def test_ranges_numbered_by_iteration_are_one_place() -> None:
    ranges = [span(i, 100 * i, 100 * i + 40) for i in range(10)]
    assert place([f"load batch {i}" for i in range(10)], ranges) == {"range": "load batch 0"}


def test_the_innermost_of_many_frames_is_found() -> None:
    stack = [frame(i, at - 30 + i, at + 69 - i) for at in range(0, 1_000, 100) for i in range(30)]
    names = [f"fit.py({i}): call" for i in range(30)]
    assert place(names, [], stack) == {"frame": "fit.py(29): call"}


def test_operators_and_frames_stand_beside_the_range() -> None:
    host = [frame(1, at, at + 45, "op") for at in range(0, 1_000, 100)]
    host += [frame(2, at, at + 50) for at in range(0, 1_000, 100)]
    expected = {"range": "a", "operator": "aten::item", "frame": "train.py(3): step"}
    assert place(["a", "aten::item", "train.py(3): step"], every(0, 0, 60), host) == expected


def test_marks_and_open_ranges_are_no_places() -> None:
    assert place(["mark"], every(0, 20, 20)) is None
    assert place(["open"], [span(0, 0, 0) | {"end_ns": None}]) is None


def test_launching_threads_come_first_and_others_are_better_than_nothing() -> None:
    logger = [frame(0, at, at + 41, thread=9) for at in range(0, 1_000, 100)]
    main = [frame(1, at, at + 60) for at in range(0, 1_000, 100)]
    trace = make_trace([], [*logger, *main], [], ["logger.py(1): write", "train.py(3): step"])
    assert find_place(trace, SPANS, MAIN) == {"frame": "train.py(3): step"}
    assert find_place(trace, SPANS) == {"frame": "logger.py(1): write"}
    alone = make_trace([], logger, [], ["logger.py(1): write"])
    assert find_place(alone, SPANS, MAIN) == {"frame": "logger.py(1): write"}


def test_the_call_that_takes_longest_is_the_place() -> None:
    calls = [launch(1, 0, 10, 0), launch(2, 100, 130, 1), launch(3, 200, 210, 0), launch(4, 300, 390, 2)]
    trace = make_trace([], calls, [], ["cudaStreamSynchronize", "cudaMemcpy", "cudaLaunchKernel"])
    assert find_calls(trace, "Synchronize|Memcpy", SPANS) == {"call": "cudaMemcpy"}
    assert find_calls(trace, "Synchronize", SPANS) == {"call": "cudaStreamSynchronize"}
    assert find_calls(trace, "Malloc", SPANS) is None
    assert find_calls(trace, "Synchronize", NOTHING) is None
    assert find_calls(make_trace(), "Synchronize", SPANS) is None


def test_a_watchdog_that_waits_all_day_is_not_the_call() -> None:
    calls = [launch(1, 0, 1_000, 0) | {"thread": 9}, launch(2, 0, 40, 1)]
    trace = make_trace([], calls, [], ["cudaEventSynchronize", "cudaMemcpy"])
    assert find_calls(trace, "Synchronize|Memcpy", SPANS, MAIN) == {"call": "cudaMemcpy"}


@pytest.mark.parametrize("name", ["x" * 2**20, ""])
def test_any_name_may_be_a_place(name: str) -> None:
    assert place([name], every(0, 0, 45)) == {"range": name}


@pytest.mark.parametrize(
    "name",
    [
        "threading.py(355): wait",
        "queue.py(154): get",
        "<method 'acquire' of '_thread.lock'>",
        "$api.py:3154 block_until_ready",
        "BufferSequencingEvent::Execute",
    ],
)
def test_a_thread_that_waits_explains_nothing_unless_it_feeds_the_device(name: str) -> None:
    elsewhere = make_trace([], [frame(0, at, at + 50, thread=9) for at in range(0, 1_000, 100)], [], [name])
    assert find_place(elsewhere, SPANS, MAIN) is None
    own = make_trace([], [frame(0, at, at + 50) for at in range(0, 1_000, 100)], [], [name])
    assert find_place(own, SPANS, MAIN) == {"frame": name}
    at_work = make_trace([], [frame(0, at, at + 50, thread=9) for at in range(0, 1_000, 100)], [], ["io.py(3): save"])
    assert find_place(at_work, SPANS, MAIN) == {"frame": "io.py(3): save"}


def test_the_caller_that_works_is_named_and_not_what_waits_beside_it() -> None:
    waits = [frame(0, at, at + 41, thread=9) for at in range(0, 1_000, 100)]
    works = [frame(1, at, at + 60, thread=8) for at in range(0, 1_000, 100)]
    trace = make_trace([], [*waits, *works], [], ["BufferSequencingEvent::Execute", "$pxla.py:112 shard_args"])
    assert find_place(trace, SPANS, MAIN) == {"frame": "$pxla.py:112 shard_args"}
