"""The cost of fused kernels: a compiler's by the operators in the name, and those of vLLM, SGLang and AITER.

TorchInductor names kernels `triton_poi_fused_add_mul_0`: a kind (`poi`: element-wise, `red` and `per`: with a
reduction), the operators it was made of, a number. Every operand counts once, whether it is read or written, and every
operator that computes does its operations on every element: an estimate, and marked as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from deepprof.metrics.cost.framework.aten_pointwise import BINARY, TERNARY, UNARY
from deepprof.metrics.cost.framework.aten_reductions import REDUCED
from deepprof.metrics.cost.framework.operator_call import OperatorCall, Rule, UnfitOperandsError, size_of
from deepprof.metrics.cost.operation_cost import FUNCTION_FLOPS, OperationCost, count_product

NAME = re.compile(r"triton_(poi|red|per)_fused_([a-z_0-9]*[a-z])_\d+")
MAX_NAME = 400  # characters
COSTS = {**UNARY, **BINARY, **TERNARY, **REDUCED}
# Operators that read some rows of a table: how many is not recorded.
SELECTING = frozenset({"embedding", "index", "gather", "index_select", "scatter", "index_put", "nll_loss_forward"})
LONGEST = 4  # words of an operator's name

ROTATE = 3  # operations per element: two products of a rotation and their sum


def is_fused(name: str) -> bool:
    """Return whether a name is that of a kernel whose cost can be estimated."""
    return len(name) <= MAX_NAME and NAME.fullmatch(name) is not None


def _list_sources(name: str) -> list[str]:
    """Return the operators that a kernel's name lists; words that are no recognized operator are alone."""
    found = NAME.fullmatch(name)
    words = found[2].split("_") if found else []
    sources, at = [], 0
    while at < len(words):
        lengths = range(min(LONGEST, len(words) - at), 0, -1)
        length = next((n for n in lengths if "_".join(words[at : at + n]) in COSTS), 1)
        sources.append("_".join(words[at : at + length]))
        at += length
    return [source for source in sources if source]


def estimate(call: OperatorCall) -> OperationCost:
    """Return the estimated cost of a fused kernel; raise `UnfitOperandsError` where some operands are read in part."""
    sources = _list_sources(call.name)
    if SELECTING & set(sources) or not call.tensors:
        raise UnfitOperandsError(f"{call.name}: how much it reads of its operands is not recorded")
    elements = max(operand.elements for operand in call.tensors)
    nbytes = sum(size_of(min(operand.held, elements), operand.dtype) for operand in call.tensors)
    return OperationCost(elements * sum(COSTS.get(source, 0) for source in sources), nbytes, 0)


def _activate_and_multiply(call: OperatorCall) -> OperationCost:
    """`silu_and_mul(result, input)`: the input contains both halves side by side."""
    result, given = call.tensor(0), call.tensor(1)
    return OperationCost((FUNCTION_FLOPS + 4) * result.elements, given.nbytes, result.nbytes)


def _rotate(call: OperatorCall) -> OperationCost:
    """`rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox)`, in place.

    A position needs one row of the table, whose length is the part of a head that is rotated.
    """
    positions, query, key, table = call.tensor(0), call.tensor(1), call.operand(2), call.tensor(4)
    size, part = call.integers(3)[0], call.shape(4)[-1]
    rotated = (query.elements + key.elements) * min(part, size) // max(size, 1)
    rows = size_of(positions.elements * part, table.dtype)
    return OperationCost(
        ROTATE * rotated, positions.nbytes + rows + size_of(rotated, query.dtype), size_of(rotated, query.dtype)
    )


def _quantize(call: OperatorCall) -> OperationCost:
    """`static_scaled_fp8_quant(result, input, scale)`: multiplies and rounds."""
    result, given, scale = call.tensor(0), call.tensor(1), call.operand(2)
    return OperationCost(2 * given.elements, given.nbytes + scale.nbytes, result.nbytes)


def _cache(call: OperatorCall) -> OperationCost:
    """`reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, …)`: copies keys and values."""
    key, value, slots = call.tensor(0), call.tensor(1), call.tensor(4)
    written = size_of(key.elements, call.tensor(2).dtype) + size_of(value.elements, call.tensor(3).dtype)
    return OperationCost(0, key.nbytes + value.nbytes + slots.nbytes, written)


def _linear(call: OperatorCall) -> OperationCost:
    """`rocm_unquantized_gemm(input, weight, bias)`, `gemm_a16w16(A, B, bias, …)`: the weight is transposed."""
    given, weight = call.shape(0), call.shape(1, 2)
    rows, dtype = prod(given[:-1]), call.tensor(0).dtype
    flops = count_product(rows, given[-1], weight[0])
    added = rows * weight[0] * call.is_tensor(2)
    return OperationCost(flops + added, call.nbytes, size_of(rows * weight[0], dtype), flops, dtype)


def _group_norm(call: OperatorCall) -> OperationCost:
    """`aiter::_groupnorm_run(input, groups, weight, bias, eps)`: as `native_group_norm`."""
    given = call.tensor(0)
    return OperationCost(7 * given.elements, call.nbytes, given.nbytes)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("_C::silu_and_mul", "sgl_kernel::silu_and_mul", "aiter::silu_and_mul"), _activate_and_multiply),
    **dict.fromkeys(("_C::gelu_and_mul", "sgl_kernel::gelu_and_mul"), _activate_and_multiply),
    **dict.fromkeys(("_C::rotary_embedding", "sgl_kernel::rotary_embedding"), _rotate),
    "_C::static_scaled_fp8_quant": _quantize,
    **dict.fromkeys(("_C_cache_ops::reshape_and_cache_flash", "sglang::store_cache"), _cache),
    **dict.fromkeys(("vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16"), _linear),
    "aiter::_groupnorm_run": _group_norm,
}
