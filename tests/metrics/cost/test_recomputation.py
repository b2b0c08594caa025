"""What of a backward pass runs the forward pass again: numbers of operators, as PyTorch's profiler writes them."""

from __future__ import annotations

import pytest

from deepprof.metrics.contexts.slices import read_slices
from deepprof.metrics.cost.recomputation import NESTED, find_recomputed
from tests.metrics.contexts.test_slices import op
from tests.tables import Row, launch, make_trace

NAMES = (
    "aten::mm",
    "autograd::engine::evaluate_function: MmBackward0",
    "MmBackward0",
    "CheckpointFunctionBackward",
    "aten::convolution_backward",
)
MM, NODE, INNER, CHECKPOINT, GRADIENT = range(len(NAMES))
ENGINE_THREAD = 2


def forward(start: int, end: int, sequence: int, thread: int = 1, name: int = MM) -> Row:
    return op(thread, start, end, name, sequence=sequence, forward_thread=0)


def node(start: int, end: int, sequence: int, name: int = NODE) -> Row:
    return op(ENGINE_THREAD, start, end, name, sequence=sequence, forward_thread=1)


def gradient(start: int, end: int, name: int = MM) -> Row:
    return op(ENGINE_THREAD, start, end, name)


def again(*rows: Row) -> tuple[list[int], str | None]:
    """Return when the slices begin that run again, and why it cannot be told."""
    trace = make_trace(host=rows, names=NAMES)
    slices = read_slices(trace)
    found, why = find_recomputed(slices, trace.names)
    return sorted(slices.start[found].tolist()), why


def test_a_gradient_does_not_run_again() -> None:
    rows = (forward(0, 5, 7), node(20, 40, 7), node(21, 39, 7, INNER), gradient(22, 30))
    assert again(*rows) == ([], None)


def test_an_operator_with_a_number_of_its_own_inside_a_node_runs_again() -> None:
    # The saved tensors of the node are made again in it, without re-entering the engine.
    inner = (forward(21, 25, 9, ENGINE_THREAD), gradient(22, 24), gradient(30, 35))
    assert again(forward(0, 5, 7), node(20, 40, 7), *inner) == ([21, 22], None)


def test_the_nodes_of_what_runs_again_compute_gradients() -> None:
    inner = (
        forward(21, 25, 9, ENGINE_THREAD),
        op(ENGINE_THREAD, 26, 34, NODE, sequence=9, forward_thread=2),
        gradient(27, 30),
    )
    assert again(node(20, 40, 7, CHECKPOINT), *inner) == ([21], None)


def test_calls_and_functions_in_it_run_again_with_it() -> None:
    call = launch(1, 22, 23) | {"thread": ENGINE_THREAD}
    assert again(node(20, 40, 7), forward(21, 25, 9, ENGINE_THREAD), call) == ([21, 22], None)


def test_a_node_of_the_engine_needs_no_number() -> None:
    assert again(op(ENGINE_THREAD, 20, 40, NODE), forward(21, 25, 9, ENGINE_THREAD)) == ([21], None)


def test_gradients_of_gradients_look_the_same_and_are_not_told_apart() -> None:
    inner = forward(21, 25, 9, ENGINE_THREAD, GRADIENT)
    assert again(node(20, 40, 7), inner, forward(26, 30, 10, ENGINE_THREAD)) == ([26], NESTED)


@pytest.mark.parametrize("rows", [(), (op(1, 0, 5),), (forward(0, 5, 1), forward(6, 9, 2))])
def test_without_a_backward_pass_nothing_runs_again(rows: tuple[Row, ...]) -> None:
    assert again(*rows) == ([], None)
