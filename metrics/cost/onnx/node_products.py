"""Costs of matrix products and convolutions, in floating point and quantised.

A convolution whose stride is larger than its kernel leaves elements of its input out, and does not read them (PRoof).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from deepprof.collectors.models.graph import TensorSpec
from deepprof.metrics.cost.onnx.node_tensors import NodeCost, NodeTensors, Rule
from deepprof.metrics.cost.operation_cost import count_convolution, count_product

REQUANTIZED = 3  # operations for every result: scale, round, shift


def convolve(tensors: NodeTensors) -> NodeCost:
    """Return the cost of a convolution: N × C_in × spatial with C_out × C_in / groups × kernel, and a bias."""
    return _cost_convolution(tensors, weight=1, bias=2)


def _cost_convolution(tensors: NodeTensors, *, weight: int, bias: int, more: int = 0) -> NodeCost:
    """Return the cost, where weight and bias are the inputs of these places; `more` operations for every result."""
    kernel = tensors.input(weight)
    products = count_convolution(tensors.output.shape, kernel.shape)
    others = (bool(tensors.input(bias).elements) + more) * tensors.output.elements
    seen = _read_windows(tensors, tensors.input(0), kernel.shape[2:])
    return tensors.cost(products + others, products, first_nbytes=seen)


def _read_windows(tensors: NodeTensors, data: TensorSpec, kernel: tuple[int, ...]) -> int:
    """Return the bytes of the input that windows of a size see."""
    strides = tensors.numbers("strides") or (1,) * len(kernel)
    seen = prod(min(size, stride) for size, stride in zip(kernel, strides, strict=False))
    return data.nbytes * seen // max(prod(strides), 1)


def _convolve_quantized(tensors: NodeTensors) -> NodeCost:
    """Return the cost of QLinearConv: x, its scale and zero, w, its scale and zero, those of the result, a bias."""
    return _cost_convolution(tensors, weight=3, bias=8, more=REQUANTIZED)


def _convolve_integers(tensors: NodeTensors) -> NodeCost:
    """Return the cost of ConvInteger: x, w and their zeros."""
    return _cost_convolution(tensors, weight=1, bias=4)


def _convolve_transposed(tensors: NodeTensors) -> NodeCost:
    """Return the cost of ConvTranspose: each element of the input meets the kernel, C_in × C_out / groups × kernel."""
    products = count_convolution(tensors.input(0).shape, tensors.input(1).shape)
    return tensors.cost(products + bool(tensors.input(2).elements) * tensors.output.elements, products)


def multiply(tensors: NodeTensors) -> NodeCost:
    """Return the cost of MatMul, which broadcasts the dimensions before the last two."""
    products = _count_inner(tensors, tensors.input(0).shape[-1])
    return tensors.cost(products, products)


def _count_inner(tensors: NodeTensors, inner: int) -> int:
    """Return the operations of a result each of whose elements is a sum of `inner` products."""
    return count_product(tensors.output.elements, inner, 1)


def _multiply_fused(tensors: NodeTensors) -> NodeCost:
    """Return the cost of onnxruntime's FusedMatMul, which may transpose its operands."""
    left = tensors.input(0).shape
    transposed = tensors.number("transA", 0) and len(left) > 1
    products = _count_inner(tensors, left[-2] if transposed else left[-1])
    return tensors.cost(products, products)


def _multiply_quantized(tensors: NodeTensors) -> NodeCost:
    """Return the cost of a product of quantised matrices, whose results are scaled."""
    products = _count_inner(tensors, tensors.input(0).shape[-1])
    return tensors.cost(products + REQUANTIZED * tensors.output.elements, products)


def _multiply_packed(tensors: NodeTensors) -> NodeCost | None:
    """Return the cost of MatMulNBits: weights of few bits, which are scaled to the type of the first operand."""
    inner, columns = tensors.number("K", 0), tensors.number("N", 0)
    if not inner or not columns:
        return None
    products = _count_inner(tensors, inner)
    return tensors.cost(products + 2 * inner * columns, products)


def _multiply_general(tensors: NodeTensors) -> NodeCost:
    """Return the cost of Gemm: a product of two matrices, and a third that is added."""
    left = tensors.input(0).shape
    products = _count_inner(tensors, left[0] if tensors.number("transA", 0) else left[-1])
    return tensors.cost(products + bool(tensors.input(2).elements) * tensors.output.elements, products)


def _sum_products(tensors: NodeTensors) -> NodeCost | None:
    """Return the cost of Einsum over one or two operands, None for more: their order is the runtime's."""
    sizes = _read_equation(tensors)
    if sizes is None or len(tensors.inputs) > 2:
        return None
    points = prod(sizes.values())
    if len(tensors.inputs) == 1:
        return tensors.cost(points if points > tensors.output.elements else 0)
    is_product = points > tensors.output.elements  # letters are summed over
    return tensors.cost(2 * points if is_product else points, 2 * points if is_product else 0)


def _read_equation(tensors: NodeTensors) -> dict[str, int] | None:
    """Return the size of each letter of an Einsum; dimensions of an ellipsis count from the last, as they broadcast."""
    terms = tensors.text("equation", "").replace(" ", "").partition("->")[0].split(",")
    if len(terms) != len(tensors.inputs):
        return None
    sizes = dict[str, int]()
    for term, spec in zip(terms, tensors.inputs, strict=True):
        before, dots, after = term.partition("...")
        more = len(spec.shape) - len(before) - len(after)
        if more < 0 or (more and not dots):
            return None
        letters = [*before, *(f".{place}" for place in range(more, 0, -1)), *after]
        for letter, size in zip(letters, spec.shape, strict=True):
            sizes[letter] = max(sizes.get(letter, 1), size)
    return sizes


PRODUCT_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Conv", "com.microsoft.FusedConv", "com.microsoft.NhwcFusedConv"), convolve),
    **{"ConvTranspose": _convolve_transposed, "QLinearConv": _convolve_quantized, "ConvInteger": _convolve_integers},
    **{"MatMul": multiply, "MatMulInteger": multiply, "Gemm": _multiply_general, "Einsum": _sum_products},
    **{"com.microsoft.FusedMatMul": _multiply_fused, "com.microsoft.FusedGemm": _multiply_general},
    **{"QLinearMatMul": _multiply_quantized, "com.microsoft.MatMulNBits": _multiply_packed},
    **{"com.microsoft.MatMulIntegerToFloat": _multiply_quantized},
    "com.microsoft.DynamicQuantizeMatMul": _multiply_quantized,
}
