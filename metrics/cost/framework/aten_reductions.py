"""Rules of reductions, softmax, losses and pooling."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from deepprof.metrics.cost.framework.aten_pointwise import choose_larger, count_real
from deepprof.metrics.cost.framework.operator_call import OperatorCall, Rule, Shape, UnfitOperandsError, size_of
from deepprof.metrics.cost.operation_cost import FUNCTION_FLOPS, SOFTMAX_FLOPS, OperationCost

SOFTMAX_BACKWARD = 4  # multiply, sum, subtract, multiply

# Operations per element that is read; the place of the list of sides is 1 where it is given.
REDUCED: Mapping[str, int] = {
    **dict.fromkeys(("sum", "mean", "prod", "amax", "amin", "max", "min", "nansum"), 1),
    **dict.fromkeys(("any", "all", "argmax", "argmin"), 1),
    **{
        "var": 4,
        "std": 4,
        "var_mean": 4,
        "norm": 2,
        "linalg_vector_norm": 2,
        "logsumexp": FUNCTION_FLOPS + 3,
        "count_nonzero": 1,
    },
}
ARGUMENTS = {"linalg_vector_norm": 2, "norm": 2}  # where the sides are not at place 1


def _reduce(call: OperatorCall, each: int) -> OperationCost:
    """`sum(self, dim, keepdim, …)` and its kin: `each` operations on every element; none for `dim` reduces all."""
    given, name = call.tensor(0), call.name.rpartition("::")[2]
    if call.is_tensor(1) and name in {"max", "min"}:
        return choose_larger(call)
    kept = _count_kept(call.shape(0), call.operand(ARGUMENTS.get(name, 1)).value, call)
    dtype = "int64" if name.startswith("arg") else "bool" if name in {"any", "all"} else given.dtype
    extra = size_of(kept, "int64") if name in {"max", "min"} and kept > 1 else 0
    written = size_of(kept, dtype) * (2 if name == "var_mean" else 1) + extra
    return OperationCost(count_real(each * given.elements, [given]), given.nbytes, written)


def _count_kept(shape: Shape, sides: str, call: OperatorCall) -> int:
    """Return how many elements a reduction leaves of `shape`; `sides` is the text of the argument."""
    if sides in {"", "[]"} or not shape:
        return 1
    if not sides.strip("[]").replace(",", "").replace(" ", "").replace("-", "").isdigit():
        raise UnfitOperandsError(f"{call.name}: {sides[:40]!r} are no sides")
    gone = {int(side) % len(shape) for side in sides.strip("[]").split(",")}
    return prod(side for place, side in enumerate(shape) if place not in gone)


def _softmax(call: OperatorCall) -> OperationCost:
    """`_softmax(self, dim, half_to_float)`, `_log_softmax`."""
    given = call.tensor(0)
    dtype = "float32" if call.flag(2, default=False) else given.dtype
    return OperationCost(SOFTMAX_FLOPS * given.elements, given.nbytes, size_of(given.elements, dtype))


def _softmax_backward(call: OperatorCall) -> OperationCost:
    """`_softmax_backward_data(grad_output, output, dim, input_dtype)`."""
    gradient, result = call.tensor(0), call.tensor(1)
    dtype = call.scalar_type(3) or result.dtype
    written = size_of(result.elements, dtype)
    return OperationCost(SOFTMAX_BACKWARD * result.elements, gradient.nbytes + result.nbytes, written)


def _nll_loss(call: OperatorCall) -> OperationCost:
    """`nll_loss_forward(self, target, weight, reduction, …)`: reads one score for every target."""
    scores, target = call.tensor(0), call.tensor(1)
    one = size_of(target.elements, scores.dtype)
    reduction = call.operand(3).value
    result = one if reduction == "0" else size_of(1, scores.dtype)
    return OperationCost(target.elements, one + target.nbytes, result + size_of(1, scores.dtype))


def _nll_loss_backward(call: OperatorCall) -> OperationCost:
    """`nll_loss_backward(grad_output, self, target, …)`: writes a gradient for every score, most of them 0."""
    scores, target = call.tensor(1), call.tensor(2)
    return OperationCost(target.elements, call.tensor(0).nbytes + target.nbytes, scores.nbytes)


def _pooled(call: OperatorCall, sides: int, dilation: int | None, ceil: int) -> tuple[int, int]:
    """Return how many elements pooling over the last `sides` sides yields, and the window's elements.

    `dilation` and `ceil` are the places of these arguments; kernel, stride and padding are at 1, 2 and 3.
    """
    shape = call.shape(0)
    kernel = _each(call, 1, sides)
    stride = _each(call, 2, sides) if call.operand(2).value not in {"", "[]"} else kernel
    padding, spread = _each(call, 3, sides), (1,) * sides if dilation is None else _each(call, dilation, sides)
    more = [step - 1 if call.flag(ceil, default=False) else 0 for step in stride]
    rows = zip(shape[-sides:], kernel, stride, padding, spread, more, strict=True)
    found = [
        (side + 2 * pad - gap * (reach - 1) - 1 + extra) // step + 1 for side, reach, step, pad, gap, extra in rows
    ]
    return prod(shape[:-sides]) * prod(found), prod(kernel)


def _each(call: OperatorCall, place: int, sides: int) -> Shape:
    """Return an argument of one integer or one per side as one per side."""
    found = call.integers(place)
    return found if len(found) == sides else found[:1] * sides


def _max_pool(call: OperatorCall, sides: int) -> OperationCost:
    """`max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)`: writes values and indices."""
    elements, window = _pooled(call, sides, 4, 5)
    written = size_of(elements, call.tensor(0).dtype) + size_of(elements, "int64")
    return OperationCost(elements * window, call.tensor(0).nbytes, written)


def _mean_pool(call: OperatorCall, sides: int) -> OperationCost:
    """`avg_pool2d(self, kernel_size, stride, padding, ceil_mode, …)`."""
    elements, window = _pooled(call, sides, None, 4)
    return OperationCost(elements * window, call.tensor(0).nbytes, size_of(elements, call.tensor(0).dtype))


def _pool_backward(call: OperatorCall) -> OperationCost:
    """Return the cost of a pooling's backward pass, of (grad_output, self, …, indices): writes a gradient of `self`."""
    gradient, given = call.tensor(0), call.tensor(1)
    indices = sum(operand.nbytes for operand in call.tensors[2:])
    return OperationCost(gradient.elements, gradient.nbytes + indices, given.nbytes)


def _adaptive_pool(call: OperatorCall) -> OperationCost:
    """`_adaptive_avg_pool2d(self, output_size)`: adds up every element, about once."""
    given, sides = call.tensor(0), call.integers(1)
    kept = prod(call.shape(0)[: -len(sides)]) * prod(sides)
    return OperationCost(given.elements, given.nbytes, size_of(kept, given.dtype))


def _upsample_nearest(call: OperatorCall) -> OperationCost:
    """`upsample_nearest2d(self, output_size, …)`: copies elements."""
    given, sides = call.tensor(0), call.integers(1)
    kept = prod(call.shape(0)[: -len(sides)]) * prod(sides)
    return OperationCost(0, given.nbytes, size_of(kept, given.dtype))


RULES: Mapping[str, Rule] = {
    **{f"aten::{name}": partial(_reduce, each=each) for name, each in REDUCED.items()},
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax"), _softmax),
    **dict.fromkeys(("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"), _softmax_backward),
    **dict.fromkeys(("aten::nll_loss_forward", "aten::nll_loss2d_forward"), _nll_loss),
    **dict.fromkeys(("aten::nll_loss_backward", "aten::nll_loss2d_backward"), _nll_loss_backward),
    **{f"aten::max_pool{sides}d_with_indices": partial(_max_pool, sides=sides) for sides in (2, 3)},
    **{f"aten::avg_pool{sides}d": partial(_mean_pool, sides=sides) for sides in (1, 2, 3)},
    **{f"aten::max_pool{sides}d_with_indices_backward": _pool_backward for sides in (2, 3)},
    **{f"aten::avg_pool{sides}d_backward": _pool_backward for sides in (2, 3)},
    **{f"aten::_adaptive_avg_pool{sides}d_backward": _pool_backward for sides in (2, 3)},
    **{f"aten::_adaptive_avg_pool{sides}d": _adaptive_pool for sides in (2, 3)},
    **{f"aten::upsample_nearest{sides}d": _upsample_nearest for sides in (1, 2, 3)},
}
