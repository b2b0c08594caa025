"""What kernels compute by the operators that launched them, where these show more than their names."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import EVENT_STACKS, OPERANDS, STACKS, Trace
from deepprof.metrics.cpu_fallback import stand_in
from deepprof.metrics.kernels.classify import KernelKinds, find_kernel_kinds
from tests.tables import Row, event, launch, make_trace, table

COPY = "void at::native::elementwise_kernel<4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda(X)> >()"
SURE_COPY = COPY.replace("gpu_kernel_impl<", "gpu_kernel_impl_nocast<")
SGEMM = "volta_sgemm_128x64_nn"
WELFORD = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::WelfordOps<float> > >(X)"


def operator(name: int, start: int, end: int, **more: object) -> Row:
    """Return an operator on the thread that launches."""
    fixed: Row = {"process": 1, "thread": 1, "category": "op"}
    return fixed | {"name_id": name, "start_ns": start, "end_ns": end} | more


def run(kernel: str, operators: Sequence[str], dtypes: str | None = None) -> Trace:
    """Return a trace of one kernel, launched within operators, the outermost first; the last one has operands."""
    names = [kernel, "cudaLaunchKernel", *operators]
    around = [operator(2 + depth, depth, 100 - depth) for depth in range(len(operators))]
    trace = make_trace([event(0, 200, 300, correlation=1)], [*around, launch(1, 50, 60, name=1)], names=names)
    if dtypes is None:
        return trace
    last = int(trace.host_events.with_row_index().filter(pl.col("name_id") == len(names) - 1)["index"][0])
    return replace(trace, operands=table([{"event": last, "dims": "[]", "dtypes": dtypes}], OPERANDS))


def find(kernel: str, operators: Sequence[str] = (), dtypes: str | None = None) -> dict[str, object]:
    """Return what the kernel computes."""
    found = find_kernel_kinds(run(kernel, operators, dtypes))
    assert isinstance(found, KernelKinds)
    assert found.of_events.tolist() == [0]
    return found.table.row(0, named=True)


@pytest.mark.parametrize(
    ("kernel", "operators", "category"),
    [
        (SGEMM, [], "matmul"),
        (SGEMM, ["aten::linear", "aten::addmm"], "matmul"),
        (SGEMM, ["aten::conv2d", "aten::cudnn_convolution"], "convolution"),
        (SGEMM, ["aten::slow_conv2d_forward", "aten::addmm"], "convolution"),
        ("volta_cgemm_32x32_tn", ["aten::convolution_backward"], "convolution"),
        ("SubTensorOpWithScalar1d", ["aten::miopen_convolution"], "convolution"),
        ("batched_transpose_32x16_half", ["aten::miopen_convolution"], "layout"),
        (COPY, ["aten::to", "aten::_to_copy", "aten::copy_"], "cast"),
        (COPY, ["aten::contiguous", "aten::clone", "aten::copy_"], "layout"),
        (COPY, ["aten::linear", "aten::contiguous", "aten::copy_"], "layout"),
        (SURE_COPY, ["aten::to", "aten::_to_copy", "aten::copy_"], "layout"),
        (WELFORD, ["aten::native_batch_norm"], "normalization"),
        (WELFORD, ["aten::var"], "reduction"),
        ("my_kernel", ["aten::softmax", "aten::_softmax"], "softmax"),
        ("my_kernel", ["my::unheard_of"], "unknown"),
        ("my_gelu_op", ["aten::native_layer_norm"], "normalization"),
    ],
)
def test_the_operator_decides_where_the_name_does_not(kernel: str, operators: list[str], category: str) -> None:
    assert find(kernel, operators)["category"] == category


@pytest.mark.parametrize(
    ("kernel", "operator"),
    [
        ("volta_scudnn_128x64_relu_interior_nn_v1", "aten::add_"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(X)", "aten::addmm"),
        (SGEMM, "aten::native_layer_norm"),
    ],
)
def test_a_sure_name_is_right_beside_an_operator_that_contradicts_it(kernel: str, operator: str) -> None:
    alone, beside = find(kernel), find(kernel, [operator])
    assert {**beside, "operator": None} == alone
    assert beside["operator"] == operator


@pytest.mark.parametrize(("dtypes", "category"), [('["float", "float"]', "layout"), ('["c10::Half", "float"]', "cast")])
def test_types_of_operands_tell_a_conversion_from_a_copy(dtypes: str, category: str) -> None:
    assert find(COPY, ["aten::copy_"], dtypes)["category"] == category


@pytest.mark.parametrize(
    ("dtypes", "precision"),
    [
        ('["c10::BFloat16", "c10::BFloat16"]', "bf16"),
        ('["c10::Half", "Scalar"]', "fp16"),
        ('["float", "float"]', "fp32"),
        ('["double"]', "fp64"),
        ('["Scalar"]', None),
        (None, None),
    ],
)
def test_types_of_operands_are_the_precision_of_a_product_without_one(dtypes: str | None, precision: str) -> None:
    found = find("attn_fwd", ["aten::_flash_attention_forward"], dtypes)
    assert (found["category"], found["precision"], found["unit"]) == ("attention", precision, "tensor_core")
    assert not found["sure"]


def test_the_name_goes_before_the_types_of_operands() -> None:
    assert find(SGEMM, ["aten::mm"], '["c10::Half", "c10::Half"]')["precision"] == "fp32"


def test_operators_of_a_cpu_are_kernels_with_the_types_of_their_operands() -> None:
    names = ["aten::mm", "aten::gelu", "autograd::engine::evaluate_function: AddmmBackward0", "Optimizer.step#SGD.step"]
    host = [operator(number % 3, 100 * number, 100 * number + 50) for number in range(15)]
    read = make_trace([], host, names=names)
    read = replace(read, operands=table([{"event": 0, "dims": "[]", "dtypes": '["float", "float"]'}], OPERANDS))
    trace = stand_in(read)
    assert trace is not None
    found = find_kernel_kinds(trace, read)
    rows = [found.table.row(number, named=True) for number in found.of_events[:3]]
    assert [(row["category"], row["precision"], row["unit"]) for row in rows] == [
        ("matmul", "fp32", None),
        ("elementwise", None, None),
        ("matmul", None, None),
    ]


def test_scopes_of_compiled_programs_tell_what_calls_of_libraries_are() -> None:
    names = ["custom-call.3", "loop_convert_fusion"]
    trace = make_trace([event(0, 0, 10), event(1, 10, 20), event(0, 20, 30)], names=names)
    stacks = table(
        [{"stack_id": 0, "frames": "dot_general/;jit(f)/;a.py(3): f"}, {"stack_id": 1, "frames": "a.py(3): f"}], STACKS
    )
    events = table(
        [{"event": 0, "stack_id": 0}, {"event": 1, "stack_id": 0}, {"event": 2, "stack_id": 1}], EVENT_STACKS
    )
    found = find_kernel_kinds(replace(trace, stacks=stacks, event_stacks=events))
    rows = [found.table.row(number, named=True) for number in found.of_events]
    assert [(row["category"], row["operator"]) for row in rows] == [
        ("matmul", "dot_general"),
        ("elementwise", "dot_general"),
        ("unknown", None),
    ]


def test_events_that_are_no_kernels_have_no_kind() -> None:
    trace = make_trace([event(0, 0, 10), event(1, 10, 20, activity="memcpy")], names=["k", "copy"])
    assert find_kernel_kinds(trace).of_events.tolist() == [0, -1]
    empty = find_kernel_kinds(make_trace())
    assert (empty.table.height, len(empty.of_events)) == (0, 0)


def test_one_name_under_two_operators_has_two_rows() -> None:
    names = [SGEMM, "cudaLaunchKernel", "aten::mm", "aten::convolution"]
    host = [operator(2, 0, 10), launch(1, 5, 6, 1), operator(3, 20, 30), launch(2, 25, 26, 1), operator(2, 40, 50)]
    host += [launch(3, 45, 46, 1)]
    device = [event(0, 100 * each, 100 * each + 50, correlation=each) for each in (1, 2, 3)]
    found = find_kernel_kinds(make_trace(device, host, names=names))
    assert found.table["category"].gather(found.of_events).to_list() == ["matmul", "convolution", "matmul"]
    assert found.table.height == 2
