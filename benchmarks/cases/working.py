"""Jobs whose device computes all the time, by the names of their kernels: each mistake next to the same put right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from benchmarks.cases.case import HEALTHY, Case
from benchmarks.cases.contexts import ITERATIONS, Call, write
from deepprof.collectors.trace import DEVICES, LAUNCH_SHAPES, Trace
from tests.tables import Row, table

__all__ = ["SECTION", "WORKING_CASES", "WORKING_RULES", "WorkingJob", "cases", "write_work"]

SECTION = "Work of the device"
WORKING_RULES = (
    *("wrong-precision", "double-precision", "padding-waste", "unfused-attention"),
    *("fallback-kernels", "small-grids", "slowing-kernels", "recomputed-forward", "older-attention"),
)
FEW_ITERATIONS = 10  # too few for `drift`, which examines the whole iteration
A100, V100, T4, GTX, P100 = (
    *("NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB", "Tesla T4", "GeForce GTX 1080 Ti", "Tesla P100-SXM2-16GB"),
)
RTX, MI300, UNNAMED = "NVIDIA GeForce RTX 3070 Ti", "AMD Instinct MI300X", ""
H100 = "NVIDIA H100 80GB HBM3"
MULTIPROCESSORS = {A100: 108, V100: 80, T4: 40, GTX: 28, P100: 56, RTX: 48, MI300: 304, H100: 132}


@dataclass(frozen=True)
class WorkingJob:
    """Functions and their kernels on a device; `grids` are the blocks of kernels, by name.

    `slower` is by what share every kernel is longer in the last iteration than in the first.
    """

    calls: Sequence[Call]
    device: str = A100
    grids: dict[str, int] = field(default_factory=dict)
    slower: float = 0.0
    iterations: int = ITERATIONS


def write_work(job: WorkingJob, _: Path | None = None) -> list[Trace]:
    """Return the trace of a job."""
    (trace,) = write(job.calls, iterations=job.iterations, growth=job.slower)
    device: Row = {"device": 0, "name": job.device or None, "multiprocessors": MULTIPROCESSORS.get(job.device)}
    names = trace.names[trace.device_events["name_id"]]
    rows: list[Row] = [
        {"event": event, "grid": job.grids[name], "block": 256} for event, name in enumerate(names) if name in job.grids
    ]
    return [replace(trace, devices=table([device], DEVICES), launch_shapes=table(rows, LAUNCH_SHAPES))]


def name_call(function: str, *kernels: tuple[str, str, float]) -> Call:
    """Return a function that runs operators with kernels: operator, name of the kernel, and its µs."""
    pairs = [(operator, length) for operator, _, length in kernels]
    return Call(function, pairs, called={operator: name for operator, name, _ in kernels})


ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> "
    ">(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)"
)
NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*, "
    "float const*, float const*, float*, float*, float*)"
)
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*, int, "
    "int, int, bool const*, int, bool)"
)
LOG_SOFTMAX = SOFTMAX.replace("9, false, false", "9, true, false")
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
    "cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)"
)
SGEMM, HALF = "ampere_sgemm_128x64_tn", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
TF32 = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(T1::Params)"
OLD_SGEMM, VECTOR = "volta_sgemm_128x64_nt", "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4>"
ODD = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_align1>(T1::Params)"
EVEN = ODD.replace("align1", "align8")
STENCIL = "void StencilKernel<{0}>({0}*, {0}*, int, int, {0}, {0}, {0})"
NAIVE = "naive_conv_ab_nonpacked_fwd_nchw_half_double_half"
IMPLICIT = "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32_wt32x32x8_ws2x1_wr2x2_ta1x8x4x1_1x4x1x64_tb1x8x2x1_1x4x1x64"
SCAN = "void scan_sequence<float, 128>(float const*, float*, int, int)"
LINEAR, ATTEND, CONVOLVE = "model.py(10): linear", "model.py(20): attend", "model.py(30): convolve"
STEP = "solver.py(40): step"
REST = (
    name_call("model.py(60): normalize", ("aten::layer_norm", NORM, 60.0)),
    name_call("model.py(70): residual", ("aten::add", ADD, 70.0)),
)


def multiply(kernel: str, length: float = 900.0) -> Call:
    """Return a function with one product."""
    return name_call(LINEAR, ("aten::mm", kernel, length))


def attend(*between: tuple[str, str, float]) -> Call:
    """Return attention whose products are 150 µs each."""
    return name_call(ATTEND, ("aten::bmm", HALF, 150.0), *between, ("aten::matmul", HALF, 150.0))


SCORES = (("aten::mul", ADD, 120.0), ("aten::softmax", SOFTMAX, 240.0), ("aten::dropout", ADD, 120.0))
# The job, the rule that must speak, and its function. None: the rules may not speak.
WORKING_CASES: dict[str, tuple[WorkingJob, str, str]] = {
    "float32 on an A100": (WorkingJob([multiply(SGEMM), *REST]), "wrong-precision", LINEAR),
    "TF32 on an A100": (WorkingJob([multiply(TF32), *REST]), "", ""),
    "bfloat16 on an A100": (WorkingJob([multiply(HALF), *REST]), "", ""),
    "float32 on a T4": (WorkingJob([multiply(OLD_SGEMM), *REST], T4), "wrong-precision", LINEAR),
    "float32 on a GeForce": (WorkingJob([multiply(SGEMM), *REST], RTX), "wrong-precision", LINEAR),
    "float32 on a P100": (WorkingJob([multiply("maxwell_sgemm_128x64_nt"), *REST], P100), "", ""),
    "float32 on an unnamed device": (WorkingJob([multiply(OLD_SGEMM), *REST], UNNAMED), "wrong-precision", LINEAR),
    "a matrix and a vector in float32": (WorkingJob([multiply(VECTOR), *REST]), "", ""),
    "a stencil in double on a GeForce": (
        WorkingJob([name_call(STEP, ("aten::a", STENCIL.format("double"), 900.0)), *REST], GTX),
        "double-precision",
        STEP,
    ),
    "a stencil in float on a GeForce": (
        WorkingJob([name_call(STEP, ("aten::a", STENCIL.format("float"), 900.0)), *REST], GTX),
        "",
        "",
    ),
    "a stencil in double on an A100": (
        WorkingJob([name_call(STEP, ("aten::a", STENCIL.format("double"), 900.0)), *REST], A100),
        "",
        "",
    ),
    "rows that are read element by element": (WorkingJob([multiply(ODD), *REST]), "padding-waste", LINEAR),
    "rows that are read at once": (WorkingJob([multiply(EVEN), *REST]), "", ""),
    "attention written out": (WorkingJob([attend(*SCORES), *REST]), "unfused-attention", ATTEND),
    "attention in one kernel": (
        WorkingJob([multiply(HALF), name_call(ATTEND, ("aten::attention", FLASH, 400.0)), *REST]),
        "",
        "",
    ),
    "FlashAttention 2 on an H100": (
        WorkingJob([multiply(HALF), name_call(ATTEND, ("aten::attention", FLASH, 400.0)), *REST], H100),
        "older-attention",
        ATTEND,
    ),
    "little FlashAttention 2 on an H100": (
        WorkingJob([multiply(HALF), name_call(ATTEND, ("aten::attention", FLASH, 60.0)), *REST], H100),
        "",
        "",
    ),
    "a softmax of a loss": (
        WorkingJob([*REST, multiply(HALF), name_call("loss.py(1): loss", ("aten::log_softmax", LOG_SOFTMAX, 240.0))]),
        "",
        "",
    ),
    "a naive convolution": (
        WorkingJob([name_call(CONVOLVE, ("aten::conv2d", NAIVE, 900.0)), *REST], MI300),
        "fallback-kernels",
        CONVOLVE,
    ),
    "an implicit product for a convolution": (
        WorkingJob([name_call(CONVOLVE, ("aten::conv2d", IMPLICIT, 900.0)), *REST], MI300),
        "",
        "",
    ),
    "a scan of eight blocks": (
        WorkingJob([name_call(STEP, ("aten::cumsum", SCAN, 900.0)), *REST], A100, {SCAN: 8, NORM: 4096}),
        "small-grids",
        STEP,
    ),
    "a scan of many blocks": (
        WorkingJob([name_call(STEP, ("aten::cumsum", SCAN, 900.0)), *REST], A100, {SCAN: 864, NORM: 4096}),
        "",
        "",
    ),
    "a clock that falls": (
        WorkingJob([multiply(HALF), *REST], slower=0.4, iterations=FEW_ITERATIONS),
        "slowing-kernels",
        LINEAR,
    ),
    "a clock that holds": (WorkingJob([multiply(HALF), *REST], iterations=FEW_ITERATIONS), "", ""),
}


def cases() -> Iterator[Case]:
    """Yield a case per job."""
    for name, (job, rule, function) in WORKING_CASES.items():
        never = tuple(each for each in WORKING_RULES if each != rule)
        finds = (rule, function) if rule else None
        yield Case(SECTION, name, rule or HEALTHY, partial(write_work, job), never=never, finds=finds)
