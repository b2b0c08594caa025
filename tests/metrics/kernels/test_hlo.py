"""What kernels compute by XLA's instructions: from opcodes, targets and types to kinds, by hand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.instructions import EVENT_INSTRUCTIONS, INSTRUCTIONS
from deepprof.collectors.trace import DEVICES, Trace
from deepprof.metrics.cost.roofs import find_peaks
from deepprof.metrics.kernels.classify import find_kernel_kinds
from deepprof.metrics.kernels.hlo import (
    InstructionDevice,
    classify_instructions,
    find_device,
    load_opcodes,
    refine_kinds,
)
from deepprof.metrics.kernels.kinds import KERNEL_KINDS
from tests.tables import Row, copy, event, make_trace, table

UNKNOWN_DEVICE = InstructionDevice()
GEMM: Row = {"opcode": "custom-call", "target": "__cublas$gemm", "shape": "bf16[64,64]"}
TRITON: Row = {"opcode": "fusion", "target": "__triton_gemm", "parts": "dot", "shape": "bf16[64,64]"}


def classify(device: InstructionDevice = UNKNOWN_DEVICE, **given: Any) -> tuple[Any, ...]:
    """Return category, precision, unit and whether they are sure of one instruction."""
    rows = table([{"instruction": 0, **given}], INSTRUCTIONS)
    return classify_instructions(rows, device).select("category", "precision", "unit", "sure").row(0)


def fused(parts: str, **given: Any) -> tuple[str, bool]:
    """Return category and whether it is sure of a fusion of these parts."""
    category, _, _, sure = classify(opcode="fusion", target="kLoop", parts=parts, **given)
    return category, sure


@pytest.mark.parametrize(
    ("parts", "category", "sure"),
    [
        ("scatter", "embedding_index", True),
        ("gather convert", "embedding_index", True),
        ("add gather multiply", "embedding_index", False),
        ("reduce", "reduction", True),
        ("convert reduce", "reduction", True),
        ("multiply reduce", "reduction", False),
        ("exponential subtract reduce", "softmax", False),
        ("logistic subtract exponential reduce", "reduction", False),
        ("multiply reduce rsqrt", "normalization", False),
        ("transpose", "layout", True),
        ("transpose convert", "layout", True),
        ("transpose exponential", "layout", False),
        ("dynamic-update-slice", "layout", True),
        ("dynamic-update-slice add", "elementwise", False),
        ("convert dynamic-slice", "cast", False),
        ("convert", "cast", True),
        ("convert multiply broadcast", "elementwise", True),
        ("tanh slice", "elementwise", False),
        ("broadcast", "memory_set_copy", False),
        ("sort", "sort_scan_topk", True),
        ("rng-bit-generator multiply", "random", False),
        ("xor shift-left or add", "random", False),
        ("select-and-scatter", "pooling", True),
        ("reduce-window", "pooling", False),
        ("something-new", "unknown", False),
        ("something-new add", "elementwise", False),
        ("fft multiply", "custom", False),
    ],
)
def test_a_fusion_is_what_its_most_expensive_part_is(parts: str, category: str, sure: bool) -> None:
    assert fused(parts) == (category, sure)


@pytest.mark.parametrize(
    ("parts", "op_name", "category"),
    [
        ("reduce convert", "jit(f)/attention/jit(softmax)/reduce_max", "softmax"),
        ("reduce multiply", "jit(f)/LayerNorm_0/reduce_sum", "normalization"),
        ("reduce multiply", "jit(f)/layers/pre_mlp_norm/mul", "normalization"),
        ("reduce multiply", "jit(f)/clip/global_norm/reduce_sum", "reduction"),
        ("reduce multiply", "jit(f)/jit(_normal)/mul", "reduction"),
        ("reduce-window", "jit(f)/jit(cumsum)/cumsum", "sort_scan_topk"),
    ],
)
def test_scopes_tell_what_a_reduction_is_part_of(parts: str, op_name: str, category: str) -> None:
    assert fused(parts, op_name=op_name) == (category, False)


def test_scopes_tell_nothing_of_what_has_no_reduction() -> None:
    assert fused("add multiply", op_name="jit(f)/LayerNorm_0/add") == ("elementwise", True)


@pytest.mark.parametrize(
    ("opcode", "category", "sure"),
    [
        ("all-reduce-start", "communication", True),
        ("all-gather-done", "communication", True),
        ("reduce-scatter", "communication", True),
        ("copy", "layout", True),
        ("while", "unknown", False),
        ("partition-id", "unknown", False),
    ],
)
def test_an_instruction_by_itself_is_what_its_opcode_says(opcode: str, category: str, sure: bool) -> None:
    assert classify(opcode=opcode) == (category, None, None, sure)


@pytest.mark.parametrize(
    ("target", "category"),
    [
        ("__cublas$lt$matmul$f8", "matmul"),
        ("__cudnn$convBackwardFilter", "convolution"),
        ("__cudnn$fmhaSoftmaxBackward", "attention"),
        ("__cudnn$norm", "normalization"),
        ("te_fused_attn_forward_ffi", "attention"),
        ("te_rmsnorm_forward_ffi", "normalization"),
        ("te_scaled_upper_triang_masked_softmax_forward", "softmax"),
        ("te_cast_transpose_ffi", "quantization"),
        ("te_dact_dbias_quantize_ffi", "quantization"),
        ("__cub$DeviceRadixSort", "sort_scan_topk"),
        ("cu_threefry2x32_ffi", "random"),
        ("cudnn_rnn_ffi", "rnn"),
        ("cusolver_potrf_ffi", "custom"),
        ("my_own_call", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_custom_call_is_what_it_calls(target: str, category: str) -> None:
    assert classify(opcode="custom-call", target=target)[0] == category


@pytest.mark.parametrize(
    ("factors", "precision", "found"),
    [
        ("bf16 bf16", "DEFAULT", ("bf16", "tensor_core", True)),
        ("f16 f16", "HIGHEST", ("fp16", "tensor_core", True)),
        ("f8e4m3fn f8e5m2", "DEFAULT", ("fp8", "tensor_core", True)),
        ("s8 s8", "DEFAULT", ("int8", "tensor_core", True)),
        ("f64 f64", "DEFAULT", ("fp64", None, False)),
        ("f32 f32", "DEFAULT", ("tf32", "tensor_core", False)),
        ("f32 f32", "HIGH", ("tf32", "tensor_core", False)),
        ("f32 f32", "HIGHEST", ("fp32", "simt", False)),
        ("f32 f32", "ALG_DOT_TF32_TF32_F32", ("tf32", "tensor_core", False)),
        ("f32 f32", "ALG_DOT_BF16_BF16_F32_X3", ("bf16", "tensor_core", False)),
        ("f32 f32", "ALG_DOT_F32_F32_F32", ("fp32", None, False)),
        ("bf16 f32", "DEFAULT", (None, None, False)),
        ("c64 c64", "DEFAULT", (None, None, False)),
        (None, None, (None, None, False)),
    ],
)
def test_products_have_the_precision_of_their_factors(
    factors: str | None, precision: str | None, found: tuple[Any, ...]
) -> None:
    for kind in (GEMM, TRITON):
        assert classify(**kind, factors=factors, precision=precision) == ("matmul", *found)


def test_the_device_decides_where_types_do_not() -> None:
    v100, a100, p100 = (
        InstructionDevice(find_peaks(name))
        for name in ("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB", "Tesla P100-PCIE-16GB")
    )
    assert v100.peaks
    assert a100.peaks
    assert p100.peaks
    single = {**GEMM, "factors": "f32 f32", "precision": "DEFAULT"}
    assert classify(a100, **single)[1:3] == ("tf32", "tensor_core")
    assert classify(v100, **single)[1:3] == ("fp32", "simt")
    assert classify(InstructionDevice(is_amd=True), **single) == ("matmul", "fp32", None, False)
    half = {**GEMM, "factors": "f16 f16"}
    assert [classify(device, **half)[2] for device in (a100, v100, p100)] == ["tensor_core", "tensor_core", "simt"]


def test_products_by_few_rows_and_those_that_no_library_computes_have_no_known_unit() -> None:
    assert classify(**GEMM | {"shape": "bf16[64,1]"}, factors="bf16 bf16") == ("matmul", "bf16", None, False)
    loop = {"opcode": "fusion", "target": "kLoop", "parts": "dot", "shape": "bf16[64,64]"}
    assert classify(**loop, factors="bf16 bf16") == ("matmul", "bf16", None, False)
    conv = {"opcode": "custom-call", "target": "__cudnn$convForward", "shape": "f16[8,64,32,32]"}
    assert classify(**conv, factors="f16 f16") == ("convolution", "fp16", "tensor_core", False)


def test_every_opcode_is_in_one_group_and_every_target_is_a_pattern() -> None:
    found = load_opcodes()
    opcodes = [opcode for group in found.groups for opcode in group.opcodes]
    assert len(set(opcodes)) == len(opcodes)
    assert all(re.compile(target.match) and target.source for target in found.targets)


def make_jax_trace() -> Trace:
    """A trace of one kernel name that ran two programs, a library's kernel, an unknown one, a copy and a stray."""
    names = ["fusion_1", "ampere_sgemm_128x64_tn", "strange", "Memcpy"]
    rows = [event(0, 0, 5), event(0, 10, 5 + 10), event(1, 20, 25), event(2, 30, 35), copy(40, 45, 8), event(0, 50, 55)]
    rows[4]["name_id"] = 3
    operations: list[Row] = [
        {
            "instruction": 0,
            "program": "jit_f",
            "program_id": 1,
            "name": "fusion.1",
            "opcode": "fusion",
            "parts": "tanh",
        },
        {
            "instruction": 1,
            "program": "jit_g",
            "program_id": 2,
            "name": "fusion.1",
            "opcode": "fusion",
            "parts": "sort",
        },
        {"instruction": 2, "program": "jit_f", "program_id": 1, "name": "dot.3", **GEMM, "factors": "f32 f32"},
    ]
    links = [{"event": at, "instruction": number} for at, number in ((0, 0), (1, 1), (2, 2), (3, 2), (4, 0), (5, 77))]
    return replace(
        make_trace(rows, names=names),
        instructions=table(operations, INSTRUCTIONS),
        event_instructions=table(links, EVENT_INSTRUCTIONS),
    )


def test_kernels_of_one_name_have_a_row_for_each_kind_of_their_instructions() -> None:
    found = find_kernel_kinds(make_jax_trace())
    rows = [found.table.row(at, named=True) if at >= 0 else None for at in found.of_events]
    told = [(row["name"], row["category"], row["library"], row["sure"]) if row else None for row in rows]
    assert told[0] == ("fusion_1", "elementwise", "XLA", True)
    assert told[1] == ("fusion_1", "sort_scan_topk", "XLA", True)
    assert told[3] == ("strange", "matmul", "cuBLAS", False)
    assert told[4] is None
    assert told[5] is not None
    assert told[5][:2] == ("fusion_1", "unknown")
    assert found.table.is_unique().all()


def test_an_instruction_adds_to_a_librarys_kernel_only_what_its_name_does_not_tell() -> None:
    trace = make_jax_trace()
    kinds = {"category": "matmul", "precision": "fp32", "unit": None, "library": "cuBLAS", "sure": True}
    known = [{"name": name, "operator": None, **kinds} for name in ("ampere_sgemm_128x64_tn", "strange")]
    by_name = pl.DataFrame(known, schema={"name": pl.String, "operator": pl.String, **KERNEL_KINDS})
    rows, of_events = refine_kinds(trace, by_name, np.array([-1, -1, 0, 1, -1, -1]))
    assert of_events.tolist() == [-1, -1, 0, 1, -1, -1]
    assert rows.select("precision", "unit", "library", "sure").rows() == [("fp32", "tensor_core", "cuBLAS", False)] * 2
    whole = by_name.with_columns(unit=pl.lit("simt").cast(KERNEL_KINDS["unit"]))
    assert refine_kinds(trace, whole, of_events)[0].equals(whole)


def test_a_trace_without_instructions_keeps_its_kinds() -> None:
    trace = make_trace([event(0, 0, 5)], names=["ampere_sgemm_128x64_tn"])
    rows, of_events = find_kernel_kinds(trace).table, np.array([0])
    found = refine_kinds(trace, rows, of_events)
    assert found[0] is rows
    assert found[1] is of_events


@pytest.mark.parametrize(
    ("name", "is_amd"), [("NVIDIA A100-SXM4-80GB", False), ("AMD", True), ("gfx942", True), (None, False)]
)
def test_the_vendor_is_found_by_the_devices_name(name: str | None, is_amd: bool) -> None:
    trace = replace(make_trace(), devices=table([{"device": 0, "name": name}], DEVICES))
    assert find_device(trace).is_amd is is_amd
