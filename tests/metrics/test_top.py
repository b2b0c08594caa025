"""Which kernels and copies use the time of a mean iteration, from tables small enough to add up by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.classify import find_kernel_kinds
from deepprof.metrics.kernels.kernel_titles import MOST_NAMES, OTHERS
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import describe
from deepprof.metrics.top import measure_top, top_of_loop, top_of_recording
from deepprof.metrics.top_tables import TopWork
from tests.loops import MS, make_loop
from tests.tables import copy, event, make_trace

WINDOWS = np.array([100, 300]), np.array([200, 400])
NAMES = (
    "gemm",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)",
    "void at::vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<c10::Half> >()",
    "void at::vectorized_elementwise_kernel<4, at::AUnaryFunctor<float, at::MulFunctor<float> > >()",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)",
)


def measure(*rows: dict[str, object], names: tuple[str, ...] = NAMES) -> TopWork:
    return measure_trace(make_trace(rows, names=names))


def measure_trace(trace: Trace, windows: tuple[np.ndarray, np.ndarray] = WINDOWS) -> TopWork:
    return measure_top(trace, find_kernel_kinds(trace), 0, windows, "iterations")


def test_calls_and_times_are_means_over_the_iterations() -> None:
    top = measure(event(0, 100, 130), event(0, 150, 160), event(0, 300, 320), event(1, 320, 330))
    assert top.kernels.rows(named=True) == [
        {"name": "gemm", "variants": 1, "calls": 1.5, "time_ns": 30, "share_ratio": 0.3, "mean_ns": 20, "max_ns": 30},
        {
            "name": "vectorized_elementwise_kernel (add)",
            "variants": 1,
            "calls": 0.5,
            "time_ns": 5,
            "share_ratio": 0.05,
            "mean_ns": 10,
            "max_ns": 10,
        },
    ]
    assert (top.iterations, top.mean_ns, top.over) == (2, 100.0, "iterations")


def test_what_starts_outside_the_iterations_counts_with_the_time_in_them_only() -> None:
    # Inside are 50 ns of the first and 1 ns of the second (199 to 200) and of the fourth (399 to 400).
    top = measure(event(0, 99, 150), event(0, 199, 210), event(0, 200, 250), event(0, 399, 401), event(0, 400, 401))
    assert top.kernels.select("calls", "time_ns", "mean_ns", "max_ns").rows() == [(1.0, 26, 6, 11)]


def test_a_kernel_that_only_runs_on_into_an_iteration_is_no_call_of_it() -> None:
    assert measure(event(0, 90, 120)).kernels.select("calls", "time_ns", "mean_ns").rows() == [(0.0, 10, 30)]


def test_other_devices_waits_and_memsets_are_no_kernels() -> None:
    rows = (event(0, 110, 120, device=1), event(0, 120, 130, activity="sync"), event(0, 130, 140, activity="memset"))
    top = measure(*rows)
    assert (top.kernels.height, top.copies.height) == (0, 0)


def test_calls_that_overlap_count_once_but_each_by_its_own_length() -> None:
    top = measure(event(0, 100, 140), event(0, 120, 160, stream=9))
    assert top.kernels.select("time_ns", "mean_ns", "calls").rows() == [(30, 40, 1.0)]


def test_names_that_overlap_share_the_time_so_that_rows_add_up() -> None:
    # 100 to 200 by gemm, 120 to 160 by add too: 60 + 20 and 20; the two windows halve that.
    top = measure(event(0, 100, 200), event(1, 120, 160, stream=9))
    assert top.kernels.select("name", "time_ns", "share_ratio").rows() == [
        ("gemm", 40, 0.4),
        ("vectorized_elementwise_kernel (add)", 10, 0.1),
    ]


def test_a_collective_has_the_time_that_nothing_hides() -> None:
    top = measure(event(0, 100, 160), event(4, 120, 200, stream=20))
    assert top.kernels.select("name", "time_ns", "mean_ns").rows() == [
        ("gemm", 30, 60),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, 80),
    ]


def test_variants_of_a_kernel_are_one_row_and_other_functions_another() -> None:
    top = measure(event(1, 100, 110), event(2, 110, 130), event(3, 130, 134))
    assert top.kernels.select("name", "variants", "calls").rows() == [
        ("vectorized_elementwise_kernel (add)", 2, 1.0),
        ("vectorized_elementwise_kernel (mul)", 1, 0.5),
    ]


def test_launches_of_whole_graphs_count_as_kernels() -> None:
    top = measure(event(0, 100, 150, activity="graph"), names=("CUDA graph 7",))
    assert top.kernels.select("name", "time_ns").rows() == [("CUDA graph 7", 25)]


def test_names_beyond_all_reason_share_a_row() -> None:
    names = tuple(f"kernel_{number}" for number in range(MOST_NAMES + 3))
    rows = [event(number, 100, 102 + (number < MOST_NAMES)) for number in range(len(names))]
    kernels = measure(*rows, names=names).kernels
    assert kernels.height == MOST_NAMES + 1
    assert kernels.filter(name=OTHERS).select("variants", "calls").rows() == [(3, 1.5)]


def test_operators_keep_their_namespace() -> None:
    names = ("aten::linear", "autograd::engine::evaluate_function: AddmmBackward0")
    trace = make_trace([event(0, 100, 120), event(1, 120, 130)], names=names)
    top = measure_trace(replace(trace, notes=(describe((1, 7)),)))
    assert top.kernels["name"].to_list() == ["aten::linear", "AddmmBackward0"]


COPY_NAMES = (
    "Memcpy HtoD (Pageable -> Device)",
    "Memcpy DtoH (Device -> Pinned)",
    "Memcpy DtoD (Device -> Device)",
    "[CUDA memcpy]",
)


def test_copies_are_told_by_direction_and_memory() -> None:
    rows = (
        copy(100, 120, 400),
        copy(300, 320, 600),
        copy(130, 140, 70, "DtoH", name_id=1),
        copy(150, 156, 5_000, "DtoD", name_id=2),
        copy(160, 161, 1, "HtoD", name_id=3) | {"nbytes": None},
    )
    columns = ("direction", "memory", "calls", "nbytes", "time_ns", "share_ratio", "gigabytes_per_s")
    assert measure(*rows, names=COPY_NAMES).copies.select(columns).rows() == [
        ("HtoD", "pageable", 1.0, 500, 20, 0.2, 25.0),
        ("DtoH", "pinned", 0.5, 35, 5, 0.05, 7.0),
        ("DtoD", None, 0.5, 2_500, 3, 0.03, 833.333),
        ("HtoD", None, 0.5, None, 0, 0.005, None),
    ]


def test_copies_without_a_size_do_not_dilute_the_rate() -> None:
    copies = measure(copy(100, 110, 100), copy(120, 150, 0) | {"nbytes": None}, names=COPY_NAMES).copies
    assert copies.select("nbytes", "time_ns", "gigabytes_per_s").rows() == [(50, 20, 10.0)]


def with_kernels(loop: Loop) -> Trace:
    starts = loop.iterations["start_ns"].to_list()
    return make_trace([event(0, start, start + 2 * MS) for start in starts], names=("gemm",))


def test_the_iterations_are_those_of_the_table_of_parts() -> None:
    loop = make_loop([50, 10, 12], warmup=1, cut=1)
    trace = with_kernels(loop)
    top = top_of_loop(loop, trace, find_kernel_kinds(trace))
    assert top is not None
    assert (top.iterations, top.mean_ns) == (2, 11 * MS)
    assert top.kernels.select("calls", "time_ns").rows() == [(1.0, 2 * MS)]


def test_without_a_usual_iteration_nothing_is_said() -> None:
    loop = make_loop([])
    trace = with_kernels(loop)
    assert top_of_loop(loop, trace, find_kernel_kinds(trace)) is None


def test_a_recording_is_measured_from_its_first_event_to_its_last() -> None:
    trace = make_trace([event(0, 100, 160), copy(150, 200, 10)], names=("gemm",))
    top = top_of_recording(trace, 0, find_kernel_kinds(trace))
    assert top is not None
    assert (top.over, top.iterations, top.mean_ns) == ("recording", 1, 100.0)
    assert top.kernels["share_ratio"].to_list() == [0.6]
    assert top.copies["share_ratio"].to_list() == [0.5]


@pytest.mark.parametrize("rows", [(), (event(0, 5, 5),), (event(0, 5, 9, device=1),)])
def test_a_device_without_work_has_no_top(rows: tuple[dict[str, object], ...]) -> None:
    trace = make_trace(rows, names=("gemm",))
    assert top_of_recording(trace, 0, find_kernel_kinds(trace)) is None


def test_every_kernel_is_in_a_row() -> None:
    random = np.random.default_rng(3)
    starts = np.sort(random.integers(0, 1_000, 200))
    rows = [event(int(name), int(at), int(at) + 3) for name, at in zip(random.integers(0, 9, 200), starts, strict=True)]
    begin = np.array([0, 250, 600])
    top = measure_trace(make_trace(rows), (begin, begin + 200))
    inside = sum(int(((starts >= low) & (starts < low + 200)).sum()) for low in begin)
    assert round(float(top.kernels["calls"].sum()) * 3) == inside
    assert top.kernels["time_ns"].is_sorted(descending=True)
    assert isinstance(top.kernels, pl.DataFrame)
