"""Operand footprints by hand, and of a program whose tensors are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof.collectors.importers import read
from deepprof.collectors.trace import OPERANDS, Trace
from deepprof.metrics.memory.operand_footprints import (
    FOOTPRINTS,
    WORKING_SETS,
    _find_quantile,
    measure_footprints,
    measure_working_sets,
)
from tests.metrics.memory.test_floors import mark, with_memory
from tests.tables import Row, event, launch, make_trace, table

Call = tuple[str, list[object], list[str]]
FLOAT = "float"
MATRICES: Call = ("aten::mm", [[8, 4], [4, 16]], [FLOAT, FLOAT])  # 128 + 256 bytes in, 512 out
IN_PLACE: Call = ("aten::add_", [[100], [100], []], [FLOAT, FLOAT, "Scalar"])  # 800
NO_RULE: Call = ("mine::norm", [[10]], ["double"])  # 80
NO_TYPE: Call = ("aten::_foreach_add_", [[[10], [10]], []], ["TensorList", "Scalar"])
OLD_RESULT: Call = ("aten::add", [[100], [100], []], [FLOAT, FLOAT, "Int"])
OLD: Call = ("aten::add_", [[100], [100], []], [FLOAT, FLOAT, "Int"])


def record(*calls: Call, on_device: bool = True, strides: list[object] | None = None) -> Trace:
    """Return operators one after the other, each with a kernel if the trace is one of a device."""
    host: list[Row] = []
    device: list[Row] = []
    operands: list[Row] = []
    names = ["cudaLaunchKernel", "kernel", *(name for name, *_ in calls)]
    for k, (_, dims, dtypes) in enumerate(calls):
        operator: Row = {"start_ns": 10 * k, "end_ns": 10 * k + 9, "process": 1, "thread": 1, "category": "op"}
        operands.append({"event": len(host), "dims": json.dumps(dims), "dtypes": json.dumps(dtypes)})
        operands[-1]["strides"] = None if strides is None else json.dumps(strides)
        host.append(operator | {"name_id": 2 + k})
        if on_device:
            host.append(launch(k, 10 * k + 1, 10 * k + 2))
            device.append(event(1, 10 * k + 3, 10 * k + 8, correlation=k))
    return replace(make_trace(device, host, names=names), operands=table(operands, OPERANDS))


def footprints(*calls: Call, on_device: bool = True, strides: list[object] | None = None) -> list[object]:
    return measure_footprints(record(*calls, on_device=on_device, strides=strides))["footprint_nbytes"].to_list()


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize(
    ("call", "nbytes"),
    [(MATRICES, 896), (IN_PLACE, 800), (NO_RULE, 80), (NO_TYPE, None), (OLD, 800), (OLD_RESULT, 1200)],
)
def test_operands_and_what_is_written_beside_them(call: Call, nbytes: int | None, on_device: bool) -> None:
    assert footprints(call, on_device=on_device) == [nbytes]


@pytest.mark.parametrize("on_device", [True, False])
def test_a_function_around_operators_is_no_operator(on_device: bool) -> None:
    """What a compiled function is given is not what each of its kernels needs."""
    trace = record(("CompiledFunction", [[1000]], [FLOAT]), on_device=on_device)
    assert measure_footprints(trace)["footprint_nbytes"].to_list() == [None] * on_device


@pytest.mark.parametrize("dtypes", [None, "[]"])
def test_without_types_no_size_is_known(dtypes: str | None) -> None:
    """As older recorders write shapes only; numbers then look like tensors without sides."""
    trace = record(("aten::add", [[], []], [FLOAT, FLOAT]))
    bare = replace(trace, operands=trace.operands.with_columns(dtypes=pl.lit(dtypes, pl.String)))
    assert measure_footprints(bare)["footprint_nbytes"].to_list() == [None]


def test_a_broadcast_tensor_holds_less_than_its_shape() -> None:
    assert footprints(IN_PLACE, strides=[[1], [0], []]) == [404]


def test_the_type_of_lists_is_that_of_the_kernel() -> None:
    trace = record(NO_TYPE)
    named = replace(trace, names=trace.names.set(trace.names == "kernel", "multi_tensor_apply_kernel<float, Add>"))
    assert measure_footprints(named)["operand_nbytes"].to_list() == [80]


def test_kernels_of_one_operator_and_shape_are_one_row() -> None:
    rows = measure_footprints(record(IN_PLACE, MATRICES, IN_PLACE))
    assert rows.select("kernel", "operator", "kernels", "footprint_nbytes").rows() == [
        ("kernel", "aten::mm", 1, 896),
        ("kernel", "aten::add_", 2, 800),
    ]


def test_operators_that_only_call_others_are_not_counted_on_a_cpu() -> None:
    trace = record(("aten::linear", [[8, 4], [16, 4]], [FLOAT, FLOAT]), MATRICES, on_device=False)
    inside = trace.host_events.with_columns(start_ns=pl.Series([0, 2]), end_ns=pl.Series([9, 8]))
    assert measure_footprints(replace(trace, host_events=inside))["operator"].to_list() == ["aten::mm"]


def test_the_working_set_is_the_largest() -> None:
    trace = with_memory(record(IN_PLACE, MATRICES, IN_PLACE, NO_RULE, NO_TYPE), [mark(0, 1792, 1792), mark(1, -5, 9)])
    [row] = measure_working_sets(measure_footprints(trace), trace).rows(named=True)
    assert row == {
        "device": 0,
        "kernels": 4,
        "unknown_kernels": 1,
        "working_set_nbytes": 896,
        "mean_nbytes": pytest.approx((896 + 2 * 800 + 80) / 4),
        "median_nbytes": 800,
        "p90_nbytes": 896,
        "footprint_nbytes": 1792,
        "footprint_ratio": 2.0,
        "kernel": "kernel",
        "operator": "aten::mm",
        "dims": "[[8, 4], [4, 16]]",
    }


@given(st.dictionaries(st.integers(0, 99), st.integers(1, 5), min_size=1), st.sampled_from([0.5, 0.9, 1.0]))
def test_quantiles_are_those_of_the_kernels_one_by_one(counts: dict[int, int], share: float) -> None:
    sizes = np.array(sorted(counts, reverse=True), np.int64)
    weights = np.array([counts[size] for size in sizes.tolist()], np.int64)
    each = sorted(size for size, count in counts.items() for _ in range(count))
    least = next(size for size in each if sum(other <= size for other in each) >= share * len(each))
    assert _find_quantile(sizes, weights, share) == least


def test_without_details_operators_or_kernels() -> None:
    bare = replace(record(MATRICES), operands=make_trace().operands)
    found = measure_footprints(bare)
    assert found.select("kernels", "footprint_nbytes").rows() == [(1, None)]
    assert measure_working_sets(found, bare).row(0)[:4] == (0, 0, 1, None)
    for empty in (make_trace(), make_trace([event(0, 1, 2, activity="memset", nbytes=8)])):
        none = measure_footprints(empty)
        assert (none.schema, none.height) == (pl.Schema(FOOTPRINTS), 0)
        assert measure_working_sets(none, empty).schema == pl.Schema(WORKING_SETS)
    alone = measure_footprints(make_trace([event(0, 1, 2)]))
    assert alone.select("kernel", "operator", "footprint_nbytes").rows() == [("k0", None, None)]


def test_a_real_program(tmp_path: Path) -> None:
    """Of y = x W, where x is 64 × 256 and W 256 × 512, the product is the working set."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "trace.json"
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True) as profiler:
        x, weight = torch.zeros(64, 256), torch.zeros(256, 512)
        for _ in range(20):
            torch.mm(x, weight).relu_()
    profiler.export_chrome_trace(str(path))
    recorded = read(path, details=True)
    [standing_in] = deepprof.analyze(recorded).traces
    rows = measure_footprints(standing_in, recorded)
    assert rows.row(0, named=True)["operator"] == "aten::mm"
    assert rows.row(0, named=True)["kernels"] == 20
    assert rows["footprint_nbytes"][0] == 4 * (64 * 256 + 256 * 512 + 64 * 512)
    [found] = measure_working_sets(rows, standing_in).rows(named=True)
    assert found["footprint_nbytes"] == recorded.memory_events["allocated_nbytes"].max()  # other tests' tensors too
    assert found["footprint_nbytes"] >= 4 * (64 * 256 + 256 * 512 + 64 * 512)
