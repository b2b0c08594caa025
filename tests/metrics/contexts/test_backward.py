"""The forward operators of backward ones, in the ways in which PyTorch numbers them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepprof
from deepprof.metrics.contexts.backward import _pair_brackets, _pair_by_name, find_forward
from deepprof.metrics.contexts.slices import read_slices
from tests.metrics.contexts.test_slices import op
from tests.tables import Row, make_trace

NAMES = (
    "aten::mm",
    "autograd::engine::evaluate_function: MmBackward0",
    "autograd::engine::evaluate_function: torch::autograd::CppNode<Lookup>",
    "aten::zero_",
)


def forward(start: int, end: int, sequence: int, thread: int = 1) -> Row:
    return op(thread, start, end, sequence=sequence, forward_thread=0)


def backward(start: int, end: int, sequence: int, thread: int = 2, forward_thread: int = 1) -> Row:
    return op(thread, start, end, 1, sequence=sequence, forward_thread=forward_thread)


def pairs(*rows: Row, others: Sequence[Row] = ()) -> list[tuple[int, int]]:
    """Return when each backward slice begins that belongs to a forward one, and when that begins."""
    trace = make_trace(host=[*rows, *others], names=NAMES)
    slices = read_slices(trace)
    found = find_forward(slices, trace.names)
    return sorted(
        (int(slices.start[row]), int(slices.start[found[row]])) for row in range(len(found)) if found[row] >= 0
    )


def test_the_last_of_those_that_read_a_number_has_it() -> None:
    # add_ is not differentiable: it reads the number that batch_norm then takes.
    assert pairs(forward(0, 5, 7), forward(6, 9, 7), backward(20, 30, 7)) == [(20, 6)]


def test_the_outermost_of_nested_ones_is_meant_on_both_sides() -> None:
    rows = (forward(0, 9, 7), forward(1, 8, 7), forward(2, 7, 7), backward(20, 30, 7), backward(21, 29, 7))
    assert pairs(*rows) == [(20, 0)]


def test_what_comes_after_the_backward_pass_is_not_its_forward_operator() -> None:
    assert pairs(forward(0, 5, 7), backward(20, 30, 7), forward(40, 45, 7)) == [(20, 0)]
    assert pairs(backward(20, 30, 7), forward(40, 45, 7)) == []


def test_forward_threads_are_known_by_their_numbers() -> None:
    # Two threads number on their own; the recorder calls them 1 and 2, the system 11 and 12.
    rows = [forward(at, at + 5, 100 + at, thread=11) for at in (0, 10, 20)]
    rows += [forward(at, at + 5, 100 + at, thread=12) for at in (20, 30, 40)]
    rows += [backward(100 + at, 105 + at, 100 + at, 3, 1) for at in (0, 10, 20)]
    rows += [backward(200 + at, 205 + at, 100 + at, 3, 2) for at in (30, 40)]
    assert pairs(*rows) == [(100, 0), (110, 10), (120, 20), (230, 30), (240, 40)]


def test_backward_on_the_thread_of_the_forward_pass() -> None:
    assert pairs(forward(0, 5, 7), backward(20, 30, 7, thread=1)) == [(20, 0)]


def test_a_function_in_cpp_belongs_to_what_is_around_the_operator_that_read_its_number() -> None:
    # zero_ within bounds_check reads the number that the function takes later; a range is around both.
    inside = [op(1, 0, 50, 0, category="python"), op(1, 5, 20), op(1, 6, 9, 3, sequence=7, forward_thread=0)]
    assert pairs(*inside, op(2, 60, 70, 2, sequence=7, forward_thread=1)) == [(60, 0)]
    assert pairs(*inside, backward(60, 70, 7)) == [(60, 0)], "zero_ is no mm either"
    alone = op(1, 6, 9, 3, sequence=7, forward_thread=0)
    assert pairs(alone, op(2, 60, 70, 2, sequence=7, forward_thread=1)) == [(60, 6)], "nothing is around it"


def test_numbers_of_nobody_are_left_alone() -> None:
    assert pairs(backward(20, 30, 7), op(2, 40, 50, 1), op(2, 60, 70, 1, sequence=-1, forward_thread=1)) == []
    assert pairs() == []


def test_there_are_no_circles() -> None:
    assert pairs(forward(20, 20, 7), backward(20, 30, 7, thread=1)) == []


def test_without_numbers_the_last_operator_of_its_name_is_meant() -> None:
    forward_ = [op(1, at, at + 5, 0) for at in (0, 10, 20)]
    nodes = [op(2, at, at + 5, 1) for at in (40, 50, 60)]
    inner = [op(2, at + 1, at + 3, 0) for at in (40, 50, 60)]  # what a node runs is no forward operator
    assert pairs(*forward_, *nodes, others=inner) == [(40, 20), (50, 10), (60, 0)]
    assert pairs(*nodes) == []
    assert pairs(*forward_, op(2, 40, 45, 4)) == [], "another name"


BRACKETS = st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=30)


@given(BRACKETS)
def test_brackets_are_paired_as_a_stack_does(drawn: list[tuple[int, bool]]) -> None:
    stacks, wanted = dict[int, list[int]](), [-1] * len(drawn)
    for row, (name, opens) in enumerate(drawn):
        if opens:
            stacks.setdefault(name, []).append(row)
        elif stacks.get(name):
            wanted[row] = stacks[name].pop()
    schema = {"row": pl.Int64, "time": pl.Int64, "process": pl.Int64, "name": pl.String, "opens": pl.Boolean}
    rows = pl.DataFrame(
        [(row, row, 1, str(name), opens) for row, (name, opens) in enumerate(drawn)], schema, orient="row"
    )
    assert _pair_brackets(rows, len(drawn)).tolist() == wanted


@pytest.mark.traces
def test_names_say_what_numbers_say_of_a_real_network(traces: Path) -> None:
    trace = deepprof.read(next((traces / "tb-resnet50-nw0-c").glob("*.json*")))
    slices = read_slices(trace)
    numbered, named = find_forward(slices, trace.names), _pair_by_name(slices, trace.names)
    operator = (slices.rows["kind"] == "operator").to_numpy()
    for rows in (numbered, named):
        while (inner := np.flatnonzero((rows >= 0) & operator[slices.parent[rows]] & (slices.parent[rows] >= 0))).size:
            rows[inner] = slices.parent[rows[inner]]
    length = slices.end - slices.start
    nodes = numbered >= 0
    assert length[nodes & (numbered == named)].sum() >= 0.97 * length[nodes].sum() > 0
