"""Operations of convolutions and attention against loops that count every multiplication."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from deepprof.metrics.cost.framework.operator_call import broadcast
from tests.metrics.cost.recorded_calls import Scalars, cost

SMALL = st.integers(1, 3)


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, object]:
    """Return the sizes of a convolution over one or two sides."""
    sides = draw(st.integers(1, 2))
    each = {
        "length": st.integers(1, 7),
        "kernel": SMALL,
        "stride": SMALL,
        "padding": st.integers(0, 2),
        "dilation": st.integers(1, 2),
        "more": st.integers(0, 1),
    }
    found = {name: [draw(values) for _ in range(sides)] for name, values in each.items()}
    return found | {"batch": draw(SMALL), "groups": draw(st.integers(1, 2)), "into": draw(SMALL), "out": draw(SMALL)}


def count_forward(sizes: dict, outputs: list[int]) -> int:
    """Return the multiplications of a convolution, its border written out, counted one by one."""
    results = product(range(sizes["batch"]), range(sizes["out"] * sizes["groups"]), *map(range, outputs))
    return sum(1 for _ in results for _ in product(range(sizes["into"]), *map(range, sizes["kernel"])))


def output_sides(sizes: dict) -> list[int]:
    """Return how many places a kernel has along each side, found by trying."""
    found = []
    for length, kernel, stride, padding, dilation in zip(
        *(sizes[name] for name in ("length", "kernel", "stride", "padding", "dilation")), strict=True
    ):
        reach, padded = (kernel - 1) * dilation, length + 2 * padding
        found.append(sum(1 for begin in range(0, padded, stride) if begin + reach < padded))
    return found


def arguments(sizes: dict) -> tuple:
    return tuple(Scalars(sizes[name]) for name in ("stride", "padding", "dilation"))


@given(convolutions())
def test_a_convolution_multiplies_as_often_as_its_loops(sizes: dict) -> None:
    outputs = output_sides(sizes)
    assume(all(outputs))
    groups, macs = sizes["groups"], count_forward(sizes, outputs)
    image = (sizes["batch"], sizes["into"] * groups, *sizes["length"])
    weight = (sizes["out"] * groups, sizes["into"], *sizes["kernel"])
    none = Scalars([0] * len(outputs))
    forward = cost("convolution", image, weight, None, *arguments(sizes), False, none, groups)
    assert forward is not None
    assert (forward.flops, forward.written_nbytes) == (2 * macs, 4 * sizes["batch"] * weight[0] * prod(outputs))
    gradient = (sizes["batch"], weight[0], *outputs)
    mask = Scalars((True, True, False))
    backward = cost("convolution_backward", gradient, image, weight, None, *arguments(sizes), False, none, groups, mask)
    assert backward is not None
    assert backward.product_flops == 4 * macs


@given(convolutions())
def test_a_transposed_convolution_spreads_every_element_by_the_kernel(sizes: dict) -> None:
    sides, groups = len(sizes["length"]), sizes["groups"]
    more = [min(extra, stride - 1) for extra, stride in zip(sizes["more"], sizes["stride"], strict=True)]
    outputs = []
    for side in range(sides):  # the last place that any element reaches, less the border on both ends
        reached = (sizes["length"][side] - 1) * sizes["stride"][side] + (sizes["kernel"][side] - 1) * (
            sizes["dilation"][side]
        )
        outputs.append(reached + 1 - 2 * sizes["padding"][side] + more[side])
    assume(min(outputs) > 0)
    image = (sizes["batch"], sizes["into"] * groups, *sizes["length"])
    weight = (sizes["into"] * groups, sizes["out"], *sizes["kernel"])
    macs = sum(prod(weight[1:]) for _ in product(*map(range, image)))
    found = cost("convolution", image, weight, None, *arguments(sizes), True, Scalars(more), groups)
    assert found is not None
    expected = 4 * sizes["batch"] * sizes["out"] * groups * prod(outputs)
    assert (found.flops, found.written_nbytes) == (2 * macs, expected)


@given(st.integers(1, 9), st.integers(0, 9), SMALL, SMALL, st.integers(1, 4))
def test_causal_attention_does_half_of_a_square_and_all_before_it(
    queries: int, before: int, batch: int, heads: int, size: int
) -> None:
    keys = queries + before
    q, k = (batch, queries, heads, size), (batch, keys, heads, size)
    found = cost("flash_attn::_flash_attn_forward", q, k, k, 0.0, 0.1, True, -1, -1)
    assert found is not None
    seen = sum(before + row + 1 for row in range(queries))  # a query sees itself and the keys before it
    each = 2 * batch * heads * 2 * size
    assert found.flops == each * seen - each * queries // 2  # of itself, half


@given(st.integers(1, 9), st.integers(1, 9), SMALL, SMALL, st.integers(1, 4))
def test_causal_attention_of_pytorch_begins_at_the_first_key(
    queries: int, keys: int, batch: int, heads: int, size: int
) -> None:
    q, k = (batch, heads, queries, size), (batch, heads, keys, size)
    found = cost("scaled_dot_product_attention", q, k, k, None, 0.0, True, None, False)
    assert found is not None
    seen = sum(min(row + 1, keys) for row in range(queries))
    each = 2 * batch * heads * 2 * size
    assert found.flops == each * seen - each * min(queries, keys) // 2


@given(st.lists(st.lists(st.integers(1, 3), max_size=3).map(tuple), max_size=3))
def test_common_shapes_are_those_of_numpy(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        expected = None
    try:
        found = broadcast(shapes)
    except ValueError:
        found = None
    assert found == expected
