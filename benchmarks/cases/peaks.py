"""Jobs whose operators have shapes, on a device whose peaks are known: each mistake next to the same put right.

On an H100 a product of 8192 × 1024 and 1024 × 8192 in bfloat16 takes at least 139 µs, one of 2048 × 2048 in float32
257 µs on its ordinary units and 35 µs as TF32, and a vocabulary of 50257 behind 4096 × 1024 426 µs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.cases.case import HEALTHY, Case
from benchmarks.cases.contexts import REST, Call, write

__all__ = ["PEAK_CASES", "PEAK_RULES", "SECTION", "cases"]

SECTION = "Products and peaks"
PEAK_RULES = ("low-efficiency", "wrong-precision", "padding-waste")
MM, LINEAR = "aten::mm", "aten::addmm"
MULTIPLY, HEAD = "model.py(110): multiply", "model.py(120): head"


def multiply(function: str, kernel_us: float, sides: Sequence[int], dtype: str, kernel: str = "") -> Call:
    """Return a function with a product of matrices of these sides: rows, inner, columns."""
    rows, inner, columns = sides
    operands = (f"[[{rows}, {inner}], [{inner}, {columns}]]", f'["{dtype}", "{dtype}"]')
    return Call(function, [(MM, kernel_us)], operands={MM: operands}, called={MM: kernel} if kernel else {})


SQUARE, SINGLE = (8192, 1024, 8192), (2048, 2048, 2048)
ALIGNED = multiply(MULTIPLY, 55.0, (4096, 1024, 4096), "c10::BFloat16")
HALF, FULL = "c10::BFloat16", "float"
SGEMM = "ampere_sgemm_128x128_nn"
# The calls, the rule that must speak with its line, if any.
PEAK_CASES: dict[str, tuple[Sequence[Call], str, str]] = {
    "a product far from its roof": ([multiply(MULTIPLY, 1500.0, SQUARE, HALF), *REST], "low-efficiency", MULTIPLY),
    "a product near its roof": ([multiply(MULTIPLY, 220.0, SQUARE, HALF), *REST], "", ""),
    "a product too small for any roof": ([multiply(MULTIPLY, 12.0, (64, 64, 64), HALF), *REST], "", ""),
    "products in float32": ([multiply(MULTIPLY, 350.0, SINGLE, FULL, SGEMM), *REST], "wrong-precision", MULTIPLY),
    "products in bfloat16": ([multiply(MULTIPLY, 30.0, SINGLE, HALF), *REST], "", ""),
    "products in float32 on tensor cores": (
        [multiply(MULTIPLY, 60.0, SINGLE, FULL, "ampere_sgemm_tf32_128x128_tn"), *REST],
        "",
        "",
    ),
    "products in float32 that memory limits": (
        [multiply(MULTIPLY, 130.0, (8, 8192, 8192), FULL, SGEMM), *REST],
        "",
        "",
    ),
    "a vocabulary of 50257": (
        [ALIGNED, multiply(HEAD, 1400.0, (4096, 1024, 50257), HALF), *REST],
        "padding-waste",
        HEAD,
    ),
    "a vocabulary of 50304": ([ALIGNED, multiply(HEAD, 680.0, (4096, 1024, 50304), HALF), *REST], "", ""),
    "half of each tile for nothing": (
        [ALIGNED, multiply(HEAD, 900.0, (520, 8192, 65536), HALF, "gemm_bf16_tilesize256x256x64"), *REST],
        "padding-waste",
        HEAD,
    ),
    "whole tiles": (
        [ALIGNED, multiply(HEAD, 900.0, (512, 8192, 65536), HALF, "gemm_bf16_tilesize256x256x64"), *REST],
        "",
        "",
    ),
}


def cases() -> Iterator[Case]:
    """Yield a case per job."""
    for name, (calls, rule, function) in PEAK_CASES.items():
        never = tuple(each for each in PEAK_RULES if each != rule)
        finds = (rule, function) if rule else None
        yield Case(SECTION, name, rule or HEALTHY, partial(write, calls), never=never, finds=finds)
