"""A library runs its fallback: a kernel for any case, where it has none that is written for this one.

Names of such kernels are a table (`FALLBACKS`): only those that their library itself runs last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import describe_kernels, is_enough, name_whole, share_of_kernels
from deepprof.metrics.kernels.loop_work import LoopWork

LEAST = 0.08  # of the kernels' time
CERTAINTY = 0.7  # how much faster another kernel would be depends on the shapes


@dataclass(frozen=True, slots=True)
class _Fallback:
    """Kernels of a library's fallback: what it is, and what brings another one."""

    match: str
    what: str
    advice: str


FALLBACKS = (
    _Fallback(
        r"^naive_conv_",
        "MIOpen's naive convolution",
        "Let MIOpen find another kernel: use half precision or channels_last, sizes of channels that are multiples of "
        "8, a newer ROCm, or tune once with MIOPEN_FIND_ENFORCE=3; look for MIOPEN_DEBUG_CONV_* in the environment.",
    ),
    _Fallback(
        r"conv_depthwise[23]d_|DepthwiseConv2d(?:Backprop\w*)?GPUKernel",
        "the framework's own depthwise convolution",
        "Let cuDNN do the depthwise convolution: half precision under autocast with channels_last tensors; or replace "
        "it with a full convolution of fewer groups, which is often faster on matrix units.",
    ),
    _Fallback(
        r"(?:^|[:\s])(?:im2col|col2im|vol2col|col2vol)_kernel|aten::_?slow_conv|thnn_conv",
        "a convolution through columns in memory (im2col)",
        "Let the convolution library do it: check that torch.backends.cudnn.enabled is on and that the library has the "
        "type (no integers).",
    ),
    _Fallback(
        r"(?:dgrad|wgrad_alg\d|dgrad2d_alg\d\w*)_engine<(?:__half|__nv_bfloat16)|(?:im|ex)plicit_convolve_sgemm<__half",
        "cuDNN's generic convolution of 16-bit data on ordinary units",
        "Give cuDNN a convolution for its matrix units: channels_last tensors, numbers of channels that are multiples "
        "of 8, fewer groups; torch.backends.cudnn.benchmark = True looks for the fastest kernel.",
    ),
    _Fallback(
        r"rocblas_gemm(?:_\w+)?_general_kernel|gemm_source_kernel",
        "rocBLAS's source kernel for products that Tensile has no solution for",
        "Use sizes and types that Tensile has kernels for (multiples of 8, half precision), a newer ROCm, or "
        "TORCH_BLAS_PREFER_HIPBLASLT=1.",
    ),
)


@rule("fallback-kernels", subject="work")
def fallback_kernels(seen: LoopWork) -> Iterator[Finding]:
    """Yield `fallback-kernels` for the fallback that takes most of the time."""
    if not is_enough(seen):
        return
    named = [(each, seen.work.kernels.filter(pl.col("name").str.contains(each.match))) for each in FALLBACKS]
    worst, kernels = max(named, key=lambda each: float(each[1]["time_ns"].sum()))
    if share_of_kernels(seen, float(kernels["time_ns"].sum())) >= LEAST:
        yield _conclude(seen, worst, kernels)


def _conclude(seen: LoopWork, fallback: _Fallback, kernels: pl.DataFrame) -> Finding:
    """Return the finding on the kernels of one fallback."""
    saved_ns = float(kernels["time_ns"].sum())
    claim = WorkClaim(rule="fallback-kernels", seen=seen, kernels=kernels, saved_ns=saved_ns, certainty=CERTAINTY)
    texts = FindingTexts(
        title=f"{format_percent(claim.work_share)} of the computing time is {fallback.what}, a fallback",
        summary=(
            f"{describe_kernels(seen, kernels)}. The library runs it where it has no other kernel for the shape, type "
            f"or layout. At most all of it could be saved, {format_ms(saved_ns)} of {name_whole(seen)} "
            f"({format_percent(seen.share(saved_ns))}); how much another kernel takes shows only when it runs."
        ),
        advice=fallback.advice,
    )
    return claim.conclude(texts, {"fallback": fallback.what})
