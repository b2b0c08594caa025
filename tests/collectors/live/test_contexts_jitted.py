"""Objects that are called as jitted functions are: each call is counted under its own name, and the job is unharmed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.live.listener import Heard, Listener
from tests.collectors.live.test_contexts_python import PYTHONS, count_paths, preloaded, run_made

COUNT = 4000
OLDEST = 11  # of CPython's, that shows how an object is called
SCENARIOS = {  # with its exit code
    "plain": 0,
    "nested": 0,
    "exceptions": 0,
    "threads": 0,
    "two_types": 0,
    "again": 0,
    "forks": 0,
    "dropped": 0,
    "leaves": 3,
    "dies": -9,
    "shutdown": 0,
}
UNKNOWN = "does not say how its functions are called"
WITHOUT_END = {"leaves", "dies"}


def tell_minor(python: str) -> int:
    """Return the second number of an interpreter's version, which its path has, or of this one's."""
    parts = [part for part in Path(python).parts if part.startswith("3.")]
    return int(parts[-1].split(".")[1]) if parts else sys.version_info[1]


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    started = Listener(tmp_path / "s").start()
    yield started
    started.stop()


def run(
    listener: Listener, scenario: str, count: int = COUNT, *, python: str = sys.executable, **options: Any
) -> Heard:
    """Run a scenario that must end as it should, and state nothing."""
    source = Path("no source of operators")
    code, err, heard = run_made(python, listener, source, scenario, count, program="made_jitted.py", **options)
    assert (code, err) == (SCENARIOS.get(scenario, 0), "")
    assert heard.ended == (scenario not in WITHOUT_END)
    return heard


def count_names(heard: Heard) -> Counter[str]:
    """Return how often each computation began."""
    names = {number: heard.names[name] for number, _, name, _, kind in heard.contexts.tolist() if kind == 1}
    counts = Counter[str]()
    for row in heard.sums:
        if int(row["context"]) in names:
            counts[names[int(row["context"])]] += int(row["count"])
    return counts


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("python", [python for python in PYTHONS if tell_minor(python) >= OLDEST])
def test_every_call_is_counted_and_the_job_unharmed(listener: Listener, python: str, scenario: str) -> None:
    heard = run(listener, scenario, python=python)
    made = count_names(heard)["jit_made"]
    assert heard.notices == []
    if scenario == "shutdown":
        assert made >= COUNT
    elif scenario not in WITHOUT_END:  # what is not told when a process is killed is lost
        assert made == COUNT


@pytest.mark.parametrize("python", [python for python in PYTHONS if tell_minor(python) < OLDEST])
def test_an_older_python_is_left_alone_with_a_line(listener: Listener, python: str) -> None:
    heard = run(listener, "too_old", python=python)
    assert [UNKNOWN in notice for notice in heard.notices] == [True]
    assert not count_names(heard)


def test_calls_nest_at_their_lines(listener: Listener) -> None:
    around = ("<module>", "nested", "jit_made")
    assert count_paths(run(listener, "nested")) == {around: COUNT, (*around, "<lambda>", "jit_inner"): COUNT}


def test_what_lies_deeper_counts_for_what_is_around(listener: Listener) -> None:
    heard = run(listener, "recursion", 600)
    assert count_names(heard)["jit_made"] == 512
    assert any("nested more than 512 deep" in notice for notice in heard.notices)


def test_objects_of_other_kinds_are_left_alone_with_a_line(listener: Listener) -> None:
    heard = run(listener, "refused")
    assert count_names(heard) == {"jit_made": COUNT}
    assert [UNKNOWN in notice for notice in heard.notices] == [True]


def test_an_address_that_is_used_again_has_no_other_s_name(listener: Listener) -> None:
    counts = count_names(run(listener, "reused", 1000))
    assert counts == {"jit_made": 1000} | {f"jit_{number}": 200 for number in range(10)}


def test_more_functions_than_fit_share_a_name(listener: Listener) -> None:
    heard = run(listener, "many")
    assert count_names(heard) == {"jit_made": COUNT, "(other computations)": COUNT}
    assert ["32,768" in notice for notice in heard.notices] == [True]


def test_nothing_is_counted_while_another_profiler_runs(listener: Listener) -> None:
    def is_back(heard: Heard) -> bool:
        levels = [int(tick["level"]) for tick in heard.ticks]
        return 0 in levels and levels[-1] == 1 and 1 in levels[: levels.index(0)]

    heard = run(listener, "paused", until=is_back)
    assert count_names(heard) == {"jit_made": COUNT}


@pytest.mark.parametrize("flavour", ["address", "thread"])
@pytest.mark.parametrize("scenario", ["exceptions", "threads", "nested", "reused", "many", "forks", "shutdown"])
def test_scenarios_are_clean(listener: Listener, flavour: str, scenario: str) -> None:
    run(listener, scenario, 800, flavour=flavour, **preloaded(flavour))
