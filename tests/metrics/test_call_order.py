"""Launches that no record names: calls and events matched by their order, and where nothing is matched."""

from __future__ import annotations

import pytest

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.metrics.call_order import MIN_EVENTS, link_in_order
from tests.tables import Row, event, launch, make_trace

US = 1_000
NAMES = ["a", "cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize"]


def call(start: int, end: int, name: int = 1) -> Row:
    return launch(0, start, end, name) | {"correlation": None}


def calls(count: int, name: int = 1) -> list[Row]:
    """Return calls of 3 µs, 10 µs apart, without correlations."""
    return [call(10 * i * US, (10 * i + 3) * US, name) for i in range(count)]


def kernels(count: int, **more: object) -> list[Row]:
    """Return kernels that begin 5 µs after the call at their place."""
    return [event(0, (10 * i + 5) * US, (10 * i + 9) * US, correlation=None, **more) for i in range(count)]


def linked(trace: Trace) -> list[tuple[int, int]]:
    """Return the starts of every linked event and of its launch."""
    found = link_in_order(trace)
    pairs = found.device_events.join(found.host_events, on="correlation", suffix="_of_call")
    return [
        (int(event), int(call)) for event, call in pairs.select("start_ns", "start_ns_of_call").sort("start_ns").rows()
    ]


def test_as_many_calls_as_events_are_matched_in_their_order() -> None:
    trace = make_trace(kernels(9), calls(9), names=NAMES)
    assert linked(trace) == [((10 * i + 5) * US, 10 * i * US) for i in range(9)]
    assert link_in_order(trace).notes == (
        "no launches are recorded: 9 device events matched to the calls in their order",
    )


def test_calls_that_launch_nothing_and_syncs_on_the_device_are_not_counted() -> None:
    waits = [call((10 * i + 3) * US, (10 * i + 9) * US, 3) for i in range(9)]
    syncs = kernels(9, activity="sync")
    assert len(linked(make_trace(kernels(9) + syncs, calls(9) + waits, names=NAMES))) == 9


def test_other_links_stay_as_they_are() -> None:
    waits = [launch(3, 100 * US, 101 * US, 3), launch(7, 102 * US, 103 * US, 3)]
    syncs = [event(0, 100 * US, 101 * US, activity="sync", correlation=3)]
    found = link_in_order(make_trace(kernels(9) + syncs, calls(9) + waits, names=NAMES))
    assert found.device_events["correlation"].to_list() == [*range(8, 17), 3]
    assert found.host_events["correlation"].to_list() == [*range(8, 17), 3, 7]


@pytest.mark.parametrize(
    ("events", "hosts"),
    [
        (kernels(9), calls(10)),
        (kernels(9), []),
        ([], calls(9)),
        (kernels(MIN_EVENTS - 1), calls(MIN_EVENTS - 1)),
        (kernels(8) + kernels(1, device=1), calls(9)),
        ([*kernels(8), event(0, 90 * US, 91 * US, correlation=7)], calls(9)),
        ([event(0, 0, 1, correlation=None), *kernels(9)[1:]], [*calls(8), call(200 * US, 201 * US, 1)]),
    ],
)
def test_other_traces_stay_as_they_are(events: list[Row], hosts: list[Row]) -> None:
    trace = make_trace(events, hosts, names=NAMES)
    assert link_in_order(trace) is trace


def test_a_blocked_call_is_named_though_no_launch_is_recorded() -> None:
    hosts = [call(10_000 * i * US, (10_000 * i + 3) * US, 1) for i in range(40)]
    events = [event(i % 2, (10_000 * i + 5) * US, (10_000 * i + 3_000) * US, correlation=None) for i in range(40)]
    waits = [call((10_000 * i + 100) * US, (10_000 * i + 9_900) * US, 3) for i in range(40)]
    trace = make_trace(events, sorted(hosts + waits, key=lambda row: row["start_ns"]), names=NAMES)
    parts = deepprof.analyze(trace).answer.parts
    assert parts["idle_sync_ns"] == pytest.approx(0.7, abs=0.01)
    assert "idle_sync_ns" not in deepprof.analyze(make_trace(events, waits, names=NAMES)).answer.parts
