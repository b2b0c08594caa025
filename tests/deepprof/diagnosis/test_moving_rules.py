"""Rules on what moves memory too often: each finds its planted mistake with the right numbers, and no twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import polars as pl
import pytest

import deepprof
from benchmarks.cases.case import Case, judge
from benchmarks.cases.contexts import Call
from benchmarks.cases.moving import (
    ADAM,
    CAST,
    CONVOLVE,
    DROP,
    LOOKUP,
    MOVING_CASES,
    MOVING_RULES,
    MULTIPLY,
    NATIVE,
    NCHW,
    NCHW_BACKWARD,
    NORM,
    PRODUCT,
    RELU,
    RMS_NORM,
    ROOT,
    SQUARE,
    STEP,
    UPDATE,
    cases,
)
from benchmarks.cases.working import ADD, HALF, SCORES, WorkingJob, attend, multiply, name_call, write_work
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from tests.deepprof.diagnosis.test_context_rules import of_rule
from tests.tables import Row, event, make_trace, span

PLANTED = {rule: name for name, (_, rule, _) in MOVING_CASES.items() if rule}


def examine(*calls: Call) -> deepprof.Analysis:
    return deepprof.analyze(write_work(WorkingJob(calls)))


def found_in(trace: Trace | Sequence[Trace]) -> list[Finding]:
    return [each for each in deepprof.analyze(trace).findings if each.rule in MOVING_RULES]


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_a_mistake_is_found_at_its_line_and_its_twin_is_not(case: Case) -> None:
    verdict = judge(case)
    assert verdict.right, (verdict.headline, verdict.rules, verdict.lines)


def test_every_rule_has_a_case() -> None:
    assert set(PLANTED) == set(MOVING_RULES)


def saved_by(rule: str, *calls: Call) -> tuple[int, float]:
    """Return what the finding states could be saved in an iteration, and its share of the computing time."""
    found = of_rule(examine(*calls), rule)
    assert found.parts == {"compute_ns": found.headroom_ns_per_iteration}
    assert found.headroom_ns_per_iteration is not None
    return found.headroom_ns_per_iteration, float(found.evidence["work_share_ratio"] or 0)


def test_a_chain_saves_all_but_half_of_its_longest_kernel() -> None:
    whole = sum(length for _, _, length in RMS_NORM)
    saved = saved_by("elementwise-chains", PRODUCT, name_call(NORM, *RMS_NORM))
    assert saved == (round(1000 * (whole - 96 / 2)), pytest.approx(whole / (whole + 600), abs=1e-4))


def test_an_optimizer_saves_eleven_parts_of_eighteen() -> None:
    whole = sum(length for _, _, length in ADAM)
    saved = saved_by("unfused-optimizer", PRODUCT, name_call(STEP, *ADAM))
    assert saved == (round(1000 * whole * 11 / 18), pytest.approx(whole / (whole + 600), abs=1e-4))


def test_an_optimizer_parameter_by_parameter_is_not_fused_either() -> None:
    steps = [("aten::lerp_", "lerp_scalar_kernel"), ("aten::addcmul_", "addcmul_cuda_kernel")]
    steps += [("aten::sqrt", "sqrt_kernel_cuda"), ("aten::addcdiv_", "addcdiv_cuda_kernel")]
    pattern = "void at::native::vectorized_elementwise_kernel<4, at::native::{}(at::TensorIteratorBase&)>(int)"
    update = name_call(STEP, *((op, pattern.format(kernel), 10.0) for op, kernel in steps))
    analysis = examine(multiply(HALF, 300.0), *[update] * 8)
    found = of_rule(analysis, "unfused-optimizer")
    assert found.evidence["kernels_per_iteration"] == 32
    assert found.headroom_ns_per_iteration == round(320_000 * 11 / 18)
    assert "elementwise-chains" not in {each.rule for each in analysis.findings}


TRAINED = (("aten::conv", HALF, 300.0), ("aten::bn", NCHW, 100.0), ("aten::relu", RELU, 40.0))
GRADIENTS = (("aten::conv2", HALF, 300.0), ("aten::bn2", NCHW_BACKWARD, 100.0))


def test_batch_norm_saves_half_of_its_own_kernels() -> None:
    saved = saved_by("normalization-bound", name_call(CONVOLVE, *TRAINED, *GRADIENTS))
    assert saved == (round(1000 * 200 / 2), pytest.approx(200 / 840, abs=1e-4))
    alone = saved_by("normalization-bound", name_call(CONVOLVE, *TRAINED[:2], *GRADIENTS))
    assert alone == (saved[0], pytest.approx(200 / 800, abs=1e-4))


def test_what_surrounds_batch_norm_is_mentioned_but_not_in_its_bound() -> None:
    around, alone = (
        of_rule(examine(name_call(CONVOLVE, *each, *GRADIENTS)), "normalization-bound")
        for each in (TRAINED, TRAINED[:2])
    )
    assert around.evidence["neighbours_ns_per_iteration"] == 40_000
    assert alone.evidence["neighbours_ns_per_iteration"] == 0
    assert "elementwise kernels directly around it take 4.8 % more" in around.summary
    assert "around it" not in alone.summary


def test_batch_norm_saves_little_where_the_host_launches_just_in_time() -> None:
    block = name_call(CONVOLVE, *TRAINED, *GRADIENTS)
    late = of_rule(examine(replace(block, host_us=1000.0)), "normalization-bound")
    assert late.headroom_ns_per_iteration is not None
    assert late.headroom_ns_per_iteration < 50_000
    assert (late.severity, late.evidence["cost_ns_per_iteration"]) == ("info", 100_000)


def test_operators_around_a_norm_are_a_chain_of_their_own() -> None:
    behind = (("aten::add", ADD, 150.0), ("aten::relu", RELU, 120.0))
    found = of_rule(examine(name_call(CONVOLVE, *TRAINED[:2], *behind)), "elementwise-chains")
    assert found.headroom_ns_per_iteration == round(1000 * (270 - 150 / 2))


def test_batch_norm_in_inference_goes_away() -> None:
    inferred = (("aten::conv", HALF, 300.0), ("aten::bn", NATIVE, 100.0), ("aten::relu", RELU, 40.0))
    found = of_rule(examine(name_call(CONVOLVE, *inferred)), "normalization-bound")
    assert (found.headroom_ns_per_iteration, found.evidence["native_kernels"]) == (100_000, 1)
    assert "folds batch norm" in found.advice


def test_casts_outside_of_chains_are_counted_alone() -> None:
    casts = (("aten::_to_copy", CAST, 100.0), ("aten::linear", HALF, 300.0))
    saved = saved_by("repeated-casts", name_call(NORM, *casts), multiply(HALF, 200.0))
    assert saved == (100_000, pytest.approx(100 / 600, abs=1e-4))


def test_tables_save_half_with_half_as_many_bytes() -> None:
    tables = name_call(STEP, ("a::lookup", LOOKUP, 100.0), ("a::update", UPDATE, 200.0))
    assert saved_by("embedding-bound", PRODUCT, tables) == (150_000, pytest.approx(300 / 900, abs=1e-4))


def test_a_dropout_claims_the_operators_that_make_its_mask() -> None:
    job, _, _ = MOVING_CASES["random numbers for masks"]
    analysis = deepprof.analyze(write_work(job))
    found = of_rule(analysis, "unfused-dropout")
    assert found.headroom_ns_per_iteration == 290_000
    assert found.evidence["random_ns_per_iteration"] == 120_000
    assert found.location is not None
    assert f"{found.location['file']}({found.location['line']}): {found.location['function']}" == DROP


def test_attention_that_is_written_out_is_not_saved_twice() -> None:
    norm = name_call(NORM, ("aten::pow", SQUARE, 90.0), ("aten::rsqrt", ROOT, 30.0), ("aten::mul", MULTIPLY, 90.0))
    analysis = examine(attend(*SCORES), norm)
    chains = of_rule(analysis, "elementwise-chains")
    assert chains.headroom_ns_per_iteration == round(1000 * (210 - 90 / 2))
    assert chains.evidence["kernels_per_iteration"] == 3
    assert "unfused-attention" in {each.rule for each in analysis.findings}


@pytest.mark.parametrize("rule", MOVING_RULES)
def test_too_little_work_says_nothing(rule: str) -> None:
    job = MOVING_CASES[PLANTED[rule]][0]
    for iterations in (0, 1):
        assert found_in(write_work(replace(job, iterations=iterations))) == []
    (trace,) = write_work(job)
    flat = msgspec.structs.replace(trace, device_events=trace.device_events.with_columns(end_ns="start_ns"))
    assert found_in(flat) == []


@pytest.mark.parametrize("rule", MOVING_RULES)
def test_two_iterations_are_examined_as_well(rule: str) -> None:
    job = MOVING_CASES[PLANTED[rule]][0]
    assert {each.rule for each in found_in(write_work(replace(job, iterations=2)))} <= {rule}


@pytest.mark.parametrize("rule", MOVING_RULES)
def test_a_device_that_hardly_works_is_left_alone(rule: str) -> None:
    (trace,) = write_work(MOVING_CASES[PLANTED[rule]][0])
    rows = trace.device_events.with_row_index("row")
    start = pl.col("start_ns") * 100
    spread = rows.with_columns(start_ns=start, end_ns=start + pl.col("end_ns") - pl.col("start_ns")).drop("row")
    host = trace.host_events.with_columns(pl.col("start_ns") * 100, pl.col("end_ns") * 100)
    marks = trace.annotations.with_columns(pl.col("start_ns") * 100, pl.col("end_ns") * 100)
    assert found_in(msgspec.structs.replace(trace, device_events=spread, host_events=host, annotations=marks)) == []


def test_collectives_that_rule_leave_nothing_to_say() -> None:
    (trace,) = write_work(WorkingJob([PRODUCT, name_call(STEP, *ADAM), name_call(DROP, ("c::all", "ncclAll", 9000.0))]))
    names = trace.names.str.replace("^ncclAll$", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)")
    assert found_in(msgspec.structs.replace(trace, names=names)) == []


def test_xla_programs_of_one_kernel_each_are_a_chain() -> None:
    assert [each.rule for each in found_in(write_programs(kernels=1))] == ["elementwise-chains"]
    assert found_in(write_programs(kernels=4)) == []


def write_programs(kernels: int) -> Trace:
    """Return a trace of JAX: a product, then four operators, as programs of this many kernels each."""
    names = ["gemm_fusion_dot_general_1", "loop_multiply_fusion", "GpuExecutable::ExecuteThunks", "step"]
    device, ranges, host = list[Row](), list[Row](), list[Row]()
    now = 0
    for _ in range(24):
        begun = now
        for number in range(5):
            device.append(event(int(number > 0), now, now + 200_000))
            if number % kernels == 0:
                host.append(
                    {"start_ns": now, "end_ns": now + 10, "process": 1, "thread": 1, "category": "op", "name_id": 2}
                )
            now += 200_000
        ranges.append(span(3, begun, now))
    return msgspec.structs.replace(make_trace(device, host, ranges, names), format="xplane")
