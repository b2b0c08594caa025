"""The iteration of every device event, against an oracle that asks every iteration."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepprof
from deepprof import simulation
from deepprof.analysis import Analysis, analyze
from deepprof.collectors.trace import empty_table
from deepprof.metrics.attribution import attribute_events
from deepprof.results.analysis_tables import EVENTS, EVENTS_IN_ITERATIONS, PLACED_ITERATIONS
from tests.tables import event, make_trace, table

Row = dict[str, Any]
PLACES = st.tuples(st.integers(0, 1), st.integers(0, 1))


def listed(rows: list[Row]) -> pl.DataFrame:
    return table(rows, PLACED_ITERATIONS)


def iteration(start: int, length: int, index: int, *, loop: int = 0, rank: int = 0, device: int = 0) -> Row:
    place = {"loop": loop, "rank": rank, "device": device, "stream": 7, "index": index}
    return (
        place
        | {"start_ns": start, "end_ns": start + length // 2, "busy_ns": length // 3}
        | {"idle_ns": length - length // 3}
    )


def events(times: list[tuple[int, tuple[int, int]]]) -> pl.DataFrame:
    rows = [event(0, start, start + 1, device=device) | {"rank": rank} for start, (rank, device) in times]
    return table(rows, EVENTS)


def expected(one: Row, iterations: list[Row]) -> tuple[int | None, int | None]:
    """Return the loop and index of the iteration in which an event starts: of those that began, the last one."""
    here = [each for each in iterations if (each["rank"], each["device"]) == (one["rank"], one["device"])]
    begun = [each for each in here if each["start_ns"] <= one["start_ns"]]
    if not begun:
        return None, None
    last = max(begun, key=lambda each: (each["start_ns"], each["loop"], each["index"]))
    inside = one["start_ns"] < last["start_ns"] + last["busy_ns"] + last["idle_ns"]
    return (last["loop"], last["index"]) if inside else (None, None)


@given(
    st.lists(st.tuples(st.integers(-5, 60), PLACES), max_size=40),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(0, 2), PLACES), max_size=12),
)
def test_every_event_is_in_the_iteration_in_which_it_starts(times: Any, drawn: Any) -> None:
    rows = [
        iteration(start, length, index, loop=loop, rank=rank, device=device)
        for index, (start, length, loop, (rank, device)) in enumerate(sorted(drawn))
    ]
    given_events = events(times)
    found = attribute_events(given_events, listed(rows))
    assert found.drop("loop", "iteration").equals(given_events)
    assert found.schema == EVENTS_IN_ITERATIONS
    assert found.select("loop", "iteration").rows() == [
        expected(one, rows) for one in given_events.iter_rows(named=True)
    ]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.lists(st.integers(-5, 200), max_size=30))
def test_without_overlaps_it_is_the_only_one_that_holds_it(lengths: list[int], times: list[int]) -> None:
    starts = [sum(lengths[:k]) + 7 * (k // 2) for k in range(len(lengths))]  # every other one has a gap behind it
    rows = [iteration(start, length, k) for k, (start, length) in enumerate(zip(starts, lengths, strict=True))]
    found = attribute_events(events([(time, (0, 0)) for time in sorted(times)]), listed(rows))
    for time, index in found.select("start_ns", "iteration").iter_rows():
        holding = [k for k, start in enumerate(starts) if start <= time < start + lengths[k]]
        assert holding == ([] if index is None else [index])


def test_nothing_and_one_of_each() -> None:
    none, one = events([]), events([(10, (0, 0))])
    assert attribute_events(none, listed([])).schema == EVENTS_IN_ITERATIONS
    assert attribute_events(none, listed([iteration(0, 9, 0)])).height == 0
    assert attribute_events(one, listed([])).select("loop", "iteration").rows() == [(None, None)]
    for start, length, index in ((10, 1, 0), (0, 11, 0), (0, 10, None), (11, 5, None), (10, 0, None)):
        found = attribute_events(one, listed([iteration(start, length, 0)]))
        assert found["iteration"].to_list() == [index]


def test_another_rank_and_another_device_are_left_alone() -> None:
    found = attribute_events(events([(5, (0, 0)), (5, (0, 1)), (5, (1, 0))]), listed([iteration(0, 9, 3, device=1)]))
    assert found.select("rank", "device", "iteration").rows() == [(0, 0, None), (0, 1, 3), (1, 0, None)]


@pytest.fixture(scope="module", params=["healthy", "copy-bound", "straggler"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Return an analysed job, of two ranks where the scenario uses several."""
    folder = tmp_path_factory.mktemp("job")
    if request.param == "straggler":
        simulation.write_ranks(simulation.simulate_ranks(request.param, ranks=2, iterations=12), folder)
    else:
        simulation.write(simulation.simulate(request.param, iterations=12), folder / "rank0.json")
    return analyze(deepprof.read_job(folder))


def test_each_iteration_of_a_job_has_as_many_events_as_its_row_counts(job: Analysis) -> None:
    placed = job.events_in_iterations
    assert placed.schema == EVENTS_IN_ITERATIONS
    assert placed.drop("loop", "iteration").equals(job.events)
    counted = placed.filter(pl.col("activity") != "sync").group_by("loop", "iteration").len("counted").drop_nulls()
    rows = job.iterations.join(counted, left_on=["loop", "index"], right_on=["loop", "iteration"], how="left")
    assert rows.height == job.iterations.height > 10
    assert rows["counted"].cast(pl.Int64).to_list() == rows["events"].to_list()


def test_a_job_without_a_loop_or_an_event() -> None:
    bare = analyze(make_trace([event(0, 0, 1)]))
    assert bare.events_in_iterations.select("loop", "iteration").rows() == [(None, None)]
    assert analyze(make_trace()).events_in_iterations.equals(empty_table(EVENTS_IN_ITERATIONS))
