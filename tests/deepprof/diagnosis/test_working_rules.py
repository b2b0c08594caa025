"""Rules on what a device computes: each finds its planted mistake with the right numbers, and is silent on its twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import polars as pl
import pytest

import deepprof
from benchmarks.cases.case import Case, judge
from benchmarks.cases.contexts import Call
from benchmarks.cases.working import (
    A100,
    ADD,
    ATTEND,
    CONVOLVE,
    EVEN,
    FLASH,
    GTX,
    HALF,
    LINEAR,
    MI300,
    NAIVE,
    ODD,
    OLD_SGEMM,
    P100,
    REST,
    RTX,
    SCAN,
    SCORES,
    SGEMM,
    STENCIL,
    STEP,
    T4,
    TF32,
    UNNAMED,
    V100,
    WORKING_CASES,
    WORKING_RULES,
    WorkingJob,
    attend,
    cases,
    multiply,
    name_call,
    write_work,
)
from deepprof.collectors.trace import LAUNCH_SHAPES, Trace, empty_table
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules import wrong_precision
from tests.deepprof.diagnosis.test_context_rules import of_rule

RULE = "wrong-precision"
NS = 1000  # of a µs
REST_NS = 130_000  # what the other kernels of an iteration take


def examine(calls: Sequence[Call], device: str = A100) -> Sequence[Finding]:
    """Return the findings of rules on work."""
    (trace,) = write_work(WorkingJob([*calls, *REST], device))
    return [each for each in deepprof.analyze(trace).findings if each.rule in WORKING_RULES]


def find(rule: str, name: str) -> Finding:
    """Return the finding of a rule on one of the cases."""
    (trace,) = write_work(WORKING_CASES[name][0])
    return of_rule(deepprof.analyze(trace), rule)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_a_mistake_is_found_at_its_line_and_its_twin_is_not(case: Case) -> None:
    verdict = judge(case)
    assert verdict.right, (verdict.headline, verdict.rules, verdict.lines)


@pytest.mark.parametrize("name", [name for name, (_, rule, _) in WORKING_CASES.items() if rule])
def test_little_that_was_recorded_is_no_evidence(name: str) -> None:
    job = WORKING_CASES[name][0]
    short = replace(job, calls=[replace(each, kernels=[(op, 2.0) for op, _ in each.kernels]) for each in job.calls])
    for iterations in (0, 1, 2):
        (trace,) = write_work(replace(short, iterations=iterations))
        assert not {each.rule for each in deepprof.analyze(trace).findings} & set(WORKING_RULES)


@pytest.mark.parametrize(
    ("device", "kernel", "faster", "times"),
    [
        (A100, SGEMM, "tf32", 156 / 19.5),
        (V100, OLD_SGEMM, "float16", 125 / 15.7),
        (T4, OLD_SGEMM, "float16", 65 / 8.1),
        (RTX, SGEMM, "bfloat16", 2),  # TF32 has the rate of float32 there
        (UNNAMED, OLD_SGEMM, "float16", 8),  # a Volta or later
        (UNNAMED, SGEMM, "tf32", 8),  # an Ampere or later
        (MI300, "Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x2x1_SN_1LDSB1", "bfloat16", 1307.4 / 163.4),
    ],
)
def test_the_device_decides_which_type_is_faster(device: str, kernel: str, faster: str, times: float) -> None:
    (found,) = examine([multiply(kernel)], device)
    assert (found.rule, found.evidence["faster_type"]) == ("wrong-precision", faster)
    assert found.evidence["times_as_fast"] == pytest.approx(times, abs=0.01)
    assert found.headroom_ns_per_iteration == pytest.approx(900 * NS * (1 - 1 / times), abs=100)
    share = 900 * NS / (900 * NS + REST_NS)
    assert found.evidence["work_share_ratio"] == pytest.approx(share, abs=1e-4)
    assert found.title.startswith(f"{100 * share:.1f} % of the computing time is float32 products on ")
    assert ("if the device has them" in found.title) == (device == UNNAMED)


@pytest.mark.parametrize("device", [P100, GTX, "Quadro GP100", "NVIDIA TITAN X (Pascal)", "NVIDIA Tegra X1", "Agent 1"])
def test_devices_without_faster_units_are_left_alone(device: str) -> None:
    assert examine([multiply("maxwell_sgemm_128x64_nn")], device) == []


@pytest.mark.parametrize(
    ("kernel", "speaks"),
    [  # names that state the type only together
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(Params)", False),
        ("void cutlass::Kernel<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align8>(Params)", False),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8", False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(Params)", True),
        ("ampere_fp16_sgemm_fp16_128x128_tn", True),
        ("nvjet_tst_128x64_64x6_2x1_v_bz_TNT", False),
        ("ampere_sgemm_32x32_sliced1x4_tn", True),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4>", False),
        ("void cusparse::csrmv_v2_kernel<float, float>", False),
        ("void gemmk1_kernel<int, float, 256, 5, false, false, false, false>", False),
    ],
)
def test_only_products_on_slow_units_are_slow(kernel: str, speaks: bool) -> None:
    rules = [each.rule for each in examine([multiply(kernel)])]
    assert rules == (["wrong-precision"] if speaks else [])


def test_half_data_on_ordinary_units_need_another_kernel_and_not_another_type() -> None:
    (found,) = examine([multiply("ampere_fp16_sgemm_fp16_128x128_tn")])
    assert found.advice == wrong_precision.ALIGN
    assert "float16 products on ordinary units" in found.title
    assert found.evidence["times_as_fast"] == 16


def test_tf32_for_convolutions_alone_is_a_sentence_of_its_own() -> None:
    convolution = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4"
    both = [name_call(CONVOLVE, ("aten::conv2d", convolution, 300.0)), multiply(SGEMM)]
    (found,) = examine([*both, name_call("x.py(1): ops", ("aten::addmm", "at::native::add_kernel", 5.0))])
    assert wrong_precision.ONLY_CONVOLUTIONS.strip() in found.advice
    (alone,) = examine([multiply(SGEMM)])
    assert wrong_precision.ONLY_CONVOLUTIONS.strip() not in alone.advice


def test_a_small_share_is_not_worth_a_change_of_types() -> None:
    assert examine([multiply(SGEMM, 80.0), multiply(HALF, 900.0)]) == []  # 7 % of the kernels' time
    assert len(examine([multiply(SGEMM, 120.0), name_call(STEP, ("aten::bmm", HALF, 900.0))])) == 1


def test_beside_collectives_a_share_of_the_computing_time_counts_less() -> None:
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    collective = name_call("ddp.py(1): reduce", ("nccl:all_reduce", reduce, 9000.0))
    assert examine([multiply(SGEMM, 100.0), collective]) == []


def test_a_kernel_in_double_is_compared_with_the_same_one_in_float() -> None:
    double, single = STENCIL.format("double"), STENCIL.format("float")
    calls = [name_call(STEP, ("aten::a", double, 840.0)), name_call("s.py(1): f", ("aten::b", single, 200.0))]
    (found,) = examine(calls, GTX)
    assert (found.rule, found.evidence["times_of_float_twin"]) == ("double-precision", 4.2)
    assert found.headroom_ns_per_iteration == pytest.approx(840 * NS * (1 - 1 / 4.2), abs=50)
    # The comparison is evidence enough on a device that is not named; twice as long may be memory alone.
    assert [each.rule for each in examine(calls, UNNAMED)] == ["double-precision"]
    calls[0] = name_call(STEP, ("aten::a", double, 400.0))
    assert examine(calls, UNNAMED) == []


def test_products_in_double_are_known_by_their_names() -> None:
    (found,) = examine([multiply("maxwell_dgemm_128x64_nn")], GTX)
    assert found.rule == "double-precision"
    assert found.headroom_ns_per_iteration == pytest.approx(900 * NS * (1 - 0.354 / 11.34), rel=1e-3)
    assert examine([multiply("volta_dgemm_128x64_nn")], V100) == []


def test_what_fused_attention_saves_is_all_between_and_half_of_the_products() -> None:
    found = find("unfused-attention", "attention written out")
    assert found.evidence["kernel_ns_per_iteration"] == 480 * NS
    assert found.headroom_ns_per_iteration == 480 * NS + (150 + 150) * NS / 2
    assert (found.evidence["pairs_per_iteration"], found.evidence["softmax_ns_per_iteration"]) == (1, 240 * NS)
    assert found.location is not None
    assert found.location["function"] == "attend"


def test_a_little_attention_is_not_worth_a_word() -> None:
    small = [(op, name, length / 16) for op, name, length in SCORES]
    assert examine([attend(*small), multiply(EVEN, 500.0)]) == []


def test_fused_attention_beside_it_is_no_product() -> None:
    flash = name_call(ATTEND, ("aten::attention", FLASH, 300.0), ("aten::softmax", SCORES[1][1], 200.0))
    assert examine([flash, multiply(TF32)]) == []


def test_unaligned_kernels_name_a_bound_with_its_assumption() -> None:
    found = find("padding-waste", "rows that are read element by element")
    assert found.headroom_ns_per_iteration == 600 * NS
    assert "if kernels that read 16 bytes at once are 3 times as fast" in found.summary
    # TF32's elements have the 4 bytes that asynchronous copies need.
    assert examine([multiply(ODD.replace("bf16_s16816gemm_bf16", "s1688gemm"))]) == []


def test_small_grids_need_long_kernels_that_run_alone() -> None:
    found = find("small-grids", "a scan of eight blocks")
    assert (found.evidence["blocks"], found.evidence["multiprocessors"]) == (8, 108)
    assert found.headroom_ns_per_iteration == pytest.approx(900 * NS * (1 - 8 / 108), abs=1)
    (trace,) = write_work(WORKING_CASES["a scan of eight blocks"][0])
    bare = msgspec.structs.replace(trace, launch_shapes=empty_table(LAUNCH_SHAPES))
    assert find_rules(bare) == set()
    beside = with_other_work(trace)
    assert "small-grids" not in find_rules(beside)
    short = WorkingJob([name_call(STEP, ("aten::cumsum", SCAN, 9.0)), *REST], A100, {SCAN: 8})
    assert find_rules(write_work(short)[0]) == set()


def with_other_work(trace: Trace) -> Trace:
    """Return the trace with the kernels of another stream next to all."""
    beside = trace.device_events.with_columns(stream=pl.lit(20, pl.Int64), correlation=pl.lit(None, pl.UInt64))
    both = pl.concat([trace.device_events, beside]).sort("start_ns", maintain_order=True)
    names = trace.names[both["name_id"]]
    rows = pl.DataFrame({"event": range(len(names)), "grid": [8 if name == SCAN else 4096 for name in names]})
    shapes = pl.concat([empty_table(LAUNCH_SHAPES), rows.cast({"event": pl.UInt32, "grid": pl.UInt64})], how="diagonal")
    counted = trace.accounting.read + beside.height
    accounting = msgspec.structs.replace(trace.accounting, read=counted, kept=counted)
    return msgspec.structs.replace(trace, device_events=both, launch_shapes=shapes, accounting=accounting)


def find_rules(trace: Trace) -> set[str]:
    """Return the rules on work that speak."""
    return {each.rule for each in deepprof.analyze(trace).findings} & set(WORKING_RULES)


def test_a_falling_clock_is_told_by_kernels_that_are_equal() -> None:
    found = find("slowing-kernels", "a clock that falls")
    assert found.evidence["growth_ratio"] > 0.2
    assert found.evidence["even_ratio"] == 1
    job = WORKING_CASES["a clock that falls"][0]
    (long,) = write_work(replace(job, iterations=24))
    by_rule = {each.rule: each.caused_by for each in deepprof.analyze(long).findings}
    assert (by_rule["drift"], by_rule["slowing-kernels"]) == (None, "drift")


def test_a_fallback_is_no_matter_of_types() -> None:
    (found,) = examine([name_call(CONVOLVE, ("aten::conv2d", NAIVE, 900.0))], MI300)
    assert (found.rule, found.evidence["cost_ns_per_iteration"]) == ("fallback-kernels", 900 * NS)
    assert examine([name_call(CONVOLVE, ("aten::add", ADD, 900.0))], MI300) == []
    assert examine([name_call(LINEAR, ("aten::mm", HALF, 900.0))]) == []


def test_where_the_host_launches_just_in_time_little_is_saved() -> None:
    ahead, late = (
        of_rule(deepprof.analyze(write_work(WorkingJob([replace(multiply(SGEMM), host_us=host_us), *REST]))[0]), RULE)
        for host_us in (0.0, 1000.0)
    )
    assert (ahead.severity, ahead.headroom_ns_per_iteration) == ("critical", 787_500)
    # The host needs 1,030 µs for an iteration in which the device computes for as long.
    assert late.severity == "info"
    assert late.headroom_ns_per_iteration is not None
    assert late.headroom_ns_per_iteration < 50_000
    assert late.evidence["cost_ns_per_iteration"] == 787_500
    assert "just in time" in late.summary
    assert "just in time" not in ahead.summary


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GH200 480GB"])
def test_flash_attention_2_could_be_twice_as_fast_on_hopper(name: str) -> None:
    flash = name_call(ATTEND, ("aten::attention", FLASH, 400.0))
    found = next(each for each in examine([multiply(HALF), flash], name) if each.rule == "older-attention")
    assert found.headroom_ns_per_iteration == pytest.approx(200 * NS, abs=100)
    assert found.evidence["work_share_ratio"] == pytest.approx(400 * NS / (1300 * NS + REST_NS), abs=1e-4)
    assert name in found.title


@pytest.mark.parametrize("name", [A100, "NVIDIA B200", MI300, UNNAMED])
def test_flash_attention_2_is_right_elsewhere(name: str) -> None:
    flash = name_call(ATTEND, ("aten::attention", FLASH, 400.0))
    assert "older-attention" not in {each.rule for each in examine([multiply(HALF), flash], name)}
