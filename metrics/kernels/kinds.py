"""The words for what a kernel computes, and the table that states it for kernels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.cost.roofs import RateType

Category = Literal[
    "matmul",
    "convolution",
    "attention",
    "normalization",
    "softmax",
    "elementwise",
    "reduction",
    "optimizer",
    "embedding_index",
    "pooling",
    "rnn",
    "layout",
    "cast",
    "random",
    "sort_scan_topk",
    "quantization",
    "moe_routing",
    "loss",
    "communication",
    "memory_set_copy",
    "custom",
    "unknown",
]
Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8", "int4"]
Unit = Literal["tensor_core", "simt"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
UNITS: tuple[Unit, ...] = get_args(Unit)
PRODUCTS: tuple[Category, ...] = ("matmul", "convolution", "attention", "rnn")  # the categories that multiply matrices

# The rate of a device's peaks that counts for factors of a precision.
RATE_TYPES: Mapping[Precision, RateType] = MappingProxyType(
    {
        "fp64": "float64",
        "fp32": "float32",
        "tf32": "tf32",
        "bf16": "bfloat16",
        "fp16": "float16",
        "fp8": "float8",
        "fp4": "float4",
        "int8": "int8",
    }
)

TEXT = pl.String()
KERNEL_KINDS = TableSchema.of(
    "What kernels of one name compute.",
    {
        "category": (pl.Enum(CATEGORIES), "the kind of computation; unknown where the name does not tell"),
        "precision": (pl.Enum(PRECISIONS), "the type of the factors of a product; null: no product, or unknown"),
        "unit": (pl.Enum(UNITS), "what multiplies them: matrix units or ordinary ones; null: no product, or unknown"),
        "library": (TEXT, "the library that the kernel is from; null: unknown"),
        "algorithm": (TEXT, "how it computes, such as `winograd` or `flash attention 2`; null: not stated"),
        "sure": (pl.Boolean(), "whether category, precision and unit follow from the name without doubt"),
    },
)
