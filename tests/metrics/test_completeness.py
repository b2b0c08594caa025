"""What recordings lack."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.completeness import find_lacks
from deepprof.metrics.loop import Loop
from tests.loops import MS, make_loop
from tests.tables import event, launch, make_trace


def keys(loop: Loop, trace: Trace) -> dict[str, bool]:
    """Return what lacks, and whether that is decisive."""
    return {lack.key: lack.decisive for lack in find_lacks(loop, trace)}


def test_a_good_recording_lacks_nothing() -> None:
    assert find_lacks(make_loop([10.0] * 12), make_trace()) == []


@pytest.mark.parametrize(("usual", "decisive"), [(0, True), (1, True), (2, False), (3, None), (5, None)])
def test_few_iterations(usual: int, decisive: bool | None) -> None:
    found = keys(make_loop([10.0] * usual), make_trace())
    assert found == ({} if decisive is None else {"usual_iterations": decisive})


def test_more_cut_iterations_than_complete_ones() -> None:
    assert keys(make_loop([10.0] * 6, cut=8), make_trace()) == {"cut_iterations": False}
    assert keys(make_loop([10.0] * 6, cut=7), make_trace()) == {}


@pytest.mark.parametrize(
    ("dropped", "decisive"),
    [
        ({"metadata": 500, "flow": 300}, None),
        ({"invalid-time": 5}, None),  # of 1000: single ones
        ({"invalid-time": 12}, False),
        ({"invalid-time": 30, "undecodable": 30}, True),
        ({"truncated": 1}, False),
        ({"without-times": 80}, True),
    ],
    ids=["by design", "single", "some", "many", "cut", "buffer"],
)
def test_lost_records(dropped: dict[str, int], decisive: bool | None) -> None:
    trace = make_trace()
    rest = 1000 - sum(dropped.values())
    trace = replace(trace, accounting=replace(trace.accounting, read=1000, dropped=dropped | {"counter": rest}))
    assert keys(make_loop([10.0] * 6), trace) == ({} if decisive is None else {"lost_records": decisive})


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("nsys warning: Not all CUDA events might have been collected.", True),
        ("10 CUDA graph launches were captured as one event each, without their kernels", True),
        ("nsys warning: No OpenGL events collected. Does the process use OpenGL?", False),
        ("recorded on host3", False),
    ],
)
def test_what_the_recorder_says_itself(note: str, said: bool) -> None:
    assert ("notes" in keys(make_loop([10.0] * 6), replace(make_trace(), notes=(note,)))) == said


@pytest.mark.parametrize(
    ("unlinked", "told"), [(0, False), (1, False), (4, True), (24, True), (40, False), (60, False)]
)
def test_kernels_without_a_launch_while_most_have_one(unlinked: int, told: bool) -> None:
    kernels = [event(1, i * MS, (i + 1) * MS, correlation=i if i >= unlinked else 1000 + i) for i in range(60)]
    trace = make_trace(kernels, [launch(i, i * MS, i * MS + 5) for i in range(60)])
    assert ("unlinked_kernels" in keys(make_loop([10.0] * 6), trace)) == told


@pytest.mark.parametrize(
    ("idle", "unknown", "host", "expected"),
    [
        (0.0, 4.0, True, True),
        (0.0, 2.0, True, False),
        (3.0, 2.0, True, None),  # most of it is available
        (0.0, 0.5, True, None),  # there is little
        (0.0, 4.0, False, None),  # no one recorded the host
    ],
)
def test_idle_time_without_a_cause(idle: float, unknown: float, host: bool, expected: bool | None) -> None:
    loop = make_loop([10.0] * 6, idle_host_ns=idle, idle_unknown_ns=unknown)
    found = keys(loop, make_trace(host=[launch(1, 0, 5)] if host else []))
    assert found == ({} if expected is None else {"unknown_idle_ratio": expected})


def test_an_empty_trace_is_looked_at() -> None:
    assert keys(replace(make_loop([]), parts=make_loop([]).parts.clear()), make_trace()) == {"usual_iterations": True}
