"""Kernels that libraries run last: for any case, where they have none that is written for it."""

from __future__ import annotations

from msgspec import Struct


class LibraryFallback(Struct, frozen=True):
    """Kernels of a library's fallback: what it is, what brings another one, and how much of its time that may save."""

    match: str
    what: str
    advice: str
    saved_ratio: float = 1.0


FALLBACKS = (
    LibraryFallback(
        r"^naive_conv_",
        "MIOpen's naive convolution",
        "Let MIOpen find another kernel: use half precision or channels_last, sizes of channels that are multiples of "
        "8, a newer ROCm, or tune once with MIOPEN_FIND_ENFORCE=3; look for MIOPEN_DEBUG_CONV_* in the environment.",
    ),
    LibraryFallback(
        r"conv_depthwise[23]d_|DepthwiseConv2d(?:Backprop\w*)?GPUKernel",
        "the framework's own depthwise convolution",
        "Let cuDNN do the depthwise convolution: half precision under autocast with channels_last tensors; or replace "
        "it with a full convolution of fewer groups, which is often faster on matrix units.",
        saved_ratio=0.5,  # memory limits it, and the data have half as many bytes then
    ),
    LibraryFallback(
        r"(?:^|[:\s])(?:im2col|col2im|vol2col|col2vol)_kernel|aten::_?slow_conv|thnn_conv",
        "a convolution through columns in memory (im2col)",
        "Let the convolution library do it: check that torch.backends.cudnn.enabled is on and that the library has the "
        "type (no integers).",
    ),
    LibraryFallback(
        r"(?:dgrad|wgrad_alg\d|dgrad2d_alg\d\w*)_engine<(?:__half|__nv_bfloat16)|(?:im|ex)plicit_convolve_sgemm<__half",
        "cuDNN's generic convolution of 16-bit data on ordinary units",
        "Give cuDNN a convolution for its matrix units: channels_last tensors, numbers of channels that are multiples "
        "of 8, fewer groups; torch.backends.cudnn.benchmark = True looks for the fastest kernel.",
    ),
    LibraryFallback(
        r"rocblas_gemm(?:_\w+)?_general_kernel|gemm_source_kernel",
        "rocBLAS's source kernel for products that Tensile has no solution for",
        "Use sizes and types that Tensile has kernels for (multiples of 8, half precision), a newer ROCm, or "
        "TORCH_BLAS_PREFER_HIPBLASLT=1.",
    ),
)
HALF_ON_PROCESSOR = LibraryFallback(
    "",
    "products of float16 on a processor, most of which have no instruction for them",
    "Use bfloat16 or float32 on the CPU: torch.autocast('cpu', dtype=torch.bfloat16), or model.float().",
)
ANY = "|".join(f"(?:{each.match})" for each in FALLBACKS)
