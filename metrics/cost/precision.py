"""In which type the units of a device multiply: what a kernel's name says beyond the type of its operands."""

from __future__ import annotations

import re

# How vendors' libraries name kernels that multiply float32 operands as tf32 on tensor cores: by the type itself, and by
# the instruction, whose form for float32 operands is m16n8k8 (s1688) or m16n8k4 (s1684).
TF32_NAMES = re.compile(r"tf32|xf32|(?:^|_)s168[48]gemm|(?:^|_)s168[48](?:fprop|dgrad|wgrad)", re.IGNORECASE)
# The same, for operands that are rounded to 16 bits first.
HALF_NAMES = {
    "bfloat16": re.compile(r"(?:^|_)s\d+bf16(?:gemm|fprop|dgrad|wgrad)|bf16bf16_bf16bf16", re.IGNORECASE),
    "float16": re.compile(r"(?:^|_)s\d+f16(?:gemm|fprop|dgrad|wgrad)", re.IGNORECASE),
}
# Three products of smaller types in place of one, as exact as float32: no roof is stated for them.
EMULATED_NAMES = re.compile(r"3xtf32|bf16x\d|fast_?f32|fast_?accurate", re.IGNORECASE)


def find_product_dtype(dtype: str | None, kernel_name: str) -> str | None:
    """Return the type whose rate counts for products of `dtype` in a kernel.

    Float32 products count as `tf32` (or as a type of 16 bits) only where the kernel's name says that it rounds: whether
    a program allows it is not recorded. Every other type is returned as it is.
    """
    if dtype != "float32" or EMULATED_NAMES.search(kernel_name):
        return dtype
    if TF32_NAMES.search(kernel_name):
        return "tf32"
    return next((name for name, pattern in HALF_NAMES.items() if pattern.search(kernel_name)), dtype)
