"""Costs of single operators, reckoned by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.cost.onnx.node_costs import NODE_RULES, cost_of_node
from deepprof.metrics.cost.operation_cost import OperationCost
from tests.metrics.cost.onnx.graphs import graph_of, node_of


def cost(kind: str, inputs: list[Any], outputs: list[Any], **attributes: Any) -> OperationCost | None:
    """Return the cost of a node whose tensors have these shapes; None is an input that is left out."""
    names = [f"i{number}" if shape is not None else "-" for number, shape in enumerate(inputs)]
    results = [f"o{number}" for number in range(len(outputs))]
    node = node_of(kind, " ".join(names), " ".join(results), **attributes)
    shapes = {
        name: shape for name, shape in zip([*names, *results], [*inputs, *outputs], strict=True) if shape is not None
    }
    return cost_of_node(node, graph_of([node], shapes))


HALF, BYTE = "float16", "int8"
CASES: list[tuple[str, list[Any], list[Any], dict[str, Any], tuple[int, int, int, int]]] = [
    # kind, inputs, outputs, attributes; flops, of them products, bytes read and written
    ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], [(1, 4, 6, 6)], {}, (7776, 7776, 4 * (192 + 108), 4 * 144)),
    ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3), (4,)], [(1, 4, 6, 6)], {}, (7776 + 144, 7776, 4 * (192 + 108 + 4), 4 * 144)),
    ("Conv", [(2, 4, 8), (4, 1, 3)], [(2, 4, 6)], {"group": 4}, (288, 288, 4 * (64 + 12), 4 * 48)),
    (
        "Conv",
        [(1, 2, 8, 8), (6, 2, 1, 1)],
        [(1, 6, 4, 4)],
        {"strides": (2, 2)},
        (384, 384, 4 * (128 // 4 + 12), 4 * 96),
    ),
    (
        "ConvTranspose",
        [(1, 2, 4, 4), (2, 3, 2, 2), (3,)],
        [(1, 3, 8, 8)],
        {},
        (768 + 192, 768, 4 * (32 + 24 + 3), 4 * 192),
    ),
    ("MatMul", [(5, 2, 3), (3, 4)], [(5, 2, 4)], {}, (240, 240, 4 * (30 + 12), 4 * 40)),
    ("MatMul", [(3,), (3,)], [()], {}, (6, 6, 24, 4)),
    ("Gemm", [(3, 2), (3, 4), (4,)], [(2, 4)], {"transA": 1}, (48 + 8, 48, 4 * (6 + 12 + 4), 32)),
    ("Einsum", [(2, 3, 4), (2, 4, 5)], [(2, 3, 5)], {"equation": "bij,bjk->bik"}, (240, 240, 4 * 64, 4 * 30)),
    ("Einsum", [(7, 2, 3), (3, 5)], [(7, 2, 5)], {"equation": "...ij, jk -> ...ik"}, (420, 420, 4 * 57, 4 * 70)),
    ("Einsum", [(3,), (4,)], [(3, 4)], {"equation": "i,j->ij"}, (12, 0, 28, 48)),
    ("Einsum", [(3, 4)], [(4, 3)], {"equation": "ij->ji"}, (0, 0, 48, 48)),
    ("Einsum", [(3, 4)], [(3,)], {"equation": "ij->i"}, (12, 0, 48, 12)),
    (
        *("QLinearConv", [((1, 2, 4, 4), BYTE), (), ((), BYTE), ((3, 2, 1, 1), BYTE), (), ((), BYTE), (), ((), BYTE)]),
        *([((1, 3, 4, 4), BYTE)], {}, (192 + 3 * 48, 192, 32 + 6 + 3 * 4 + 3, 48)),
    ),
    ("MatMulInteger", [((2, 3), BYTE), ((3, 4), BYTE)], [((2, 4), "int32")], {}, (48, 48, 18, 32)),
    (
        *("com.microsoft.MatMulNBits", [((2, 32), HALF), ((8, 1, 16), "uint8"), ((8,), HALF)]),
        *([((2, 8), HALF)], {"K": 32, "N": 8}, (1024 + 512, 1024, 128 + 128 + 16, 32)),
    ),
    # Two heads, 3 queries, 5 keys of size 4: products 2 · 2 · 15 · 8, and 12 for each of the 30 pairs.
    ("Attention", [(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)], [(1, 2, 3, 4)], {}, (480 + 360, 480, 4 * 104, 96)),
    (
        *("com.microsoft.MultiHeadAttention", [(1, 3, 8), (1, 5, 8), (1, 5, 8)], [(1, 3, 8)]),
        *({"num_heads": 2}, (480 + 360, 480, 4 * 104, 96)),
    ),
    # X 5 × 2 × 3, hidden 4: products 2 · 10 · (3 + 4) · 16.
    ("LSTM", [(5, 2, 3), (1, 16, 3), (1, 16, 4)], [(5, 1, 2, 4)], {}, (2240 + 17 * 40, 2240, 4 * 142, 160)),
    ("Relu", [(2, 3)], [(2, 3)], {}, (6, 0, 24, 24)),
    ("Add", [(2, 3), (3,)], [(2, 3)], {}, (6, 0, 36, 24)),
    ("Mul", [((2, 3), HALF), ((3,), HALF)], [((2, 3), HALF)], {}, (6, 0, 18, 12)),
    ("Erf", [(5,)], [(5,)], {}, (40, 0, 20, 20)),
    ("Sigmoid", [(5,)], [(5,)], {}, (50, 0, 20, 20)),
    ("Max", [(5,), (5,), (1,)], [(5,)], {}, (10, 0, 44, 20)),
    ("Softmax", [(2, 5)], [(2, 5)], {}, (120, 0, 40, 40)),
    ("LayerNormalization", [(2, 5), (5,), (5,)], [(2, 5)], {}, (70, 0, 80, 40)),
    ("ReduceMean", [(2, 5), ((1,), "int64")], [(2,)], {}, (12, 0, 48, 8)),
    ("MaxPool", [(1, 1, 4, 4)], [(1, 1, 2, 2)], {"kernel_shape": (2, 2)}, (16, 0, 64, 16)),
    ("GlobalAveragePool", [(1, 2, 4, 4)], [(1, 2, 1, 1)], {}, (34, 0, 128, 8)),
    ("Reshape", [(2, 3), ((1,), "int64")], [(6,)], {}, (0, 0, 0, 0)),
    ("Transpose", [(2, 3)], [(3, 2)], {}, (0, 0, 24, 24)),
    ("Slice", [(100,), ((1,), "int64"), ((1,), "int64")], [(10,)], {}, (0, 0, 56, 40)),
    ("Gather", [(1000, 4), ((3,), "int64")], [(3, 4)], {}, (0, 0, 48 + 24, 48)),
    ("Resize", [(1, 1, 4, 4)], [(1, 1, 8, 8)], {"mode": "linear"}, (7 * 64, 0, 64, 256)),
    ("Upsample", [(1, 1, 4, 4)], [(1, 1, 8, 8)], {"mode": "linear"}, (7 * 64, 0, 64, 256)),
    ("Upsample", [(1, 1, 4, 4)], [(1, 1, 8, 8)], {}, (0, 0, 64, 256)),
    ("Resize", [(1, 1, 8, 8)], [(1, 1, 2, 2)], {"mode": "nearest"}, (0, 0, 16, 16)),
    ("Cast", [(4,)], [((4,), HALF)], {}, (0, 0, 16, 8)),
    ("DequantizeLinear", [((6,), BYTE), (), ((), BYTE)], [(6,)], {}, (12, 0, 6 + 4 + 1, 24)),
]


@pytest.mark.parametrize(("kind", "inputs", "outputs", "attributes", "expected"), CASES)
def test_costs_are_those_that_were_reckoned_by_hand(
    kind: str, inputs: list[Any], outputs: list[Any], attributes: dict[str, Any], expected: tuple[int, ...]
) -> None:
    found = cost(kind, inputs, outputs, **attributes)
    assert found is not None
    assert (found.flops, found.product_flops, found.read_nbytes, found.written_nbytes) == expected
    assert found.nbytes == found.read_nbytes + found.written_nbytes
    assert (found.product_dtype is None) == (found.product_flops == 0)


def test_the_type_of_products_is_that_of_their_operands() -> None:
    found = cost("MatMul", [((2, 3), HALF), ((3, 4), HALF)], [((2, 4), HALF)])
    assert found is not None
    assert found.product_dtype == HALF


def test_a_tensor_that_is_used_twice_is_read_once() -> None:
    node = node_of("Mul", "x x", "y")
    found = cost_of_node(node, graph_of([node], {"x": (5,), "y": (5,)}))
    assert found is not None
    assert (found.read_nbytes, found.written_nbytes) == (20, 20)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("If", [(1,)], {}),
        ("own.Magic", [(1,)], {}),
        ("Einsum", [(2, 2), (2, 2), (2, 2)], {"equation": "ij,jk,kl->il"}),
        ("Einsum", [(2, 2)], {"equation": "ijk->i"}),
        ("Attention", [(1, 3, 8), (1, 3, 8), (1, 3, 8)], {}),
        ("com.microsoft.MultiHeadAttention", [(1, 3, 2, 3, 4), (1, 3, 8), (1, 3, 8)], {"num_heads": 2}),
        ("com.microsoft.GroupQueryAttention", [(1, 3, 8), (1, 3, 8), (1, 3, 8)], {}),
    ],
)
def test_what_has_no_rule_is_unknown(kind: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    assert cost(kind, inputs, [(1, 3, 8)], **attributes) is None


@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)),
)
def test_a_product_counts_what_loops_would_do(batch: list[int], sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    left, right = np.ones((*batch, rows, inner)), np.ones((inner, columns))
    done = sum(2 for _ in np.ndindex(*batch, rows, columns) for _ in range(inner))
    found = cost("MatMul", [left.shape, right.shape], [(left @ right).shape])
    assert found is not None
    assert found.flops == done
    letters = "ab"[: len(batch)]
    alike = cost("Einsum", [left.shape, right.shape], [(left @ right).shape], equation=f"{letters}ij,jk->{letters}ik")
    assert alike is not None
    assert alike.nbytes == found.nbytes
    assert alike.flops == (done if inner > 1 else done // 2)  # nothing is summed over one


@given(
    size=st.integers(1, 9),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 6),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_a_convolution_reads_what_its_windows_see(
    size: int, kernel: int, stride: int, channels: tuple[int, int]
) -> None:
    """The share of the input is exact where windows tile it: sizes are multiples of the stride here."""
    width = size * stride
    starts = [place for place in range(0, width, stride) if place + kernel <= width]
    seen = {place + offset for place in range(0, width, stride) for offset in range(min(kernel, stride))}
    found = cost(
        "Conv",
        [(1, channels[0], width), (channels[1], channels[0], kernel)],
        [(1, channels[1], len(starts))],
        strides=(stride,),
    )
    assert found is not None
    assert found.flops == 2 * len(starts) * channels[0] * channels[1] * kernel
    assert found.read_nbytes == 4 * channels[0] * (len(seen) + channels[1] * kernel)


def test_every_rule_is_of_an_operator_that_exists() -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install 'deepprof[model]')")
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert len(NODE_RULES) > 150
    own = {kind for kind in NODE_RULES if not kind.startswith("com.microsoft.")}
    assert own - known == {"SimplifiedLayerNormalization"}  # of onnxruntime, in ONNX's domain
