"""The cost of a kernel that a compiler made of several element-wise operators, by the operators that its name lists.

TorchInductor names kernels `triton_poi_fused_add_mul_0`: a kind (`poi`: element-wise, `red` and `per`: with a
reduction), the operators it was made of, a number. Every operand counts once, whether it is read or written, and every
operator that computes does its operations on each element: an estimate, and marked as one.
"""

from __future__ import annotations

import re

from deepprof.metrics.cost.framework.aten_pointwise import BINARY, TERNARY, UNARY
from deepprof.metrics.cost.framework.aten_reductions import REDUCED
from deepprof.metrics.cost.framework.operator_call import OperatorCall, UnfitOperandsError, size_of
from deepprof.metrics.cost.operation_cost import OperationCost

NAME = re.compile(r"triton_(poi|red|per)_fused_([a-z_0-9]*[a-z])_\d+")
MAX_NAME = 400  # characters
COSTS = {**UNARY, **BINARY, **TERNARY, **REDUCED}
# Operators that read some rows of a table: how many is not recorded.
SELECTING = frozenset({"embedding", "index", "gather", "index_select", "scatter", "index_put", "nll_loss_forward"})
LONGEST = 4  # words of an operator's name


def is_fused(name: str) -> bool:
    """Return whether a name is that of a kernel whose cost can be estimated."""
    return len(name) <= MAX_NAME and NAME.fullmatch(name) is not None


def _list_sources(name: str) -> list[str]:
    """Return the operators that a kernel's name lists; words that are no known operator stand alone."""
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
