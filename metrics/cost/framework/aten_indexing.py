"""Rules of what selects rows and elements: embeddings, gathering and scattering."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from deepprof.metrics.cost.framework.operator_call import OperatorCall, Rule, UnfitOperandsError, broadcast, size_of
from deepprof.metrics.cost.operation_cost import OperationCost


def _embedding(call: OperatorCall) -> OperationCost:
    """`embedding(weight, indices, …)`: reads and writes a row for every index."""
    weight, indices = call.tensor(0), call.tensor(1)
    rows = size_of(indices.elements * prod(call.shape(0)[1:]), weight.dtype)
    return OperationCost(0, rows + indices.nbytes, rows)


def _embedding_backward(call: OperatorCall) -> OperationCost:
    """`embedding_dense_backward(grad_output, indices, num_weights, …)`: adds rows to a gradient of the whole table."""
    gradient, indices = call.tensor(0), call.tensor(1)
    table = call.integers(2)[0] * call.shape(0)[-1]
    return OperationCost(gradient.elements, gradient.nbytes + indices.nbytes, size_of(table, gradient.dtype))


def _embedding_bag(call: OperatorCall) -> OperationCost:
    """`_embedding_bag(weight, indices, offsets, …)`: adds up the rows of every bag."""
    weight, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    size = prod(call.shape(0)[1:])
    read = size_of(indices.elements * size, weight.dtype) + indices.nbytes + offsets.nbytes
    return OperationCost(indices.elements * size, read, size_of(offsets.elements * size, weight.dtype))


def _index_select(call: OperatorCall) -> OperationCost:
    """`index_select(self, dim, index)`: copies the slices at the indices."""
    given, index = call.tensor(0), call.tensor(2)
    shape, side = call.shape(0), call.integers(1)[0]
    taken = prod(shape) // max(shape[side], 1) * index.elements
    return OperationCost(0, size_of(taken, given.dtype) + index.nbytes, size_of(taken, given.dtype))


def _gather(call: OperatorCall) -> OperationCost:
    """`gather(self, dim, index)`: copies an element for every index."""
    given, index = call.tensor(0), call.tensor(2)
    taken = size_of(index.elements, given.dtype)
    return OperationCost(0, taken + index.nbytes, taken)


def _scatter(call: OperatorCall) -> OperationCost:
    """`scatter_(self, dim, index, src)`: writes an element for every index; `scatter_add_` reads and adds it first."""
    given, index = call.tensor(0), call.tensor(2)
    written, adds = size_of(index.elements, given.dtype), "_add" in call.name or "reduce" in call.name
    read = index.nbytes + (written if call.is_tensor(3) else 0) + written * adds
    return OperationCost(index.elements * adds, read, written)


def _index_add(call: OperatorCall) -> OperationCost:
    """`index_add_(self, dim, index, source, …)`: reads, adds and writes every element of the source."""
    index, source = call.tensor(2), call.tensor(3)
    return OperationCost(source.elements, index.nbytes + 2 * source.nbytes, source.nbytes)


def _index(call: OperatorCall) -> OperationCost:
    """`index(self, indices)`: copies what the indices, broadcast, select of the first sides."""
    given, indices = call.tensor(0), call.operand(1)
    if not indices.shapes or not all(indices.shapes):
        raise UnfitOperandsError(f"{call.name}: its indices are not recorded")
    chosen = prod(broadcast(indices.shapes)) * prod(call.shape(0)[len(indices.shapes) :])
    taken = size_of(chosen, given.dtype)
    return OperationCost(0, taken + size_of(indices.held, "int64"), taken)


def _index_put(call: OperatorCall) -> OperationCost:
    """`index_put_(self, indices, values, accumulate)`: writes the values, adding them where it accumulates."""
    values, indices = call.tensor(2), size_of(call.operand(1).held, "int64")
    adds = call.flag(3, default=False)
    written = values.nbytes
    return OperationCost(values.elements * adds, values.nbytes + indices + written * adds, written)


RULES: Mapping[str, Rule] = {
    "aten::embedding": _embedding,
    "aten::embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(("aten::_embedding_bag", "aten::_embedding_bag_forward_only"), _embedding_bag),
    "aten::index_select": _index_select,
    "aten::gather": _gather,
    **dict.fromkeys(("aten::scatter", "aten::scatter_", "aten::scatter_add", "aten::scatter_add_"), _scatter),
    **dict.fromkeys(("aten::scatter_reduce", "aten::scatter_reduce_"), _scatter),
    **dict.fromkeys(("aten::index_add", "aten::index_add_"), _index_add),
    "aten::index": _index,
    **dict.fromkeys(("aten::index_put", "aten::index_put_", "aten::_index_put_impl_"), _index_put),
}
