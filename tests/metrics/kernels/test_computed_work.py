"""What a device computes, added up by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.computed_work import WORK, WORK_OF_KERNELS, list_kernels, measure_work
from deepprof.metrics.kernels.kinds import KERNEL_KINDS
from deepprof.metrics.kernels.loop_work import LoopWork, measure_loop_work
from tests.loops import MS, make_loop
from tests.tables import copy, event, make_trace

KINDS = {
    "gemm": ("matmul", "bf16", "tensor_core", True),
    "sgemm": ("matmul", "fp32", "simt", True),
    "softmax": ("softmax", None, None, True),
    "mystery": ("unknown", None, None, False),
    "maybe": ("softmax", None, None, False),
    "ncclDevKernel_AllReduce": ("unknown", None, None, False),
}
NAMES = tuple(KINDS)
GEMM, SGEMM, SOFTMAX, MYSTERY, MAYBE, NCCL = range(len(NAMES))
WINDOWS = np.array([100, 200]), np.array([200, 300])


def kinds_of(trace: Trace) -> KernelKinds:
    """Kinds by name as `KINDS` states them, whatever the patterns state."""
    rows = [(category, precision, unit, None, None, sure) for category, precision, unit, sure in KINDS.values()]
    table = pl.DataFrame(rows, schema=dict(KERNEL_KINDS), orient="row")
    named = table.select(pl.Series("name", NAMES), pl.lit(None, pl.String).alias("operator"), pl.all())
    is_kernel = (trace.device_events["activity"] == "kernel").to_numpy()
    return KernelKinds(named, np.where(is_kernel, trace.device_events["name_id"].to_numpy().astype(np.int64), -1))


def measure(*rows: dict[str, object], windows: tuple[np.ndarray, np.ndarray] | None = WINDOWS) -> pl.DataFrame:
    trace = make_trace(rows, names=NAMES)
    return measure_work(trace, kinds_of(trace), 0, windows).table


def test_rows_are_means_over_the_windows_the_longest_first() -> None:
    table = measure(event(GEMM, 100, 160), event(SOFTMAX, 160, 170), event(GEMM, 200, 220), event(SGEMM, 220, 230))
    assert table.rows() == [
        ("matmul", "bf16", "tensor_core", 1.0, 40.0, 0.8, 1.0),
        ("matmul", "fp32", "simt", 0.5, 5.0, 0.1, 1.0),
        ("softmax", None, None, 0.5, 5.0, 0.1, 1.0),
    ]
    assert table.schema == dict(WORK)


def test_kernels_of_one_kind_are_one_row_and_sure_as_far_as_their_time_is() -> None:
    (row,) = measure(event(SOFTMAX, 100, 130), event(MAYBE, 130, 140)).rows(named=True)
    assert (row["category"], row["kernels"], row["time_ns"], row["sure_ratio"]) == ("softmax", 1.0, 20.0, 0.75)


def test_a_collective_has_what_nothing_hides_whatever_its_kind_was() -> None:
    trace = make_trace([event(GEMM, 100, 130), event(NCCL, 120, 150, stream=20)], names=NAMES)
    work = measure_work(trace, kinds_of(trace), 0, (np.array([100]), np.array([200])))
    assert work.table.select("category", "time_ns", "share_ratio").rows() == [
        ("matmul", 30.0, 0.6),
        ("communication", 20.0, 0.4),
    ]
    assert work.time_ns == 50.0


def test_a_graph_recorded_as_one_event_is_unknown() -> None:
    trace = make_trace([event(GEMM, 100, 140, activity="graph")], names=NAMES)
    work = measure_work(trace, kinds_of(trace), 0)
    assert work.table.select("category", "time_ns", "sure_ratio").rows() == [("unknown", 40.0, 0.0)]
    assert work.kernels.select("kind", "name", "category", "mean_ns").rows() == [(-1, None, "unknown", 40.0)]
    assert work.graph_ns == work.without_kernels().graph_ns == 40.0
    assert work.without_kernels().kernels.is_empty()
    assert work.without_kernels().table is work.table


def test_kernels_by_name_have_their_mean_length_and_their_part() -> None:
    trace = make_trace([event(GEMM, 100, 140), event(SGEMM, 120, 140, stream=9), event(GEMM, 140, 150)], names=NAMES)
    work = measure_work(trace, kinds_of(trace), 0, WINDOWS)
    assert work.kernels.select("name", "kernels", "time_ns", "mean_ns").rows() == [
        ("gemm", 1.0, 20.0, 25.0),
        ("sgemm", 0.5, 5.0, 20.0),
    ]
    assert work.kernels.schema == dict(WORK_OF_KERNELS)
    assert repr(work) == "Work(2 rows, 2 kernels, 2.5e-05 ms)"


def test_the_share_of_products_on_matrix_units() -> None:
    trace = make_trace([event(GEMM, 100, 130), event(SGEMM, 130, 140), event(SOFTMAX, 140, 200)], names=NAMES)
    work = measure_work(trace, kinds_of(trace), 0)
    assert work.matrix_unit_ratio == 0.75
    other = make_trace([event(SOFTMAX, 140, 200), event(MYSTERY, 200, 210)], names=NAMES)
    assert measure_work(other, kinds_of(other), 0).matrix_unit_ratio is None


@pytest.mark.parametrize("rows", [(), (copy(110, 120, 8),), (event(GEMM, 110, 120, device=1),)])
def test_without_kernels_there_are_no_rows(rows: tuple[dict[str, object], ...]) -> None:
    assert measure(*rows).is_empty()
    assert measure(*rows, windows=None).is_empty()


def test_a_kernel_without_length_is_a_row_without_time() -> None:
    (row,) = measure(event(GEMM, 110, 110), windows=None).rows(named=True)
    assert (row["kernels"], row["time_ns"], row["share_ratio"], row["sure_ratio"]) == (1.0, 0.0, 0.0, None)


def test_kernels_are_listed_where_they_start_with_their_kind() -> None:
    trace = make_trace([event(SGEMM, 90, 110), event(GEMM, 120, 130), event(SOFTMAX, 290, 310)], names=NAMES)
    listed = list_kernels(trace, kinds_of(trace), 0, WINDOWS).select("event", "window", "kind", "ns", "part_ns")
    assert listed.rows() == [
        (1, 0, 0, 10, 10.0),
        (2, 1, 2, 20, 10.0),
    ]


def of_loop(times_ms: list[float], **flags: int) -> tuple[LoopWork, Trace]:
    """A loop whose iterations have a product of 2 ms, and, 1 ms later, 1 ms of softmax."""
    loop = make_loop(times_ms, **flags)
    starts = loop.iterations["start_ns"].to_list()
    rows = [event(GEMM, at, at + 2 * MS) for at in starts] + [event(SOFTMAX, at + 3 * MS, at + 4 * MS) for at in starts]
    trace = make_trace(rows, names=NAMES)
    work = measure_loop_work(loop, trace, kinds_of(trace))
    assert work is not None
    loop = replace(loop, work=work)
    return LoopWork(loop, trace, kinds_of(trace), work, None, None, None), trace


def test_a_loop_is_measured_over_its_usual_iterations() -> None:
    seen, _ = of_loop([50, 10, 12], warmup=1, cut=1)
    assert seen.work.table.select("category", "kernels", "time_ns").rows() == [
        ("matmul", 1.0, 2.0 * MS),
        ("softmax", 1.0, 1.0 * MS),
    ]
    assert (seen.iterations, seen.iteration_ns, seen.computing_ns) == (2, 11.0 * MS, 3.0 * MS)
    assert (seen.share(1.1 * MS), seen.work_share(1.5 * MS)) == (0.1, 0.5)
    assert seen.kernels["window"].to_list() == [0, 0, 1, 1]


def test_one_iteration_is_enough_and_none_is_not() -> None:
    seen, trace = of_loop([10])
    assert seen.work.table["time_ns"].to_list() == [2.0 * MS, 1.0 * MS]
    assert measure_loop_work(make_loop([]), trace, kinds_of(trace)) is None


def test_the_device_is_busy_as_the_table_of_iterations_has_it() -> None:
    seen, _ = of_loop([10, 10], busy_ns=4)
    busy = seen.loop.usual["busy_ns"].sum()
    assert seen.busy_ratio == busy / (busy + seen.loop.usual["idle_ns"].sum())
