"""Chains of operators: where they begin and end, and what of their time one kernel would keep."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from deepprof.metrics.kernels.chains import find_chains, mark_chains
from deepprof.metrics.kernels.operator_runs import number_runs, widen

NOBODY = np.zeros(0, np.bool_)


def list_kernels(*rows: tuple[int, int, float, bool], stream: tuple[int, ...] = ()) -> pl.DataFrame:
    """Return kernels of one iteration: operation, iteration, length, and whether an operator launched it."""
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return pl.DataFrame(
        {
            "window": pl.Series(columns[1], dtype=pl.Int64),
            "stream": pl.Series(stream or [7] * len(rows), dtype=pl.Int64),
            "operation": pl.Series(columns[0], dtype=pl.Int64),
            "part_ns": pl.Series(columns[2], dtype=pl.Float64),
            "of_operator": pl.Series(columns[3], dtype=pl.Boolean),
        }
    )


def find(kernels: pl.DataFrame, claimed: list[bool] | None = None) -> list[tuple[int, float, float]]:
    """Return number of kernels, time and saving of every chain."""
    marks = np.array(claimed or [False] * kernels.height, np.bool_)
    return find_chains(kernels, marks).select("kernels", "taken_ns", "saved_ns").rows()


def test_a_chain_keeps_two_thirds_of_its_longest_kernel() -> None:
    kernels = list_kernels((1, 0, 30.0, True), (2, 0, 60.0, True), (3, 0, 30.0, True))
    assert find(kernels) == [(3, 120.0, pytest.approx(120 - 40))]


def test_the_same_operations_on_several_tensors_keep_one_operation_on_all_of_them() -> None:
    kernels = list_kernels(*[(operation, 0, 30.0, True) for operation in (1, 2, 1, 2, 1, 2)])
    assert find(kernels) == [(6, 180.0, pytest.approx(180 - 2 / 3 * 90))]


def test_one_operation_is_no_chain() -> None:
    assert find(list_kernels((1, 0, 30.0, True))) == []
    assert find(list_kernels((1, 0, 30.0, True), (1, 0, 30.0, True))) == []
    assert find(list_kernels()) == []


def test_products_streams_and_iterations_end_a_chain() -> None:
    product = list_kernels((1, 0, 30.0, True), (9, 0, 99.0, False), (2, 0, 30.0, True))
    assert find(product) == []
    assert find(list_kernels((1, 0, 30.0, True), (2, 1, 30.0, True))) == []
    assert find(list_kernels((1, 0, 30.0, True), (2, 0, 30.0, True), stream=(7, 8))) == []


def test_what_others_claim_does_not_count_and_does_not_end_a_chain() -> None:
    kernels = list_kernels((1, 0, 30.0, True), (2, 0, 60.0, True), (3, 0, 30.0, True))
    claimed = [False, True, False]
    assert find(kernels, claimed) == [(2, 60.0, pytest.approx(60 - 2 / 3 * 30))]
    chains = find_chains(kernels, np.array(claimed))
    assert mark_chains(kernels, chains, np.array(claimed)).tolist() == [True, False, True]


def test_runs_are_numbered_in_order() -> None:
    kernels = list_kernels(*[(1, iteration, 1.0, True) for iteration in (0, 0, 0, 1, 1)])
    wanted = np.array([True, False, True, True, False])
    assert number_runs(kernels, wanted).tolist() == [0, -1, 1, 2, -1]
    assert number_runs(list_kernels(), NOBODY).tolist() == []


def test_marks_are_widened() -> None:
    assert widen(np.array([False, False, True, False, False, False]), 1).tolist() == [0, 1, 1, 1, 0, 0]
    assert widen(np.array([True, False, False]), 2).tolist() == [1, 1, 1]
    assert widen(NOBODY, 2).tolist() == []
