"""The states of an iteration: by hand, against a walk nanosecond by nanosecond, and on jobs of known shape."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof.metrics.breakdown.parts import PART_NAMES, PARTS
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.loop import Loop
from deepprof.metrics.states import STATE_NAMES, STATE_PARTS, measure_state_changes, measure_states
from deepprof.simulation import simulate, write
from tests.deepprof.builders import build_iterations, build_loop

STATE_OF = {part: state for state, parts in STATE_PARTS.items() for part in parts}
Segments = list[tuple[str, int]]


def lay(segments: Segments, times: list[int], *, start: int = 0, usual: list[bool] | None = None) -> Loop:
    """Return a loop with iterations of `times` from `start` on, on a device that spends its time on `segments`."""
    bounds = np.cumsum([0, *(length for _, length in segments)], dtype=np.int64)
    parts = np.array([PART_NAMES.index(part) for part, _ in segments], np.int16)
    timeline = Timeline(0, bounds, parts, None)
    begins = start + np.cumsum([0, *times], dtype=np.int64)[:-1]
    rows = build_iterations([*times, 1], warmup=0)[:-1].with_columns(
        start_ns=pl.Series(begins, dtype=pl.Int64),
        iteration_ns=pl.Series(times, dtype=pl.Int64),
        complete=pl.Series(usual or [True] * len(times)),
    )
    taken = {"index": rows["index"]} | timeline.split(begins, begins + np.array(times, np.int64))
    missing = {name: pl.lit(0 if name != "memory_nbytes" else None) for name in PARTS if name not in taken}
    table = pl.DataFrame(taken).with_columns(**missing).select(PARTS.names()).cast(dict(PARTS))  # type: ignore[arg-type]
    return build_loop(iterations=rows, parts=table, timeline=timeline)


def walk(loop: Loop, segments: Segments) -> tuple[Counter[str], Counter[str], Counter[tuple[str, str]], int]:
    """Return time and entries of states, changes, and how many iterations, found a nanosecond at a time."""
    moments = [STATE_OF[part] for part, length in segments for _ in range(length)]
    iterations = [moments[row["start_ns"] :][: row["iteration_ns"]] for row in loop.usual.to_dicts()]
    visits = [
        [now for at, now in enumerate(states) if at == 0 or states[at - 1] != now] for states in iterations if states
    ]
    whole = [state for each in visits for state in each]
    time = Counter(state for states in iterations for state in states)
    return time, Counter(whole), Counter(pairwise([*whole, *whole[:1]])), len(iterations)


def test_the_paper_s_iteration() -> None:
    turn: Segments = [("exposed_htod_ns", 30), ("compute_ns", 50), ("idle_launch_ns", 20)]
    loop = lay(turn * 3, [100, 100, 100])
    assert measure_states(loop).rows() == [
        ("copy-from-host", 90, 30, 0.3, 1.0),
        ("compute", 150, 50, 0.5, 1.0),
        ("launching", 60, 20, 0.2, 1.0),
    ]
    assert measure_state_changes(loop).rows() == [
        ("copy-from-host", "compute", 1.0, 0.0, 1.0),
        ("compute", "launching", 1.0, 0.0, 1.0),
        ("launching", "copy-from-host", 1.0, 1.0, 1.0),
    ]


def test_states_that_alternate_have_probabilities() -> None:
    kernels: Segments = [("compute_ns", 10), ("idle_launch_ns", 2), ("compute_ns", 10), ("idle_sync_ns", 8)]
    loop = lay(kernels * 2, [30, 30])
    assert measure_states(loop).select("state", "time_ns", "entries").rows() == [
        ("compute", 20, 2.0),
        ("launching", 2, 1.0),
        ("synchronisation", 8, 1.0),
    ]
    changes = measure_state_changes(loop).select("source", "target", "count", "probability").rows()
    assert ("compute", "launching", 1.0, 0.5) in changes
    assert ("compute", "synchronisation", 1.0, 0.5) in changes


def test_a_state_over_the_start_of_an_iteration_is_entered_anew() -> None:
    loop = lay([("compute_ns", 100)], [40, 40], start=10)
    assert measure_states(loop).rows() == [("compute", 80, 40, 1.0, 1.0)]
    assert measure_state_changes(loop).rows() == [("compute", "compute", 1.0, 1.0, 1.0)]


def test_small_parts_are_one_state() -> None:
    loop = lay([("exposed_dtod_ns", 5), ("exposed_memset_ns", 5), ("compute_ns", 10)], [20])
    assert measure_states(loop).select("state", "time_ns", "entries").rows() == [
        ("compute", 10, 1.0),
        ("copy", 10, 1.0),
    ]


def test_times_that_do_not_divide_add_up_to_the_mean() -> None:
    loop = lay([("compute_ns", 4), ("idle_launch_ns", 3), ("idle_sync_ns", 3)], [3, 3, 4])
    assert measure_states(loop)["time_ns"].sum() == 3


def test_nothing_is_known_without_usual_iterations_or_a_timeline() -> None:
    loop = lay([("compute_ns", 10)], [10])
    for known in (replace(loop, timeline=None), lay([("compute_ns", 10)], [10], usual=[False]), lay([], [])):
        assert measure_states(known).is_empty()
        assert measure_state_changes(known).is_empty()
        assert measure_states(known).schema == measure_states(loop).schema
        assert measure_state_changes(known).schema == measure_state_changes(loop).schema


def test_every_part_of_the_time_is_in_one_state() -> None:
    assert sorted(part for parts in STATE_PARTS.values() for part in parts) == sorted(PART_NAMES)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Segments, list[int], int, list[bool]]:
    parts = st.sampled_from(("compute_ns", "exposed_dtod_ns", "exposed_memset_ns", "idle_launch_ns", "idle_host_ns"))
    segments = draw(st.lists(st.tuples(parts, st.integers(1, 6)), min_size=1, max_size=25))
    span = sum(length for _, length in segments)
    cuts = sorted(draw(st.lists(st.integers(0, span), min_size=2, max_size=8)))
    times = [end - begin for begin, end in pairwise(cuts)]
    return segments, times, cuts[0], draw(st.lists(st.booleans(), min_size=len(times), max_size=len(times)))


@given(jobs())
def test_states_are_those_of_a_walk(job: tuple[Segments, list[int], int, list[bool]]) -> None:
    segments, times, start, usual = job
    loop = lay(segments, times, start=start, usual=usual)
    states, changes = measure_states(loop), measure_state_changes(loop)
    time, entries, pairs, many = walk(loop, segments)
    assert dict(states.select("state", "total_ns").iter_rows()) == dict(time)
    assert states["state"].to_list() == [state for state in STATE_NAMES if time[state]]
    assert {s: round(n * many) for s, n in states.select("state", "entries").iter_rows()} == dict(entries)
    assert {(a, b): round(n * many) for a, b, n in changes.select("source", "target", "count").iter_rows()} == pairs
    assert changes["starts"].sum() == pytest.approx(
        sum(1 for each in loop.usual["iteration_ns"] if each) / max(many, 1)
    )
    for state, count in entries.items():
        assert changes.filter(source=state)["probability"].sum() == pytest.approx(1)
        assert changes.filter(target=state)["count"].sum() * many == pytest.approx(count)
    if many:
        assert states["time_ns"].sum() == round(sum(time.values()) / many)


def test_simulated_jobs_have_the_states_they_were_made_for(tmp_path: Path) -> None:
    found = []
    for name in ("healthy", "input-bound"):
        path = tmp_path / f"{name}.json"
        write(simulate(name, iterations=8, seed=3), path)
        found.append(deepprof.analyze(deepprof.read(path)).states.sort("time_ns", descending=True)["state"].to_list())
    assert found[0][0] == "compute"
    assert "data-loading" in found[1][:2]
    assert "copy-from-host" in found[0]
