"""What the launching threads did: which calls and ranges count as what, and on whose threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.host_states import HostStates, launches_within, long_without, read_states
from deepprof.metrics.spans import Spans, covered
from tests.tables import Row, copy, event, launch, make_trace, span

MS = 1_000_000
US = 1_000
LONG = "x" * 2**20


def launches(*times: int, kernels: int = 1, process: int = 1, thread: int = 1) -> pl.DataFrame:
    rows = {"launch_ns": times, "process": process, "thread": thread, "kernels": kernels}
    return pl.DataFrame(rows, schema=dict.fromkeys(rows, pl.Int64))


def pairs(spans: Spans) -> list[tuple[int, int]]:
    return list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))


def state(
    names: list[str], host: list[Row], ranges: Sequence[Row] = (), launched: pl.DataFrame | None = None
) -> HostStates:
    trace = make_trace([], host, ranges, names)
    return read_states(trace, launches(0) if launched is None else launched)


def python(name: int, start: int, end: int, category: str = "python") -> Row:
    return launch(0, start, end, name) | {"category": category, "correlation": None}


def test_nothing_is_nothing() -> None:
    found = state([], [], launched=launches())
    assert all(pairs(spans) == [] for spans in (found.input, found.waiting, found.allocator, found.other))
    assert all(len(times) == 0 for times in (found.launches_ns, found.waits_ns, found.allocations_ns, found.builds_ns))


@pytest.mark.parametrize(
    ("name", "is_wait"),
    [
        ("cudaStreamSynchronize", True),
        ("cudaEventSynchronize_v3020", True),
        ("hipDeviceSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cudaMemcpy", True),
        ("cudaMemcpy2D_v3020", True),
        ("hipMemcpyDtoH", True),
        ("cudaMemset_ptds_v7000", True),
        ("cudaMemcpyAsync", False),
        ("cuMemcpyHtoDAsync_v2", False),
        ("hipMemcpyAsync", False),
        ("cudaStreamWaitEvent", False),
        ("cudaEventQuery", False),
        ("cudaLaunchKernel", False),
        ("cudaGraphAddMemcpyNode", False),
    ],
)
def test_calls_that_wait_for_the_device(name: str, is_wait: bool) -> None:
    found = state([name], [launch(1, 0, 20 * US)])
    assert pairs(found.waiting) == ([(0, 20 * US)] if is_wait else [])
    assert len(found.waits_ns) == is_wait


def test_an_asynchronous_copy_waits_when_it_takes_too_long() -> None:
    calls = [launch(1, 0, 100 * US), launch(2, MS, MS + 100 * US + 1)]
    assert pairs(state(["cudaMemcpyAsync"], calls).waiting) == [(MS, MS + 100 * US + 1)]


@pytest.mark.parametrize(
    "name",
    [
        "cudaMalloc",
        "cudaFree_v3020",
        "cudaMallocAsync",
        "cudaHostAlloc",
        "cudaFreeHost",
        "hipMalloc",
        "hipFree",
        "hipExtMallocWithFlags",
        "hipHostMalloc",
        "cuMemAlloc_v2",
        "cuMemCreate",
        "cuMemMap",
        "cuMemAddressReserve",
    ],
)
def test_calls_of_the_allocator(name: str) -> None:
    found = state([name], [launch(1, 5, 50)])
    assert (pairs(found.allocator), found.allocations_ns.tolist(), pairs(found.waiting)) == ([(5, 50)], [5], [])


@pytest.mark.parametrize("name", ["cudaMemGetInfo", "cudaMemcpy", "cudaMemset", "cudaLaunchKernel", "freeze", "malloc"])
def test_other_calls_are_not_the_allocators(name: str) -> None:
    assert pairs(state([name], [launch(1, 5, 50)]).allocator) == []


@pytest.mark.parametrize("name", ["cuModuleLoadData", "cuLibraryLoadData", "hipModuleLoad", "cudaGraphInstantiate"])
def test_code_and_graphs_are_built_by_the_host(name: str) -> None:
    found = state([name], [launch(1, 5, 50)])
    assert (pairs(found.other), found.builds_ns.tolist()) == ([(5, 50)], [5])


@pytest.mark.parametrize(("done", "waits"), [(30, True), (41, False)])
def test_a_short_copy_waits_where_it_returns_after_the_copy_is_done(done: int, waits: bool) -> None:
    device = [copy(20, done, 0, correlation=2)]
    found = read_states(make_trace(device, [launch(2, 0, 40)], names=["cudaMemcpyAsync"]), launches(0))
    assert pairs(found.waiting) == ([(0, 40)] if waits else [])


def test_a_long_pause_is_other_work_and_no_part_of_the_wait() -> None:
    calls = [launch(1, 0, 40, 0), launch(2, 41 + MS, 42 + MS, 1), launch(3, 42 + 2 * MS, 43 + 2 * MS, 1)]
    found = state(["cudaStreamSynchronize", "cudaLaunchKernel"], calls)
    assert pairs(found.other) == [(40, 41 + MS)]  # the second pause is a millisecond and no longer
    assert pairs(found.waiting) == [(0, 40)]


def test_forward_and_backward_threads_are_looked_at_together() -> None:
    forward = [launch(1, 0, 10), launch(2, 5 * MS, 5 * MS + 10)]
    backward = [launch(n, at, at + 10) | {"thread": 2} for n, at in enumerate(range(10, 5 * MS, MS), 3)]
    both = pl.concat([launches(0), launches(10, thread=2)])
    assert pairs(state(["cudaLaunchKernel"], [*forward, *backward], launched=both).other) == []
    assert pairs(state(["cudaLaunchKernel"], forward).other) == [(10, 5 * MS)]


@pytest.mark.parametrize("place", [{"thread": 2}, {"process": 2}, {"thread": None}])
def test_other_threads_and_processes_do_not_count(place: Row) -> None:
    calls = [launch(1, 0, 9 * MS, 0) | place, launch(2, 0, 9 * MS, 1) | place]
    loads = [span(2, 0, 9 * MS) | place]
    found = state(["cudaStreamSynchronize", "cudaMalloc", "enumerate(DataLoader)#x"], calls, loads)
    assert pairs(found.waiting) == pairs(found.allocator) == pairs(found.input) == []


def test_threads_without_a_number_are_one_thread() -> None:
    call = launch(1, 3, 9) | {"process": None, "thread": None}
    unnumbered = launches(0).with_columns(pl.lit(None, pl.Int64).alias(c) for c in ("process", "thread"))
    assert pairs(state(["cudaStreamSynchronize"], [call], launched=unnumbered).waiting) == [(3, 9)]


def test_what_the_recorder_does_counts_on_every_thread() -> None:
    row = python(0, 4, 8, "overhead") | {"thread": 77}
    assert pairs(state(["Activity Buffer Request"], [row]).recorder) == [(4, 8)]


@pytest.mark.parametrize(
    ("name", "loads"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", True),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", True),
        ("load_batch", True),
        ("get_batch", True),
        ("next_batch", True),
        ("IteratorGetNext", True),
        ("data loading", True),
        ("torch/utils/data/dataloader.py(521): __next__", True),
        ("/opt/venv/lib/torch/utils/data/dataloader.py(521): __next__", True),
        ("/home/me/dataloader_bench/train.py(10): step", False),
        (r"C:\dataloading\train.py(10): step", False),
        ("forward", False),
        ("reader_thread_pool", False),
        ("", False),
        (LONG, False),
        (LONG + "dataloader", True),
    ],
    ids=lambda value: str(value)[:40],
)
def test_names_of_ranges_that_load_data(name: str, loads: bool) -> None:
    expected = [(5, 50)] if loads else []
    assert pairs(state([name], [], [span(0, 5, 50)]).input) == expected
    assert pairs(state([name], [python(0, 5, 50)]).input) == expected


def test_nested_ranges_of_one_loader_count_once_and_open_ones_not_at_all() -> None:
    ranges = [span(0, 0, 90), span(0, 10, 40), span(0, 20, 30), span(0, 200, 200), span(0, 300, 300) | {"end_ns": None}]
    assert pairs(state(["enumerate(DataLoader)#x"], [], ranges).input) == [(0, 90)]


def test_the_dataloader_category_needs_no_name() -> None:
    assert pairs(state(["x"], [python(0, 5, 50, "dataloader")]).input) == [(5, 50)]


@pytest.mark.parametrize(("kernels", "expected"), [(8, [(10, 20)]), (9, [])])
def test_a_range_in_which_many_kernels_are_launched_is_no_loading(
    kernels: int, expected: list[tuple[int, int]]
) -> None:
    each = launches(9, *([15] * kernels), 20)  # those at 9 and at 20 are outside
    assert pairs(state(["load_batch"], [], [span(0, 10, 20)], each).input) == expected
    graph = launches(15, kernels=kernels)
    assert pairs(state(["load_batch"], [], [span(0, 10, 20)], graph).input) == expected


def test_a_loop_named_after_its_loader_is_not_the_loader() -> None:
    ranges = [span(0, 0, 1_000), span(1, 100, 150), span(1, 600, 650)]
    names = ["train_dataloader_loop", "enumerate(DataLoader)#x"]
    assert pairs(state(names, [], ranges, launches(*range(0, 1_000, 50))).input) == [(100, 150), (600, 650)]


def test_operators_of_a_machine_without_a_device_are_its_calls() -> None:
    trace = make_trace([], [], [], ["x"])
    operators = Spans(np.array([0, 2 * MS]), np.array([10, 2 * MS + 10]))
    assert pairs(read_states(trace, launches(0), operators).other) == [(10, 2 * MS)]


def test_rows_that_never_ended_are_left_out() -> None:
    # A recorder of one's own may leave an end out; nothing may turn the times into floats, which are too coarse.
    trace = make_trace([], [launch(1, 0, 5), launch(2, 7, 9)], [], ["cudaStreamSynchronize"])
    open_end = trace.host_events.with_columns(end_ns=pl.when(pl.col("start_ns") > 0).then("end_ns"))
    found = read_states(replace_host(trace, open_end), launches(0))
    assert pairs(found.waiting) == [(7, 9)]
    assert found.waiting.ends.dtype == np.int64


def replace_host(trace: Trace, rows: pl.DataFrame) -> Trace:
    return replace(trace, host_events=rows)


def test_what_other_threads_launch_meanwhile_makes_loading_no_training() -> None:
    """A helper launches 40 kernels while the main thread, which launches most, loads a batch."""
    main, helper = launches(*range(50, 1000)), launches(*range(0, 40), thread=2)
    ranges = [span(0, 0, 40), span(0, 40, 1000)]
    found = state(["load_batch"], [], ranges, pl.concat([main, helper, launches(*range(100, 190), thread=2)]))
    assert pairs(found.input) == [(0, 40)]


@given(data=st.data())
def test_launches_are_counted_as_one_by_one(data: st.DataObject) -> None:
    times, threads = st.integers(0, 30), st.integers(1, 3)
    calls = data.draw(st.lists(st.tuples(times, threads, st.integers(1, 5)), max_size=30))
    loads = data.draw(st.lists(st.tuples(times, times, threads), min_size=1, max_size=10))
    schema = dict.fromkeys(("launch_ns", "thread", "kernels"), pl.Int64)
    launched = pl.DataFrame(calls, schema, orient="row").with_columns(process=pl.lit(1, pl.Int64))
    ends = [(min(a, b), max(a, b), thread) for a, b, thread in loads]
    rows = pl.DataFrame(ends, dict.fromkeys(("start_ns", "end_ns", "thread"), pl.Int64), orient="row")
    found = launches_within(rows.with_columns(process=pl.lit(1, pl.Int64)), launched)
    wanted = [sum(k for at, thread, k in calls if a <= at < b and thread == own) for a, b, own in ends]
    assert found.to_list() == wanted


def test_a_launch_far_longer_than_others_is_blocked_unless_its_kernel_is_new() -> None:
    usual = [launch(i, i * MS, i * MS + 10 * US) for i in range(1, 9)]
    device = [event(0, i * MS + 20 * US, i * MS + 30 * US, correlation=i) for i in range(1, 9)]
    for name, is_new in ((0, False), (1, True)):
        last = event(name, 701 * MS, 702 * MS, correlation=9)
        trace = make_trace([*device, last], [*usual, launch(9, 100 * MS, 700 * MS)], names=["cudaLaunchKernel", "new"])
        found = read_states(trace, launches(0))
        assert (pairs(found.first_use), pairs(found.blocked)) == (([], [(100 * MS, 700 * MS)])[:: -1 if is_new else 1])


def test_a_kernel_whose_every_launch_is_long_is_blocked_at_its_first_one_too() -> None:
    rows = [(i, 10 * i * MS, 2 if i % 5 == 4 else 1, 4 * MS if i % 5 == 4 else 10 * US) for i in range(20)]
    device = [
        event(name, begin + length + US, begin + length + 2 * US, correlation=i) for i, begin, name, length in rows
    ]
    host = [launch(i, begin, begin + length) for i, begin, _, length in rows]
    found = read_states(make_trace(device, host, names=["cudaLaunchKernel", "short", "long"]), launches(0))
    assert (pairs(found.first_use), len(pairs(found.blocked))) == ([], 4)


@pytest.mark.parametrize("again", [True, False])
def test_one_long_first_launch_loads_code_though_other_first_launches_are_short(again: bool) -> None:
    device = [event(i, i * MS + 20 * US, i * MS + 30 * US, correlation=i) for i in range(1, 9)]
    host = [launch(i, i * MS, i * MS + 10 * US) for i in range(1, 8)]
    host.append(launch(8, 8 * MS, 500 * MS))
    if again:
        host.append(launch(9, 600 * MS, 600 * MS + 10 * US))
        device.append(event(1, 601 * MS, 602 * MS, correlation=9))
    found = read_states(make_trace(device, host, names=["cudaLaunchKernel", *"abcdefgh"]), launches(0))
    assert (pairs(found.first_use), pairs(found.blocked)) == ([(8 * MS, 500 * MS)], [])


@pytest.mark.parametrize(
    ("name", "blocks"), [("cudaMemcpyAsync", True), ("cudaEventRecord", True), ("cudaMemcpy", False)]
)
def test_a_copy_or_an_event_of_half_a_second_is_blocked_unless_it_waits(name: str, blocks: bool) -> None:
    device = [event(0, 0, 10 * US, correlation=1)]
    found = read_states(make_trace(device, [launch(2, MS, 464 * MS)], names=[name]), launches(0))
    assert pairs(found.blocked) == ([(MS, 464 * MS)] if blocks else [])


def test_allocations_that_are_all_long_are_no_first_use() -> None:
    slow = [launch(i, i * 1_000 * MS, i * 1_000 * MS + 60 * MS) for i in range(1, 9)]
    found = state(["cudaMalloc"], slow)
    assert (pairs(found.first_use), pairs(found.blocked)) == ([], [])


def test_the_first_frees_start_a_library_though_they_are_all() -> None:
    frees = [launch(0, i * 500 * MS, i * 500 * MS + 190 * MS) for i in range(1, 4)]
    assert len(pairs(state(["cudaFree"], frees).first_use)) == 3
    short = [launch(0, i * 500 * MS, i * 500 * MS + 9 * MS) for i in range(1, 4)]
    assert pairs(state(["cudaFree"], short).first_use) == []


def test_a_module_is_loaded_for_the_first_use_of_the_next_kernel() -> None:
    device = [event(at, at * MS, at * MS + 10 * US, correlation=at) for at in (1, 2)]
    device.append(event(1, 3 * MS, 3 * MS + 10 * US, correlation=3))
    host = [launch(at, at * MS - 20 * US, at * MS - 10 * US) for at in (1, 2, 3)]
    loads = [launch(0, at * MS - 500 * US, at * MS - 100 * US, 3) for at in (2, 3)]
    rows = sorted([*host, *loads], key=lambda row: row["start_ns"])
    found = read_states(make_trace(device, rows, names=["cudaLaunchKernel", "a", "b", "cuModuleLoadData"]), launches(0))
    assert pairs(found.first_use) == [(2 * MS - 500 * US, 2 * MS - 100 * US)]


def test_a_capture_lasts_from_the_call_that_begins_it_to_the_one_that_ends_it() -> None:
    names = ["cudaLaunchKernel", "cudaStreamBeginCapture_v10000", "cudaStreamEndCapture", "cudaStreamGetCaptureInfo"]
    calls = [(1, MS), (3, 2 * MS), (0, 3 * MS), (2, 9 * MS), (0, 20 * MS), (1, 30 * MS)]  # the last one is never ended
    found = state(names, [launch(0, begin, begin + 10 * US, name) for name, begin in calls])
    assert pairs(found.captures) == [(MS, 9 * MS + 10 * US)]
    assert covered(found.other, found.captures.starts, found.captures.ends).sum() == found.captures.total_ns


def test_a_long_time_before_the_first_call_or_after_the_last_is_other_work_of_the_host() -> None:
    found = state(["cudaLaunchKernel"], [launch(1, 10 * MS, 11 * MS), launch(2, 12 * MS, 13 * MS)])
    assert pairs(long_without(found, (0, 20 * MS))) == [(0, 10 * MS), (13 * MS, 20 * MS)]
    assert pairs(long_without(found, (9 * MS, 14 * MS + 1))) == [(13 * MS, 14 * MS + 1)]
    assert pairs(long_without(found, (9 * MS, 14 * MS))) == []


@pytest.mark.parametrize(
    ("usual", "pause", "other"), [(5, 194, 0), (5, 196, 1), (30, 271, 1), (30, 269, 0), (200, 799, 0), (200, 801, 1)]
)
def test_a_pause_far_longer_than_the_others_is_other_work(usual: int, pause: int, other: int) -> None:
    begins = [(usual + 3) * i * US + (i >= 20) * pause * US for i in range(40)]
    calls = [launch(i, begin, begin + 3 * US) for i, begin in enumerate(begins)]
    assert len(pairs(state(["cudaLaunchKernel"], calls).other)) == other


def test_a_program_with_many_long_pauses_launches_that_slowly() -> None:
    begins = [13 * i * US + (i // 10) * 500 * US for i in range(100)]
    calls = [launch(i, begin, begin + 3 * US) for i, begin in enumerate(begins)]
    assert pairs(state(["cudaLaunchKernel"], calls).other) == []


@pytest.mark.parametrize(("between", "other"), [(2, 7), (6, 0)])
def test_host_work_in_each_iteration_of_few_fast_launches_is_no_launching(between: int, other: int) -> None:
    begins = [(between + 3) * i * US + (i // 12) * 500 * US for i in range(96)]
    calls = [launch(i, begin, begin + 3 * US) for i, begin in enumerate(begins)]
    assert len(pairs(state(["cudaLaunchKernel"], calls).other)) == other


def test_a_long_launch_before_the_first_kernel_is_a_first_use_though_a_batch_was_copied_before() -> None:
    device = [event(1, 10 * US, 20 * US, activity="memcpy", correlation=9), event(1, 900 * MS, 901 * MS, correlation=2)]
    host = [launch(9, 0, 5 * US, 2), launch(1, 100 * US, 800 * MS), launch(2, 801 * MS, 801 * MS + 5 * US)]
    host += [launch(3 + i, (900 + i) * MS, (900 + i) * MS + 5 * US) for i in range(4)]
    found = read_states(make_trace(device, host, names=["cudaLaunchKernel", "a", "cudaMemcpyAsync"]), launches(0))
    assert pairs(found.first_use) == [(100 * US, 800 * MS)]


NAMES = ["cudaLaunchKernel", "aten::view", "cudaMemcpyAsync"]


def operators(*times: tuple[int, int]) -> list[Row]:
    return [python(1, begin, end, "op") for begin, end in times]


def test_a_pause_in_which_one_operator_follows_another_is_launching() -> None:
    """Splitting a flat tensor makes hundreds of views and launches nothing; a logger runs no operators."""
    calls = [launch(1, 0, 10 * US), launch(2, 15 * MS, 15 * MS + 10 * US)]
    views = operators(*((10 * US + i * 100 * US, 60 * US + i * 100 * US) for i in range(149)), (10 * US, 15 * MS))
    assert pairs(state(NAMES, [*calls, *views]).other) == []
    assert pairs(state(NAMES, calls).other) == [(10 * US, 15 * MS)]


def test_of_a_pause_with_operators_the_long_stretch_without_is_other_work() -> None:
    calls = [launch(1, 0, 10 * US), launch(2, 15 * MS, 15 * MS + 10 * US)]
    begins = [*range(10 * US, 5 * MS, 100 * US), *range(9 * MS, 15 * MS, 100 * US)]
    views = operators(*((begin, begin + 60 * US) for begin in begins))
    assert pairs(state(NAMES, [*calls, *views]).other) == [(begins[49] + 60 * US, 9 * MS)]


@pytest.mark.parametrize(("call", "length", "other"), [(0, 3, 0), (2, 3, 1), (0, 7, 1)])
def test_an_operator_prepares_its_launch_unless_it_copies_or_takes_very_long(
    call: int, length: int, other: int
) -> None:
    calls = [launch(1, 0, 10 * US), launch(2, length * MS, length * MS + 10 * US, call)]
    operator = operators((10 * US, length * MS + 20 * US))
    assert len(pairs(state(NAMES, [*calls, *operator]).other)) == other


def test_a_long_operator_that_launches_nothing_is_other_work() -> None:
    calls = [launch(1, 0, 10 * US), launch(2, 3 * MS, 3 * MS + 10 * US)]
    assert len(pairs(state(NAMES, [*calls, *operators((10 * US, 2 * MS))]).other)) == 1


def test_operators_of_other_threads_are_no_launching() -> None:
    calls = [launch(1, 0, 10 * US), launch(2, 3 * MS, 3 * MS + 10 * US)]
    views = [row | {"thread": 2} for row in operators(*((i * 100 * US, i * 100 * US + 50 * US) for i in range(30)))]
    assert len(pairs(state(NAMES, [*calls, *views]).other)) == 1
