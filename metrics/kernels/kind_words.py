"""The words of reports for what a kernel computes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deepprof.metrics.kernels.kinds import PRODUCTS, Category, Precision, Unit

CATEGORY_WORDS: Mapping[Category, str] = MappingProxyType(
    {
        "matmul": "matrix products",
        "convolution": "convolutions",
        "attention": "attention",
        "normalization": "normalization",
        "softmax": "softmax",
        "elementwise": "elementwise",
        "reduction": "reductions",
        "optimizer": "optimizer",
        "embedding_index": "embedding, indexing",
        "pooling": "pooling",
        "rnn": "recurrent layers",
        "layout": "layout, strided copies",
        "cast": "casts",
        "random": "random numbers, dropout",
        "sort_scan_topk": "sort, scan, top-k",
        "quantization": "quantization",
        "moe_routing": "routing to experts",
        "loss": "loss",
        "communication": "communication",
        "memory_set_copy": "fills and copies",
        "custom": "hand-written kernels",
        "unknown": "not known by name",
    }
)
PRECISION_WORDS: Mapping[Precision, str] = MappingProxyType(
    {
        "fp64": "float64",
        "fp32": "float32",
        "tf32": "TF32",
        "bf16": "bfloat16",
        "fp16": "float16",
        "fp8": "float8",
        "fp4": "float4",
        "int8": "int8",
        "int4": "int4",
    }
)
NO_TYPE = "type not known"
UNIT_WORDS: Mapping[Unit, str] = MappingProxyType({"tensor_core": "matrix units", "simt": "ordinary units"})


def describe_kind(category: Category, precision: Precision | None, unit: Unit | None, *, short: bool = False) -> str:
    """Return a kind as in `matrix products, float32 on ordinary units`.

    In a `short` one precisions are as in tables: `products, fp32 on ordinary units`.
    """
    name = CATEGORY_WORDS[category].removeprefix("matrix " if short else "")
    if category not in PRODUCTS:
        return name
    factors = NO_TYPE if precision is None else precision if short else PRECISION_WORDS[precision]
    return f"{name}, {factors}" + ("" if unit is None else f" on {UNIT_WORDS[unit]}")
