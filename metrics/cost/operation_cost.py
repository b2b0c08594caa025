"""The cost of one operator: its operations and bytes, and the formulas that ONNX and frameworks share."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

FUNCTION_FLOPS = 8  # exp, log, erf, tanh and others: reduction of the range, a polynomial, scaling
SOFTMAX_FLOPS = FUNCTION_FLOPS + 4  # of an element: maximum, difference, exponential, sum, quotient


class OperationCost(Struct, frozen=True):
    """What one operator costs, at least.

    `flops` counts a multiplication and its addition as two. `product_flops` are those of them that belong to matrix
    products, convolutions and attention, which tensor cores can do; `product_dtype` is the type of their operands, None
    where there are none. Each operand is read once and each result written once, whatever caches do.
    """

    flops: int
    read_nbytes: int
    written_nbytes: int
    product_flops: int = 0
    product_dtype: str | None = None

    @property
    def nbytes(self) -> int:
        """The bytes that it reads and writes."""
        return self.read_nbytes + self.written_nbytes


def count_product(rows: int, inner: int, columns: int, batch: int = 1) -> int:
    """Return the operations of `batch` products of a `rows` × `inner` and an `inner` × `columns` matrix."""
    return 2 * batch * rows * inner * columns


def count_convolution(output: Sequence[int], weight: Sequence[int]) -> int:
    """Return the operations of a convolution.

    `output` is the shape N × C_out × spatial of its result, `weight` C_out × C_in / groups × kernel. For a transposed
    convolution give the shape of its input as `output`: there each element of the input meets the whole kernel, and
    `weight` is C_in × C_out / groups × kernel.
    """
    return 2 * prod(output) * prod(weight[1:])


def count_attention(  # noqa: PLR0913 - the sizes of three matrices
    queries: int, keys: int, head_size: int, value_size: int, heads: int, *, is_causal: bool = False
) -> int:
    """Return the operations of the two products of attention over `heads` heads, those of all batches.

    Causal attention does half of them (each query sees the keys before it), where there are as many queries as keys;
    the last `queries` of more keys see all that arrived before.
    """
    twice = 2 * queries * keys  # the pairs, each counted twice: half a square need not be whole
    if is_causal:
        seen = max(keys - queries, 0)  # the keys before the first query
        twice = 2 * queries * seen + min(queries, keys) ** 2
    return heads * twice * (head_size + value_size)
