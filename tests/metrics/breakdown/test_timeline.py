"""The timeline of a device: against a slow oracle, and on what real machines do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import force_setattr

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.parts import BUSY_PARTS, IDLE_PARTS, PART_NAMES
from deepprof.metrics.breakdown.timeline import Timeline, lay_out
from deepprof.metrics.host import read_host
from deepprof.metrics.spans import union
from tests.metrics.breakdown.slow_timeline import Slow, small_limits
from tests.tables import Row, copy, event, launch, make_trace, span

NAMES = (
    "Memcpy HtoD",
    "kernel",
    "ncclDevKernel_AllReduce",
    "cudaLaunchKernel",
    "cudaStreamSynchronize",
    "cudaMemcpyAsync",
    "cudaMalloc",
    "cuModuleLoadData",
    "enumerate(DataLoader)#x",
    "train",
    "Stream Wait Event",
    "Stream Sync",
    "overhead",
)
ID = {name: number for number, name in enumerate(NAMES)}
US, MS = 1_000, 1_000_000
TIMES, LENGTHS, CORRELATIONS = st.integers(0, 60), st.integers(0, 12), st.integers(1, 12)


def timeline(trace: Trace, device: int = 0) -> Timeline:
    return lay_out(trace, device, read_host(trace).launches)


def totals(trace: Trace, device: int = 0) -> dict[str, int]:
    return {name: ns for name, ns in timeline(trace, device).totals_ns.items() if ns}


def call(name: str, start: int, end: int, correlation: int | None = None, thread: int = 1) -> Row:
    made = {"correlation": correlation} if correlation is not None else {"correlation": None}
    return launch(0, start, end, ID[name]) | {"thread": thread} | made


@st.composite
def device_rows(draw: st.DrawFn) -> Row:
    start, length, stream = draw(TIMES), draw(LENGTHS), draw(st.integers(6, 8))
    linked: Row = {"stream": stream, "correlation": draw(CORRELATIONS | st.none())}
    kind = draw(st.sampled_from(["kernel", "kernel", "collective", "copy", "memset", "graph", "sync"]))
    if kind == "copy":
        way = draw(st.sampled_from(["HtoD", "DtoH", "DtoD", "PtoP", "HtoH", None]))
        return copy(start, start + length, 1) | linked | {"copy_kind": way}
    if kind == "sync":
        name = ID[draw(st.sampled_from(["Stream Wait Event", "Stream Sync"]))]
        return event(name, start, start + length, activity="sync", stream=stream)
    activity = kind if kind in ("memset", "graph") else "kernel"
    return (
        event(ID["ncclDevKernel_AllReduce" if kind == "collective" else "kernel"], start, start + length)
        | linked
        | {"activity": activity}
    )


@st.composite
def host_rows(draw: st.DrawFn) -> Row:
    start, length, thread = draw(st.integers(-10, 60)), draw(LENGTHS), draw(st.integers(1, 3))
    name = draw(st.sampled_from(["cudaLaunchKernel"] * 6 + list(NAMES[4:8])))
    if draw(st.integers(0, 9)) == 0:
        return call("overhead", start, start + length, thread=thread) | {"category": "overhead"}
    number = draw(CORRELATIONS) if name in ("cudaLaunchKernel", "cudaMemcpyAsync") else None
    return call(name, start, start + length, number, thread)


@st.composite
def ranges(draw: st.DrawFn) -> Row:
    start = draw(TIMES)
    end = draw(st.integers(0, 30) | st.none())
    name = ID[draw(st.sampled_from(["enumerate(DataLoader)#x", "enumerate(DataLoader)#x", "train"]))]
    row = span(name, start, start)
    return row | {"end_ns": None if end is None else start + end, "thread": draw(st.integers(1, 3))}


def made(device: list[Row], host: list[Row], annotations: Sequence[Row] = ()) -> Trace:
    return make_trace(device, host, annotations, NAMES)


@given(
    st.lists(device_rows(), max_size=9),
    st.lists(host_rows(), max_size=14),
    st.lists(ranges(), max_size=3),
    st.lists(st.tuples(st.integers(-5, 80), st.integers(-5, 80)), min_size=1, max_size=3),
)
def test_every_nanosecond_is_put_down_to_what_the_definitions_say(
    device: list[Row], host: list[Row], annotations: list[Row], windows: list[tuple[int, int]]
) -> None:
    trace = made(device, host, annotations)
    with small_limits():
        found, truth = timeline(trace), Slow(trace)
    starts, ends = (np.array([w[i] for w in windows], np.int64) for i in (0, 1))
    split = found.split(starts, ends)
    assert {n: ns for n, ns in found.totals_ns.items() if ns} == truth.totals(truth.first, truth.last)
    for i, (start, end) in enumerate(windows):
        assert {n: int(ns[i]) for n, ns in split.items() if ns[i]} == truth.totals(start, end)


@given(st.lists(device_rows(), max_size=14), st.lists(host_rows(), max_size=10))
def test_the_parts_add_up_to_the_span_and_the_busy_ones_to_the_busy_time(device: list[Row], host: list[Row]) -> None:
    trace = made(device, host)
    found = timeline(trace).totals_ns
    work = trace.device_events.filter(pl.col("activity") != "sync")
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    span_ns = int(end.max() - start.min()) if work.height else 0
    assert sum(found.values()) == span_ns
    assert sum(found[name] for name in BUSY_PARTS) == union(start, end).total_ns
    assert sum(found[name] for name in IDLE_PARTS) == span_ns - union(start, end).total_ns


@given(st.lists(device_rows(), max_size=9), st.lists(host_rows(), max_size=9))
def test_spans_of_a_part_are_as_long_as_the_part(device: list[Row], host: list[Row]) -> None:
    found = timeline(made(device, host))
    for name, ns in found.totals_ns.items():
        assert found.spans([name]).total_ns == ns
    assert found.spans(PART_NAMES).total_ns == sum(found.totals_ns.values())


@pytest.mark.parametrize(
    "device",
    [[], [event(1, 5, 5)], [event(10, 0, 90, activity="sync")]],
    ids=["nothing", "one event without length", "only a wait"],
)
def test_without_work_there_is_no_time(device: list[Row]) -> None:
    found = timeline(made(device, [call("cudaLaunchKernel", 0, 9, 1)]))
    assert totals(made(device, [])) == {}
    assert found.split(np.array([0, 3]), np.array([9, 9]))["compute_ns"].tolist() == [0, 0]


def test_one_event_is_all_there_is() -> None:
    assert totals(made([event(1, 100, 250)], [])) == {"compute_ns": 150}


@pytest.mark.parametrize("kind", ["memcpy", "memset"])
def test_a_device_that_never_computes_has_a_timeline_too(kind: str) -> None:
    rows = [event(0, at, at + 10, activity=kind) for at in (0, 40)]
    busy = {"memcpy": "exposed_copy_ns", "memset": "exposed_memset_ns"}[kind]
    assert totals(made(rows, [call("cudaLaunchKernel", 0, 1, 1)])) == {busy: 20, "idle_unknown_ns": 30}


COPIES = [copy(5 * US, 9 * US, 1, correlation=1), copy(90 * US, 95 * US, 1, correlation=2)]
COPYING = [call("cudaMemcpyAsync", 0, 4 * US, 1), call("cudaMemcpyAsync", 85 * US, 87 * US, 2)]


def test_where_no_kernel_has_a_launch_record_the_host_is_not_guessed_at() -> None:
    found = totals(made([*COPIES, event(1, 20 * US, 30 * US)], COPYING))
    assert found == {
        "compute_ns": 10 * US,
        "exposed_htod_ns": 9 * US,
        "idle_unknown_ns": 66 * US,
        "idle_launch_ns": 5 * US,
    }


def test_what_copies_feeds_a_device_that_does_nothing_else() -> None:
    assert totals(made(COPIES, COPYING)) == {"exposed_htod_ns": 9 * US, "idle_launch_ns": 81 * US}


def test_events_without_length_at_both_ends_belong_to_the_span() -> None:
    rows = [event(1, 0, 0), event(1, 10, 20), event(1, 50, 50)]
    assert totals(made(rows, [])) == {"compute_ns": 10, "idle_unknown_ns": 40}


def test_an_event_may_end_after_the_last_one_has_begun() -> None:
    rows = [event(1, 0, 100), event(1, 40, 60, stream=8)]
    assert totals(made(rows, [])) == {"compute_ns": 100}


def test_copies_and_collectives_count_only_where_nothing_computes() -> None:
    rows = [
        event(1, 0, 100),
        event(ID["ncclDevKernel_AllReduce"], 50, 150, stream=8),
        copy(80, 200, 9, stream=9),
        event(1, 190, 220, activity="memset", stream=10),
    ]
    assert totals(made(rows, [])) == {
        "compute_ns": 100,
        "exposed_communication_ns": 50,
        "exposed_htod_ns": 50,
        "exposed_memset_ns": 20,
    }


def test_a_kernel_without_a_name_computes() -> None:
    trace = make_trace([event(0, 0, 10), event(1, 30, 40)], names=["kernel"])
    nameless = pl.Series(["kernel", None], dtype=pl.String)
    force_setattr(trace, "names", nameless)
    assert totals(trace) == {"compute_ns": 20, "idle_unknown_ns": 20}


def queued(gap_us: int, *, stream: int = 7, launched_us: int = 0, wait: str | None = None) -> dict[str, float]:
    """Return the idle parts of two kernels, the second launched at `launched_us` and begun `gap_us` after the first."""
    device = [
        event(1, 5 * US, 100 * US, correlation=1),
        event(1, (100 + gap_us) * US, 400 * US, correlation=2, stream=stream),
    ]
    if wait:
        device.append(event(ID[wait], 90 * US, (100 + gap_us) * US, activity="sync", stream=stream))
    host = [
        call("cudaLaunchKernel", 0, 4 * US, 1),
        call("cudaLaunchKernel", launched_us * US, (launched_us + 4) * US, 2),
    ]
    return {name: ns / US for name, ns in totals(made(device, host)).items() if name.startswith("idle")}


def test_a_queued_kernel_begins_late_because_of_the_device() -> None:
    assert queued(20) == {"idle_startup_ns": 20}
    assert queued(21) == {"idle_unknown_ns": 21}


def test_a_queued_kernel_of_another_stream_waited_for_this_one() -> None:
    assert queued(50, stream=8) == {"idle_dependency_ns": 50}
    assert queued(51, stream=8) == {"idle_unknown_ns": 51}


def test_a_recorded_wait_of_the_stream_is_a_dependency_however_long() -> None:
    assert queued(90, stream=8, wait="Stream Wait Event") == {"idle_dependency_ns": 90}
    assert queued(90, wait="Stream Wait Event") == {"idle_dependency_ns": 90}


def test_the_hosts_own_waits_are_no_dependency_between_streams() -> None:
    assert queued(90, wait="Stream Sync") == {"idle_unknown_ns": 90}


def test_a_late_launch_is_the_hosts_and_what_follows_it_the_devices() -> None:
    # The launches use 5 and 10 µs to start, of which the 5th percentile is 5.25; ready 1.5 times that after 150.
    assert queued(60, launched_us=150) == {"idle_launch_ns": 57.875, "idle_startup_ns": 2.125}


def test_a_copy_that_blocks_its_call_is_no_launching() -> None:
    device = [event(1, 5 * US, 100 * US, correlation=1), copy(900 * US, 950 * US, 1, correlation=2)]
    host = [call("cudaLaunchKernel", 0, 4 * US, 1), call("cudaMemcpyAsync", 200 * US, 960 * US, 2)]
    found = totals(made(device, host))
    assert (found["idle_launch_ns"], found["idle_blocked_ns"]) == (100 * US, 700 * US)


def test_thousands_of_kernels_of_one_graph_launch_are_no_gaps_of_the_host() -> None:
    kernels = [event(1, 20_000 + 3_000 * i, 22_000 + 3_000 * i, correlation=1) for i in range(2_000)]
    found = totals(made(kernels, [call("cudaLaunchKernel", 0, 9_000, 1)]))
    assert found == {"compute_ns": 2_000 * 2_000, "idle_startup_ns": 1_999 * 1_000}


def test_a_device_clock_behind_the_hosts_leaves_the_gap_to_the_host() -> None:
    device = [event(1, 0, 50 * US, correlation=1), event(1, 100 * US, 200 * US, correlation=2)]
    host = [call("cudaLaunchKernel", 80 * US, 84 * US, 1), call("cudaLaunchKernel", 180 * US, 184 * US, 2)]
    assert totals(made(device, host)) == {"compute_ns": 150 * US, "idle_launch_ns": 50 * US}


def test_a_stretch_without_any_call_is_not_launching() -> None:
    device = [event(1, 5 * US, 100 * US, correlation=1), copy(500_000 * US, 500_100 * US, 1)]
    device.append(event(1, 600_005 * US, 600_100 * US, correlation=2))
    host = [call("cudaLaunchKernel", 0, 4 * US, 1), call("cudaLaunchKernel", 600_000 * US, 600_004 * US, 2)]
    found = totals(made(device, host))
    assert found["idle_host_ns"] + found["idle_unknown_ns"] > 590_000 * US
    assert found.get("idle_launch_ns", 0) < 2_000 * US


def test_code_that_is_loaded_by_a_launch_is_not_launching() -> None:
    times = [(i * 100 * US, i * 100 * US + 4 * US, i + 1) for i in range(8)]
    device = [event(1, begin + 5 * US, begin + 90 * US, correlation=number) for begin, _, number in times]
    host = [call("cudaLaunchKernel", begin, end, number) for begin, end, number in times]
    device.append(event(2, 601_000 * US, 601_100 * US, correlation=9))
    host.append(call("cudaLaunchKernel", 1_000 * US, 600_995 * US, 9))
    assert totals(made(device, host))["idle_first_use_ns"] > 599_000 * US


def waiting_host(thread: int, name: str = "cudaStreamSynchronize") -> dict[str, int]:
    """Return the parts when a thread is in a call from 0 to 1 ms, and thread 1 launches at both ends of it."""
    device = [event(1, 10 * US, 100 * US, correlation=1), event(1, 1_010 * US, 1_100 * US, correlation=2)]
    host = [
        call("cudaLaunchKernel", 0, 5 * US, 1),
        call("cudaLaunchKernel", 1_000 * US, 1_005 * US, 2),
        call(name, 6 * US, 998 * US, thread=thread),
    ]
    return totals(made(device, host))


def test_a_wait_of_the_launching_thread_starves_the_device() -> None:
    assert waiting_host(1) == {"compute_ns": 180 * US, "idle_sync_ns": 910 * US}


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaMalloc", "cudaMemcpyAsync", "cuModuleLoadData"])
def test_a_thread_that_launches_no_kernel_holds_nothing_up(name: str) -> None:
    assert waiting_host(2, name)["idle_launch_ns"] == 910 * US


@pytest.mark.parametrize(
    "name",
    [
        "cudaMemcpy_v3020",
        "cudaDeviceSynchronize_v3020",
        "hipStreamSynchronize",
        "cuMemcpyDtoH_v2",
        "hipMemcpyWithStream",
    ],
)
def test_waits_are_known_under_the_names_of_every_recorder(name: str) -> None:
    device = [event(1, 10 * US, 100 * US, correlation=1), event(1, 900 * US, 950 * US, correlation=2)]
    host = [launch(1, 0, 5 * US, 1), launch(2, 895 * US, 899 * US, 1), launch(3, 6 * US, 894 * US, 2)]
    assert totals(make_trace(device, host, names=["-", "hipLaunchKernel", name]))["idle_sync_ns"] == 800 * US


def test_a_thread_that_launches_little_beside_another_holds_nothing_up() -> None:
    # As loaders do that decode on the device: a few kernels, then a long wait for them.
    main = [(100 * US * i, 1) for i in range(41)]
    device, host = [], []
    for number, (at, thread) in enumerate([*main, (1_050 * US, 2), (3_050 * US, 2)], 1):
        device.append(event(1, at + 5 * US, at + 25 * US, correlation=number, stream=6 + thread))
        host.append(call("cudaLaunchKernel", at, at + 4 * US, number, thread))
    wait = call("cudaStreamSynchronize", 0, 4_000 * US, thread=2)
    found = totals(made(device, [*host, wait]))
    assert "idle_sync_ns" not in found
    assert found["idle_launch_ns"] == 38 * 80 * US + 2 * 60 * US


def test_each_process_launches_for_itself() -> None:
    device = [event(1, 10 * US, 100 * US, correlation=1), event(1, 1_010 * US, 1_100 * US, correlation=2)]
    other = call("cudaStreamSynchronize", 6 * US, 998 * US) | {"process": 2}
    host = [call("cudaLaunchKernel", 0, 5 * US, 1), call("cudaLaunchKernel", 1_000 * US, 1_005 * US, 2), other]
    assert "idle_sync_ns" not in totals(made(device, host))


@pytest.mark.parametrize("usual_us", [4, 25, 60])
def test_one_launch_of_more_than_a_millisecond_is_no_launching(usual_us: int) -> None:
    times = [(i * 100 * US, (i * 100 + usual_us) * US, i + 1) for i in range(12)]
    device = [event(1, end + US, begin + 99 * US, correlation=number) for begin, end, number in times]
    host = [call("cudaLaunchKernel", begin, end, number) for begin, end, number in times]
    host.append(call("cudaLaunchKernel", 1_200 * US, 2_600 * US, 13))
    device.append(event(1, 2_601 * US, 2_700 * US, correlation=13))
    found = totals(made(device, host))
    assert found["idle_blocked_ns"] == 1_400 * US
    assert found["idle_launch_ns"] <= 12 * (usual_us + 2) * US


def test_devices_have_timelines_of_their_own() -> None:
    rows = [event(1, 0, 10), event(1, 20, 30, device=1), event(1, 50, 60, device=1)]
    trace = made(rows, [])
    assert totals(trace) == {"compute_ns": 10}
    assert totals(trace, 1) == {"compute_ns": 20, "idle_unknown_ns": 20}


def test_a_long_call_that_waits_for_room_in_the_queue_is_not_blocked() -> None:
    times = [(i * 10 * US, i * 10 * US + 4 * US, i + 1) for i in range(8)]
    device = [event(1, 5 * US + i * 1_000 * US, 1_004 * US + i * 1_000 * US, correlation=i + 1) for i in range(9)]
    host = [call("cudaLaunchKernel", begin, end, number) for begin, end, number in times]
    host.append(call("cudaLaunchKernel", 80 * US, 7_000 * US, 9))
    assert "idle_blocked_ns" not in totals(made(device, host))


def rarely_recorded(*more: Row) -> dict[str, int]:
    """A device that copies now and then for another thread; the thread that launches its kernels calls at the end."""
    copies = [copy(at * MS, at * MS + 10 * US, 8, correlation=at) for at in range(1, 51, 5)]
    kernels = [event(ID["kernel"], 60 * MS + at * US, 60 * MS + (at + 5) * US, correlation=90 + at) for at in (0, 10)]
    asked = [call("cudaMemcpyAsync", at * MS - 9 * US, at * MS - 5 * US, at, 2) for at in range(1, 51, 5)]
    calls = [call("cudaLaunchKernel", 60 * MS + (at - 9) * US, 60 * MS + (at - 5) * US, 90 + at) for at in (0, 10)]
    return totals(made([*copies, *kernels], [*asked, *calls, *more]))


def test_what_a_thread_does_that_is_hardly_recorded_is_not_known() -> None:
    assert rarely_recorded()["idle_unknown_ns"] > 55 * MS
    assert "idle_host_ns" not in rarely_recorded()


@pytest.mark.parametrize("category", ["op", "python"])
def test_what_a_recorded_thread_does_beside_launching_is_other_work(category: str) -> None:
    begun = call("train", 2 * MS, 2 * MS + US) | {"category": category}
    found = rarely_recorded(begun)
    assert "idle_unknown_ns" not in found
    assert found["idle_host_ns"] > 55 * MS
