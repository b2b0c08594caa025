"""Rules of operators over lists of tensors: the `foreach` forms, and the fused steps of optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from deepprof.metrics.cost.framework.aten_pointwise import BINARY, TERNARY, UNARY
from deepprof.metrics.cost.framework.operator_call import Operand, OperatorCall, Rule, UnfitOperandsError, size_of
from deepprof.metrics.cost.operation_cost import OperationCost

# Operations per parameter of a fused step, weight decay included: both moving averages use 3, their correction and
# the quotient 4, the step 2; momentum uses 2.
ADAM, ADAMW, SGD = 14, 13, 6
FOREACH: Mapping[str, int] = {**UNARY, **BINARY, **TERNARY, "zero": 0, "copy": 0, "norm": 2, "max": 1}
REDUCED = frozenset({"norm", "max"})  # one number of every tensor
WRITTEN_ONLY = frozenset({"zero_", "copy_"})


def _list(call: OperatorCall, place: int) -> Operand:
    found = call.operand(place)
    if not found.elements:
        raise UnfitOperandsError(f"{call.name}: the shapes of operand {place} are not recorded")
    return found


def _foreach(call: OperatorCall, each: int) -> OperationCost:
    """`_foreach_add_(self, other, …)` and its kin: `each` operations on every element of the first list."""
    first, name = _list(call, 0), call.name.removeprefix("aten::_foreach_")
    lists = [operand for operand in call.tensors if len(operand.shapes) == len(first.shapes)]
    scaled = int(name.rstrip("_") in {"add", "sub"} and call.operand(2).value not in {"", "1", "1."})
    read = sum(operand.nbytes for operand in lists) - first.nbytes * (name in WRITTEN_ONLY)
    written = size_of(len(first.shapes), first.dtype) if name in REDUCED else first.nbytes
    return OperationCost((each + scaled) * first.elements, read, written)


def _fused_adam(call: OperatorCall, each: int) -> OperationCost:
    """`_fused_adam_(self, grads, exp_avgs, exp_avg_sqs, …)`: reads the four lists, writes all but the gradients."""
    lists = [_list(call, place) for place in range(4)]
    read = sum(operand.nbytes for operand in lists)
    return OperationCost(each * lists[0].elements, read, read - lists[1].nbytes)


def _fused_sgd(call: OperatorCall) -> OperationCost:
    """`_fused_sgd_(self, grads, momentum_buffer_list, …)`."""
    given, gradients, momentum = _list(call, 0), _list(call, 1), call.operand(2)
    read = given.nbytes + gradients.nbytes + momentum.nbytes
    return OperationCost(SGD * given.elements, read, given.nbytes + momentum.nbytes)


RULES: Mapping[str, Rule] = {
    **{f"aten::_foreach_{name}": partial(_foreach, each=each) for name, each in FOREACH.items()},
    **{f"aten::_foreach_{name}_": partial(_foreach, each=each) for name, each in FOREACH.items()},
    "aten::_fused_adam_": partial(_fused_adam, each=ADAM),
    "aten::_fused_adamw_": partial(_fused_adam, each=ADAMW),
    "aten::_fused_sgd_": _fused_sgd,
}
