"""Records given on by start, held against sorting all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.agent.reordering import ReorderBuffer
from tests.deepprof.live.agent.packets_made import kernels


def starts(rows: np.ndarray | None) -> list[int]:
    return [] if rows is None else rows["start_ns"].tolist()


def test_nothing_in_nothing_out() -> None:
    order = ReorderBuffer()
    order.add(kernels([]))
    assert order.take(100) is None
    assert order.held == 0


def test_what_comes_after_its_promise_is_late() -> None:
    order = ReorderBuffer()
    order.add(kernels([5, 1]))
    assert starts(order.take(4)) == [1]
    order.add(kernels([3, 4, 9]))
    assert order.late == 1
    assert starts(order.take(100)) == [4, 5, 9]


@given(st.lists(st.lists(st.integers(0, 1000), max_size=20), max_size=20), st.lists(st.integers(0, 1200), max_size=20))
def test_same_as_sorting(chunks: list[list[int]], cuts: list[int]) -> None:
    order, out, given_in, promised = ReorderBuffer(), [], [], -1
    for number, chunk in enumerate(chunks):
        order.add(kernels(chunk))
        given_in += [time for time in chunk if time >= promised]
        if number < len(cuts):
            promised = max(promised, cuts[number])
            out += starts(order.take(cuts[number]))
    out += starts(order.take(10**6))
    assert out == sorted(given_in)
    assert order.late + len(out) == sum(map(len, chunks))
    assert order.held == order.nbytes == 0


def test_order_of_coming_decides_between_equal_starts() -> None:
    order = ReorderBuffer()
    order.add(kernels([7, 7, 3], name=np.array([1, 2, 3])))
    order.add(kernels([7], name=4))
    rows = order.take(8)
    assert rows is not None
    assert rows["name"].tolist() == [3, 1, 2, 4]
