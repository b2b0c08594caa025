"""The cost of operators against values reckoned by hand, a few of each family, and operands that are something else."""

from __future__ import annotations

import pytest

from deepprof.metrics.cost.framework.operator_call import broadcast, read_call
from deepprof.metrics.cost.framework.operator_rules import ARRANGING, FREE, RULES, arranges, cost_of_call, is_free
from tests.metrics.cost.recorded_calls import Scalars, call, cost, numbers, record

ON, OFF = True, False

# (operations, those of products, bytes read, bytes written); float32 uses 4 bytes.
PRODUCTS = [
    (("mm", (2, 3), (3, 5)), (60, 60, 4 * (6 + 15), 4 * 10)),
    (("addmm", (5,), (2, 3), (3, 5), 1, 1), (70, 60, 4 * (5 + 6 + 15), 4 * 10)),
    (("bmm", (7, 2, 3), (7, 3, 5)), (420, 420, 4 * 7 * 21, 4 * 70)),
    (("baddbmm", (7, 2, 5), (7, 2, 3), (7, 3, 5)), (490, 420, 4 * (70 + 7 * 21), 4 * 70)),
    (("addbmm", (2, 5), (7, 2, 3), (7, 3, 5)), (490, 420, 4 * (10 + 7 * 21), 4 * 10)),
    (("mv", (2, 3), (3,)), (12, 12, 4 * 9, 4 * 2)),
    (("dot", (3,), (3,)), (6, 6, 4 * 6, 4)),
    (("ger", (3,), (4,)), (12, 0, 4 * 7, 4 * 12)),
    (("matmul", (8, 1, 2, 3), (4, 3, 5)), (1920, 1920, 4 * (48 + 60), 4 * 320)),
    (("matmul", (3,), (3, 5)), (30, 30, 4 * 18, 4 * 5)),
    (("linear", (4, 2, 3), (5, 3), (5,)), (280, 240, 4 * (24 + 15 + 5), 4 * 40)),
    (("aiter::gemm_a16w16", (2, 3), (5, 3), None), (60, 60, 4 * 21, 4 * 10)),
    (("linear_backward", (4, 3), (4, 5), (5, 3), Scalars((ON, ON, OFF))), (240, 240, 4 * 47, 4 * (12 + 15))),
]
# Two sequences, four heads of 8; 6 queries and 10 keys: 2 · 2 · 4 · 6 · 10 · (8 + 8) operations.
Q, K = (2, 4, 6, 8), (2, 4, 10, 8)
S = (2, 4, 6, 8)
ATTENTION = [
    (("scaled_dot_product_attention", Q, K, K, None, 0.0, OFF, 0.1, OFF), (15360, 15360, 4 * (384 + 1280), 4 * 384)),
    (("scaled_dot_product_attention", S, S, S, None, 0.0, ON, 0.1, OFF), (4608, 4608, 4 * 3 * 384, 4 * 384)),
    (("_scaled_dot_product_flash_attention", S, S, S, 0.0, ON, OFF, 0.1), (4608, 4608, 4 * 3 * 384, 4 * 384)),
    (
        ("_flash_attention_forward", (2, 6, 4, 8), *[(2, 10, 4, 8)] * 2, None, None, 6, 10, 0.0, OFF, OFF, 0.1),
        (15360, 15360, 4 * (384 + 1280), 4 * 384),
    ),
    (
        ("_scaled_dot_product_flash_attention_for_cpu_backward", *[S] * 5, (2, 4, 6), 0.0, ON, None, 0.1),
        (11520, 11520, 4 * 5 * 384, 4 * 3 * 384),
    ),
    (
        ("_efficient_attention_forward", *[(2, 6, 4, 8)] * 3, None, None, None, 6, 6, 0.0, 1, ON),
        (4608, 4608, 4 * 3 * 384, 4 * 384),
    ),
]
WINDOWED = (*[(2, 6, 4, 8)] * 5, (2, 4, 6), None, None, 6, 6, 0.0, ON, (2,), (), 0.1)
# Two images of 3 channels and 8 × 8, five kernels of 3 × 3, moved by 2 with a border of 1: 4 × 4 results.
STRIDE, BORDER, EACH = Scalars((2, 2)), Scalars((1, 1)), Scalars((1, 1))
IMAGE, KERNEL = (2, 3, 8, 8), (5, 3, 3, 3)
MACS = 2 * 5 * 16 * 27
CONVOLUTIONS = [
    (("conv2d", IMAGE, KERNEL, (5,), STRIDE, BORDER, EACH, 1), (2 * MACS + 160, 2 * MACS, 4 * (384 + 140), 4 * 160)),
    (
        ("convolution", IMAGE, KERNEL, None, STRIDE, BORDER, EACH, OFF, Scalars((0, 0)), 1),
        (2 * MACS, 2 * MACS, 4 * (384 + 135), 4 * 160),
    ),
    (("cudnn_convolution", IMAGE, KERNEL, BORDER, STRIDE, EACH, 1, OFF, OFF, ON), (2 * MACS, 2 * MACS, 2076, 640)),
    (("miopen_convolution", IMAGE, KERNEL, None, BORDER, STRIDE, EACH, 1, OFF, OFF), (2 * MACS, 2 * MACS, 2076, 640)),
    # Transposed: each of 3 × 64 elements of an image meets 5 × 9 weights; 8 → (8 − 1) · 2 − 2 + 3 + 1 = 16.
    (
        ("conv_transpose2d", IMAGE, (3, 5, 3, 3), None, STRIDE, BORDER, Scalars((1, 1)), 1, EACH),
        (2 * 2 * 192 * 45, 2 * 2 * 192 * 45, 2076, 4 * 2 * 5 * 256),
    ),
    (
        (
            *("convolution_backward", (2, 5, 4, 4), IMAGE, KERNEL, Scalars((5,)), STRIDE, BORDER, EACH, OFF),
            *(Scalars((0, 0)), 1, Scalars((ON, ON, ON))),
        ),
        (4 * MACS + 160, 4 * MACS, 4 * (160 + 135 + 384), 4 * (384 + 135 + 5)),
    ),
    (
        ("_slow_conv2d_backward", (2, 5, 4, 4), IMAGE, KERNEL, EACH, STRIDE, BORDER, Scalars((ON, OFF, OFF))),
        (2 * MACS, 2 * MACS, 4 * (160 + 135), 4 * 384),
    ),
    (
        (
            *("convolution_backward", (2, 5, 4, 4), IMAGE, KERNEL, None, STRIDE, BORDER, EACH, OFF),
            *(Scalars((0, 0)), 1, Scalars((OFF, ON, OFF))),
        ),
        (2 * MACS, 2 * MACS, 4 * (160 + 384), 4 * 135),
    ),
]
X = (2, 4, 3, 3)  # 72 elements
# Five steps of three sequences; 4 · 8 gates, weights of 32 × 6 and 32 × 8.
GATES = 2 * 15 * (32 * 6 + 32 * 8)
LAYER = ((5, 3, 6), (32, 6), (32, 8), (32,), (32,), (3, 8), (3, 8))
RECURRENT = [
    (("mkldnn_rnn_layer", *LAYER, OFF), (GATES, GATES, 4 * (90 + 448 + 64 + 48), 4 * 120)),
    (("mkldnn_rnn_layer_backward", *LAYER, OFF), (2 * GATES, 2 * GATES, 4 * 650, 4 * (90 + 448))),
    (("_cudnn_rnn", (5, 3, 6), [(32, 6), (32, 8), (32,)], 3), (GATES, GATES, 4 * (90 + 480), 4 * 120)),
    (("_cudnn_rnn_backward", (5, 3, 6), [(32, 6), (32, 8), (32,)]), (2 * GATES, 2 * GATES, 4 * 660, 4 * 570)),
]
OTHERS = [
    (("native_batch_norm", X, *[(4,)] * 4, ON, 0.1, 1e-5), (7 * 72, 0, 4 * (72 + 16), 4 * (72 + 8))),
    (("native_batch_norm", X, *[(4,)] * 4, OFF, 0.1, 1e-5), (2 * 72, 0, 4 * (72 + 16), 4 * 72)),
    (("native_layer_norm", (6, 12), Scalars((12,)), (12,), (12,), 1e-5), (7 * 72, 0, 4 * 96, 4 * 72)),
    (("_fused_rms_norm", (6, 12), Scalars((12,)), (12,), 1e-5), (4 * 72, 0, 4 * 84, 4 * 72)),
    (
        (
            "native_layer_norm_backward",
            *[(6, 12)] * 2,
            Scalars((12,)),
            (6, 1),
            (6, 1),
            (12,),
            None,
            Scalars((ON, ON, OFF)),
        ),
        (9 * 72, 0, 4 * (144 + 12 + 12), 4 * (72 + 12)),
    ),
    (("add", (6, 12), (12,), 1), (72, 0, 4 * 84, 4 * 72)),
    (("add", (6, 12), (12,), 0.5), (144, 0, 4 * 84, 4 * 72)),
    (("add_", (6, 12), (6, 12), 1), (72, 0, 4 * 144, 4 * 72)),
    (("mul", (6, 12), 2.0, (6, 12)), (72, 0, 4 * 144, 4 * 72)),
    (("eq", (6, 12), (6, 12)), (72, 0, 4 * 144, 72)),
    (("add", ((6,), "int64"), ((6,), "int64"), 1), (0, 0, 96, 48)),
    (("mul", ((6,), "bfloat16"), ((6,), "float32")), (6, 0, 12 + 24, 24)),
    (("mul", ((6,), "bfloat16"), ((), "float32")), (6, 0, 12 + 4, 12)),
    (("where", ((6,), "bool"), (6,), (6,)), (6, 0, 6 + 48, 24)),
    (("gelu", (6, 12), "none"), (12 * 72, 0, 4 * 72, 4 * 72)),
    (("copy_", ((6,), "float32"), ((6,), "bfloat16"), OFF), (0, 0, 12, 24)),
    (("fill_", (6, 12), 0), (0, 0, 0, 288)),
    (("max", (6, 12), (12,)), (72, 0, 4 * 84, 4 * 72)),
    (("mul", ((6,), "int64"), ((), "float32")), (6, 0, 48 + 4, 24)),
    (("cat", [(2, 3), (4, 3)], 0), (0, 0, 72, 72)),
    (("sum", (6, 12), Scalars((-1,)), OFF, None), (72, 0, 288, 24)),
    (("mean", (6, 12), None), (72, 0, 288, 4)),
    (("argmax", (6, 12), 1, OFF), (72, 0, 288, 48)),
    (("_softmax", (6, 12), -1, OFF), (12 * 72, 0, 288, 288)),
    (("_log_softmax_backward_data", (6, 12), (6, 12), 1, 6), (288, 0, 576, 288)),
    (("nll_loss_forward", (6, 12), ((6,), "int64"), None, 1, -100), (6, 0, 24 + 48, 8)),
    (("nll_loss_backward", (), (6, 12), ((6,), "int64"), None, 1, -100, ()), (6, 0, 4 + 48, 288)),
    # 8 × 8 by windows of 3 × 3, moved by 2, a border of 1: 4 × 4.
    (("max_pool2d_with_indices", (1, 2, 8, 8), Scalars((3, 3)), STRIDE, BORDER, EACH, OFF), (288, 0, 512, 32 * 12)),
    (("avg_pool2d", (1, 2, 8, 8), Scalars((2, 2)), Scalars(()), Scalars((0, 0)), OFF, ON, None), (128, 0, 512, 128)),
    (("embedding", (100, 8), ((3, 5), "int64"), -1, OFF, OFF), (0, 0, 15 * 32 + 120, 15 * 32)),
    (("embedding_dense_backward", (3, 5, 8), ((3, 5), "int64"), 100, -1, OFF), (120, 0, 480 + 120, 3200)),
    (("index_select", (100, 8), 0, ((15,), "int64")), (0, 0, 15 * 32 + 120, 15 * 32)),
    (("gather", (6, 12), 1, ((6, 2), "int64")), (0, 0, 48 + 96, 48)),
    (("scatter_add_", (6, 12), 1, ((6, 2), "int64"), (6, 2)), (12, 0, 96 + 48 + 48, 48)),
    (("index", (6, 12), [(4,), (4,)]), (0, 0, 16 + 64, 16)),
    (("_foreach_add_", [(2, 3), (4,)], [(2, 3), (4,)], -0.001), (20, 0, 80, 40)),
    (("_foreach_mul_", [(2, 3), (4,)], 0.9), (10, 0, 40, 40)),
    (("_fused_adam_", *[[(2, 3), (4,)]] * 4, [], [(), ()]), (140, 0, 160, 120)),
]


@pytest.mark.parametrize(("given", "expected"), [*PRODUCTS, *ATTENTION, *CONVOLUTIONS, *RECURRENT, *OTHERS])
def test_costs_reckoned_by_hand(given: tuple, expected: tuple[int, int, int, int]) -> None:
    assert numbers(*given) == expected


def test_products_have_the_type_of_their_operands() -> None:
    found = cost("mm", (2, 3), (3, 5), dtype="bfloat16")
    assert found is not None
    assert (found.product_dtype, found.nbytes) == ("bfloat16", 2 * (6 + 15 + 10))
    added = cost("add", (2, 3), (2, 3))
    assert added is not None
    assert added.product_dtype is None


@pytest.mark.parametrize(
    "given",
    [
        ("mm", (2, 3), (4, 5)),
        ("mm", (2, 3)),
        ("mm", (2, 3), 5),
        ("add", (3,), (4,)),
        ("sort", (6, 12), -1, False),  # no rule
        ("scaled_dot_product_attention", Q, K, K),  # whether it is causal is not recorded
        ("_flash_attention_forward", (20, 4, 8), (20, 4, 8), (20, 4, 8), (3,), (3,), 6, 10, 0.0, OFF, OFF),  # packed
        ("flash_attn::_flash_attn_forward", *[(2, 6, 4, 8)] * 3, 0.0, 0.1, ON, 128, 0),  # a window
        ("conv2d", IMAGE, KERNEL, None),  # stride and border are not recorded
        ("_convolution_mode", IMAGE, KERNEL, None, EACH, None, EACH, 1),  # a text is not recorded
        ("index", (6, 12), None),
        ("_foreach_add_", [], [], 1),
        ("cat", [], 0),
        ("mm", (2**40, 2**40), (2**40, 2**40)),  # more than an integer of 64 bits
        # grad_out, query, key, value, out, logsumexp, …, causal, two states, scale, the sides of a window
        ("_flash_attention_backward", *WINDOWED, 128, -1),
    ],
)
def test_what_does_not_fit_is_unknown(given: tuple) -> None:
    assert cost(*given) is None


SHORT, LONG = (2, 4, 4, 8), (2, 4, 8, 8)


def attention(queries: tuple[int, ...], keys: tuple[int, ...]) -> list[int | None]:
    """Return the operations of causal attention in the forms of PyTorch and in those of flash attention."""
    masked = [(2, shape[2], 4, 8) for shape in (queries, keys, keys)]
    return [
        found and found.flops
        for found in (
            cost("scaled_dot_product_attention", queries, keys, keys, None, 0.0, ON, 0.1, OFF),
            cost("_scaled_dot_product_efficient_attention", queries, keys, keys, None, OFF, 0.0, ON),
            cost("_scaled_dot_product_flash_attention_for_cpu", queries, keys, keys, 0.0, ON, None),
            cost("_efficient_attention_forward", *masked, None, None, None, 4, 8, 0.0, 1, OFF),
            cost("_efficient_attention_forward", *masked, None, None, None, 4, 8, 0.0, 2, OFF),
            cost("flash_attn::_flash_attn_forward", *masked, 0.0, 0.1, ON, -1, -1),
        )
    ]


def test_causal_masks_of_unlike_lengths_begin_at_the_first_key_or_end_at_the_last() -> None:
    each = 2 * 2 * 4 * (8 + 8)  # operations of a pair of query and key; half a square of 4 are 8 pairs
    assert attention(SHORT, LONG) == [8 * each] * 4 + [(16 + 8) * each] * 2
    assert attention(LONG, SHORT) == [(16 + 8) * each] * 4 + [8 * each] * 2


def test_the_second_window_side_0_means_causal() -> None:
    shape = (2, 6, 4, 8)
    plain = cost("flash_attn::_flash_attn_forward", shape, shape, shape, 0.0, 0.1, ON, -1, -1)
    assert cost("flash_attn::_flash_attn_forward", shape, shape, shape, 0.0, 0.1, OFF, -1, 0) == plain


def test_a_window_without_sides_limits_nothing() -> None:
    plain = cost("_scaled_dot_product_flash_attention_backward", *[S] * 5, (2, 4, 6), None, None, 6, 6, 0.0, ON)
    assert plain is not None
    assert cost("_flash_attention_backward", *WINDOWED, -1, -1) == plain


def test_broadcast_tensors_are_read_as_far_as_they_lie_in_memory() -> None:
    dims, dtypes, values = record((6, 12), (6, 12), 1)
    strided = read_call("aten::add", (dims, dtypes, values, "[[12, 1], [0, 1], []]"))
    assert strided is not None
    found = cost_of_call(strided)
    assert found is not None
    assert (found.read_nbytes, found.flops) == (4 * (72 + 12), 72)


def test_what_a_sparse_tensor_holds_is_unknown() -> None:
    dims, dtypes, values = record((1000, 8), (1000, 1000), (1000, 8), 0, 1)
    assert read_call("aten::addmm", (dims, dtypes, values, "[[8, 1], [], [8, 1], [], []]")) is None
    assert read_call("aten::addmm", (dims, dtypes, values, None)) is not None
    assert read_call("aten::add", (*record((), (3,), 1), "[[], [1], []]")) is not None  # a number has no strides


def test_bytes_need_types_and_operations_do_not() -> None:
    untyped = read_call("aten::mm", ("[[2, 3], [3, 5]]", "[]", None, None))
    assert untyped is not None
    assert not untyped.has_sizes
    found = cost_of_call(untyped)
    assert found is not None
    assert found.flops == 60
    assert call("mm", (2, 3), (3, 5)).has_sizes


@pytest.mark.parametrize("dims", [None, "", "{", "7", "[7]", "[[-1]]", "[[1.5]]", '[["a"]]', "[[[1], 2]]", "[" * 9999])
def test_shapes_that_are_none_make_no_call(dims: str | None) -> None:
    assert read_call("aten::mm", (dims, '["float"]', None, None)) is None


def test_a_shape_has_a_limited_number_of_sides() -> None:
    sides = ", ".join(["1099511627776"] * 300_000)
    assert read_call("aten::mul", (f"[[{sides}]]", '["float"]', None, None)) is None


@pytest.mark.parametrize("kind", ["[]", "{}", "[[1]]", "7", "true", "null"])
def test_types_that_are_no_names_are_unknown(kind: str) -> None:
    found = read_call("aten::mm", ("[[2, 3], [3, 5]]", f'[{kind}, "float"]', None, None))
    assert found is not None
    assert found.operands[0].dtype is None


def test_common_shapes() -> None:
    assert broadcast([(6, 1), (12,), ()]) == (6, 12)
    assert broadcast([]) == ()


def test_operators_that_arrange_others() -> None:
    assert not FREE & (RULES.keys() | ARRANGING)
    assert arranges("MaxPool2DWithIndicesBackward0")
    assert arranges("autograd::engine::evaluate_function: MmBackward0")
    assert arranges("ConvolutionBackward0")
    assert not arranges("MyFunctionBackward")
    assert is_free("aten::view")
