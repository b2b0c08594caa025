"""Attention that is written out, by the order of kernels: what is between its products, and what looks like it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.computed_work import list_kernels
from deepprof.metrics.kernels.written_attention import MOST_BETWEEN, PRODUCT, find_written_attention
from tests.tables import event, make_trace

# A kernel is its category and, where the name matters, its name.
PRODUCTS = ("matmul", "gemm")
SOFTMAX = ("softmax", "softmax_warp_forward<float, float, float, 8, false, false>")
GRADIENT = ("softmax", "softmax_warp_backward<float, float, float, 8, false, false>")
OF_LOSS = ("softmax", "softmax_warp_forward<float, float, float, 8, true, false>")
SCALE, MASK, DROP, COPY = ("elementwise", "mul"), ("elementwise", "where"), ("random", "dropout"), ("layout", "copy")
MAXIMUM, SUM = ("reduction", "reduce_kernel<512, 1, MaxOps<float>>"), ("reduction", "reduce_kernel<sum_functor>")
EXPONENTIAL, DIVISION = ("elementwise", "exp_kernel_cuda"), ("elementwise", "BinaryFunctor<DivFunctor<float>>")
NEGATION = ("elementwise", "neg_kernel_cuda")
INDEX, NORM, LOSS, TOP = (
    ("embedding_index", "index"),
    ("normalization", "norm"),
    ("loss", "nll"),
    ("sort_scan_topk", "k"),
)
BY_HAND = (SCALE, MAXIMUM, EXPONENTIAL, SUM, DIVISION)


def find(*rows: tuple[str, str] | int) -> pl.DataFrame:
    """Return what is found in kernels of 10 ns each, one after the other; a number is a change of stream."""
    stream, at, events, names, categories = 7, 0, [], list[str](), list[str]()
    for row in rows:
        if isinstance(row, int):
            stream = row
            continue
        events.append(event(len(names), at, at + 10, stream=stream))
        names.append(row[1])
        categories.append(row[0])
        at += 10
    trace = make_trace(events, names=names)
    table = pl.DataFrame({"name": names, "category": categories}, schema={"name": pl.String, "category": pl.String})
    kinds = KernelKinds(table, pl.int_range(len(names), eager=True).to_numpy())
    return find_written_attention(list_kernels(trace, kinds, 0), table)


def between(*rows: tuple[str, str] | int) -> list[int]:
    """Return the number of kernels between the products of every pair."""
    found = find(*rows).filter(pl.col("category") != PRODUCT)
    return found.group_by("section", maintain_order=True).len()["len"].to_list()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([PRODUCTS, SCALE, MASK, SOFTMAX, DROP, COPY, PRODUCTS], [5]),
        ([PRODUCTS, SOFTMAX, PRODUCTS, DROP, GRADIENT, SCALE, PRODUCTS], [1, 3]),
        ([PRODUCTS, *BY_HAND, PRODUCTS], [5]),
        ([PRODUCTS, INDEX, SCALE, SOFTMAX, PRODUCTS], [3]),  # a bias by relative position
        ([PRODUCTS, GRADIENT, TOP, INDEX, SCALE, PRODUCTS], [4]),  # and its gradient
        ([PRODUCTS, SOFTMAX, INDEX, SCALE, PRODUCTS], []),  # a drawn token, and the next forward pass
        ([PRODUCTS, SOFTMAX, TOP, SCALE, PRODUCTS], []),  # experts are chosen
        ([PRODUCTS, OF_LOSS, PRODUCTS], []),
        ([PRODUCTS, SOFTMAX, LOSS, PRODUCTS], []),
        ([PRODUCTS, SOFTMAX, NORM, PRODUCTS], []),
        ([PRODUCTS, SCALE, PRODUCTS], []),
        ([PRODUCTS, SCALE, EXPONENTIAL, SUM, PRODUCTS], []),  # without a maximum it is something else
        ([PRODUCTS, SOFTMAX, 8, PRODUCTS], []),
        ([PRODUCTS, SOFTMAX], []),
        ([SOFTMAX, PRODUCTS], []),
        ([PRODUCTS, SOFTMAX, *[SCALE] * MOST_BETWEEN, PRODUCTS], []),
        ([], []),
    ],
)
def test_a_softmax_between_two_products_is_attention(
    rows: Sequence[tuple[str, str] | int], expected: list[int]
) -> None:
    assert between(*rows) == expected


def test_gradients_by_hand_count_beside_as_many_softmaxes() -> None:
    gradient = (DIVISION, NEGATION, SUM, SCALE)
    assert between(PRODUCTS, *BY_HAND, PRODUCTS, *gradient, PRODUCTS) == [5, 4]
    assert between(PRODUCTS, *gradient, PRODUCTS) == []
    # Norms by hand have such gradients, too, but more of them than there are softmaxes.
    assert between(PRODUCTS, *BY_HAND, PRODUCTS, *gradient, PRODUCTS, *gradient, PRODUCTS) == [5]


def test_both_products_are_among_the_rows() -> None:
    found = find(PRODUCTS, SCALE, SOFTMAX, PRODUCTS, SCALE, PRODUCTS)
    assert found["category"].to_list() == ["matmul", "elementwise", "softmax", "matmul"]
    assert found["section"].n_unique() == 1
    assert not found["by_hand"].any()
    assert find(PRODUCTS, *BY_HAND, PRODUCTS)["by_hand"].all()


def test_a_loss_of_demangled_names_is_told_apart() -> None:
    of_loss = "void <unnamed>::softmax_warp_forward<float, float, float, (int)7, (bool)1, (bool)0>(T2 *, const T1 *)"
    assert between(PRODUCTS, ("softmax", of_loss), PRODUCTS) == []
    assert between(PRODUCTS, ("softmax", of_loss.replace("(bool)1", "(bool)0")), PRODUCTS) == [1]
    assert between(PRODUCTS, ("softmax", "cunn_SoftMaxForward<2, float, LogSoftMaxForwardEpilogue>"), PRODUCTS) == []
