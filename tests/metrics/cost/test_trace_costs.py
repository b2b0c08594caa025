"""The calls of traces made by hand: whose kernels are whose, what is unknown, and what kernels without a launch are."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import LAUNCH_SHAPES, OPERANDS, Trace
from deepprof.metrics.cost.signatures import find_element_type
from deepprof.metrics.cost.trace_costs import OPERATOR_CALLS, TraceCosts, find_costs
from deepprof.metrics.cpu_fallback import stand_in
from tests.metrics.contexts.test_slices import op
from tests.metrics.cost.recorded_calls import record
from tests.tables import Row, event, launch, make_trace, table

NAMES = (
    *("aten::linear", "aten::addmm", "aten::sort", "custom::op", "launch", "gemm", "sort_kernel"),
    *("ncclDevKernel_AllReduce", "aten::copy_", "copy<float>", "aten::cat", "Cat<OpaqueType<2u>, int>"),
    *("triton_poi_fused_add_mul_0", "autograd::engine::evaluate_function: MmBackward0", "aten::mm", "aten::t"),
)
LINEAR, ADDMM, SORT, CUSTOM, LAUNCH, GEMM, SORTING, NCCL, COPY, COPYING, CAT, CATTING, FUSED, NODE, MM, T = range(16)


def with_operands(trace: Trace, recorded: dict[int, tuple[str, str, str]]) -> Trace:
    """Return the trace with the operands of host events, by the time at which these start."""
    starts = trace.host_events["start_ns"].to_list()
    rows: list[Row] = [
        {"event": starts.index(start), "dims": dims, "dtypes": dtypes, "values": values}
        for start, (dims, dtypes, values) in recorded.items()
    ]
    return replace(trace, operands=table(rows, OPERANDS))


def one_launch(at: int, correlation: int) -> list[Row]:
    return [launch(correlation, at, at + 2, LAUNCH)]


def seen(costs: TraceCosts) -> list[tuple[object, ...]]:
    return costs.calls.select("operator", "flops", "nbytes", "kernels", "device_ns").rows()


def test_kernels_belong_to_the_innermost_operator_whose_cost_is_known() -> None:
    host = [
        op(1, 0, 100, LINEAR),  # a linear layer around the product that has the operands
        *(op(1, 10, 90, ADDMM), *one_launch(20, 1)),
        *(op(1, 30, 60, COPY), *one_launch(40, 2)),
        *(op(1, 200, 300, ADDMM), op(1, 210, 290, CUSTOM), *one_launch(220, 3)),  # a library inside, without a rule
        *(op(1, 400, 500, CUSTOM), op(1, 410, 490, SORT), *one_launch(420, 4)),  # no one has
    ]
    device = [
        event(GEMM, 1000, 1100, correlation=1),
        event(COPYING, 1100, 1130, correlation=2),
        event(GEMM, 1200, 1300, correlation=3),
        event(SORTING, 1400, 1500, correlation=4),
        event(NCCL, 1500, 1900, correlation=4),
        event(GEMM, 2000, 2007, correlation=99),  # from before the recording
        {**event(0, 2100, 2110), "activity": "memcpy"},
    ]
    product = record((5,), (2, 3), (3, 5), 1, 1)
    given = {0: record((2, 3), (5, 3), (5,)), 10: product, 200: product, 410: record((6, 12), -1, False)}
    given[30] = record((4,), ((4,), "bfloat16"), False)
    costs = find_costs(with_operands(make_trace(device, host, names=NAMES), given))
    assert seen(costs) == [
        ("aten::addmm", 70, 4 * (26 + 10), 1, 100),
        ("aten::copy_", 0, 24, 1, 30),
        ("aten::addmm", 70, 4 * (26 + 10), 1, 100),
        ("aten::sort", None, None, 2, 500),
    ]
    assert costs.of_events.tolist() == [0, 1, 2, 3, 3, -1, -1]
    assert costs.calls.schema == OPERATOR_CALLS
    starts = make_trace(device, host, names=NAMES).host_events["start_ns"]
    assert starts.gather(costs.calls["host_event"]).to_list() == [10, 30, 200, 410]


def test_an_operator_whose_products_are_counted_inside_is_not_counted_again() -> None:
    host = [
        op(1, 0, 100, LINEAR),  # the product inside is known, another operator inside is not
        *(op(1, 10, 40, ADDMM), *one_launch(20, 1), op(1, 50, 80, CUSTOM), *one_launch(60, 2), *one_launch(90, 3)),
        op(1, 200, 300, LINEAR),  # what is available inside is no product
        *(op(1, 210, 240, COPY), *one_launch(220, 4), op(1, 250, 280, CUSTOM), *one_launch(260, 5)),
    ]
    device = [event(GEMM, 1000 * number, 1000 * number + 100, correlation=number) for number in range(1, 6)]
    given = dict.fromkeys((0, 200), record((2, 3), (5, 3), (5,)))
    given |= {10: record((5,), (2, 3), (3, 5), 1, 1), 210: record((4,), ((4,), "bfloat16"), False)}
    costs = find_costs(with_operands(make_trace(device, host, names=NAMES), given))
    assert costs.calls.select("operator", "flops", "basis").rows() == [
        ("aten::addmm", 70, "rule"),
        ("custom::op", None, None),
        ("aten::linear", None, None),
        ("aten::copy_", 0, "rule"),
        ("aten::linear", 70, "rule"),
    ]


def test_the_kernel_states_the_type_that_lists_of_tensors_have() -> None:
    host = [op(1, 0, 100, CAT), *one_launch(20, 1), op(1, 200, 300, CAT), *one_launch(220, 2)]
    device = [event(CATTING, 1000, 1100, correlation=1), event(GEMM, 1100, 1130, correlation=2)]
    given = dict.fromkeys((0, 200), record([(2, 3), (4, 3)], 0))
    costs = find_costs(with_operands(make_trace(device, host, names=NAMES), given))
    assert seen(costs) == [("aten::cat", 0, 2 * 2 * 18, 1, 100), ("aten::cat", 0, None, 1, 30)]


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("void k<128, at::native::f<c10::BFloat16, float>>(c10::Half*)", "bfloat16"),
        ("k<TensorListMetadata<4>, Adam<float, 4>>", "float32"),
        ("k<OpaqueType<8u>>", "float64"),
        ("k<OpaqueType<3u>>", None),
        ("floating_kernel<7>", None),
        ("float", None),
        (None, None),
    ],
)
def test_the_type_in_a_kernel_s_name(kernel: str | None, dtype: str | None) -> None:
    assert find_element_type(kernel) == dtype


def test_a_compiled_kernel_costs_what_its_source_operators_do() -> None:
    host = [op(1, 0, 100, FUSED), *one_launch(20, 1)]
    trace = make_trace([event(FUSED, 1000, 1100, correlation=1)], host, names=NAMES)
    costs = find_costs(with_operands(trace, {0: record((6, 12), (12,), (6, 12), 72)}))
    assert costs.calls.select("flops", "nbytes", "basis").rows() == [(144, 4 * 156, "source operators")]


def test_without_shapes_nothing_is_known() -> None:
    trace = make_trace([event(GEMM, 1000, 1100, correlation=1)], [op(1, 0, 100, MM), *one_launch(20, 1)], names=NAMES)
    costs = find_costs(trace)
    assert seen(costs) == [("aten::mm", None, None, 1, 100)]
    empty = find_costs(make_trace(names=NAMES))
    assert empty.calls.is_empty()


def repeated(lengths: list[int]) -> Trace:
    """Rounds of a product and a copy of two kernels, of which the launches of the first round were not recorded.

    `lengths` are those of the product's kernels. A last kernel of a copy is before the first round.
    """
    host, given = list[Row](), {}
    device = [event(COPYING, -50, -40, correlation=899)]
    for step, length in enumerate(lengths):
        at = 1000 * step
        for place, (kernel, start) in enumerate([(GEMM, 0), (COPYING, 300), (COPYING, 320)]):
            correlation = 10 * step + place + 1 if step else 900 + place
            end = start + (length if kernel == GEMM else 10)
            device.append(event(kernel, at + start, at + end, correlation=correlation))
        if step:
            begin = at - 900
            host += [op(1, begin, begin + 50, MM), *one_launch(begin + 10, 10 * step + 1)]
            host += [op(1, begin + 100, begin + 190, COPY), *one_launch(begin + 110, 10 * step + 2)]
            host += one_launch(begin + 130, 10 * step + 3)
            given |= {begin: record((2, 3), (3, 5)), begin + 100: record((4,), (4,), False)}
    return with_operands(make_trace(device, host, names=NAMES), given)


def test_kernels_without_a_launch_cost_what_the_same_ones_cost_later() -> None:
    costs = find_costs(repeated([200, 210, 190, 205]))
    assert costs.calls["host_event"].is_null().to_list() == [True] * 2 + [False] * 6
    assert seen(costs)[:2] == [("aten::mm", 60, 124, 1, 200), ("aten::copy_", 0, 32, 2, 20)]
    assert costs.of_events.tolist() == [-1, 0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7]


def test_kernels_without_a_launch_that_took_much_longer_are_not_alike() -> None:
    costs = find_costs(repeated([421, 210, 190, 205]))
    assert seen(costs)[0] == ("aten::copy_", 0, 32, 2, 20)
    assert costs.of_events.tolist()[:4] == [-1, -1, 0, 0]


def test_kernels_without_a_launch_and_of_another_grid_are_not_alike() -> None:
    trace = repeated([200, 210, 190, 205])
    grids = [{"event": event, "grid": 7 + (event == 1), "block": 64} for event in range(13)]
    same = find_costs(replace(trace, launch_shapes=table([row | {"grid": 7} for row in grids], LAUNCH_SHAPES)))
    assert same.of_events.tolist()[:4] == [-1, 0, 1, 1]
    other = find_costs(replace(trace, launch_shapes=table(grids, LAUNCH_SHAPES)))
    assert other.of_events.tolist()[:2] == [-1, -1]


def test_kernels_without_a_launch_that_stand_for_different_operands_are_not_alike() -> None:
    trace = repeated([200, 210, 190, 205])
    second_copy = pl.int_range(pl.len()) == 3
    changed = pl.when(second_copy).then(pl.lit("[[9], [9], []]")).otherwise("dims")
    costs = find_costs(replace(trace, operands=trace.operands.with_columns(dims=changed)))
    assert seen(costs)[0] == ("aten::mm", 60, 124, 1, 200)
    assert costs.of_events.tolist()[:4] == [-1, 0, -1, -1]


def test_on_a_cpu_an_operator_costs_what_it_calls() -> None:
    host, given = list[Row](), {}
    for step in range(12):
        at = 1000 * step
        host += [op(1, at, at + 90, LINEAR), op(1, at + 10, at + 60, ADDMM)]  # its own operands are available
        host += [op(1, at + 100, at + 190, NODE), op(1, at + 110, at + 120, T), op(1, at + 130, at + 180, MM)]
        host += [op(1, at + 200, at + 290, CUSTOM), op(1, at + 210, at + 220, MM)]  # may compute by itself
        given |= {at: record((2, 3), (5, 3), (5,)), at + 130: record((2, 3), (3, 5)), at + 210: record((2, 3), (3, 5))}
    recorded = with_operands(make_trace(host=host, names=NAMES), given)
    kernels = stand_in(recorded)
    assert kernels is not None
    costs = find_costs(kernels, recorded)
    layer, node, custom = seen(costs)[:3]
    assert layer == ("aten::linear", 70, 4 * (6 + 15 + 5 + 10), 1, 90)
    assert node == (NAMES[NODE], 60, 4 * (6 + 15 + 10), 1, 90)
    assert custom == ("custom::op", None, None, 1, 90)
