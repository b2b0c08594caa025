"""Where a capture begins and ends, against a plain list of kernels; and the allocator's totals."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from deepprof.simulation.capture import keep_head, keep_tail
from deepprof.simulation.kernels import Launch
from deepprof.simulation.machine import Allocator, Machine
from deepprof.simulation.steps import Close, GraphReplay, HostOperator, Pause, Step, Wait

GRAPH = 5


def flatten(steps: list[Step]) -> list[object]:
    """Return steps with every kernel of a graph by itself."""
    flat: list[object] = []
    for step in steps:
        if isinstance(step, GraphReplay):
            flat += [(launch.kernel, step.first_node + at) for at, launch in enumerate(step.launches)]
        else:
            flat.append(step)
    return flat


def make_steps(kinds: list[int]) -> list[Step]:
    """Return a host step for 0, a launch for 1, and a graph of that many kernels for more."""
    steps: list[Step] = []
    for at, kind in enumerate(kinds):
        launches = tuple(Launch("op", f"kernel {at}.{number}", 2_000) for number in range(kind))
        host = HostOperator(f"op {at}", 1_000)
        steps.append(GraphReplay(launches, GRAPH) if kind > 1 else launches[0] if kind else host)
    return steps


KINDS = st.lists(st.integers(0, 7), max_size=30)


@given(KINDS)
def test_a_capture_begins_with_the_last_steps(kinds: list[int]) -> None:
    steps = make_steps(kinds)
    flat = flatten(steps)
    kept = round(len(flat) * 0.3)
    assert flatten(keep_tail(steps)) == flat[len(flat) - kept :]


@given(KINDS)
def test_a_capture_ends_before_a_kernel(kinds: list[int]) -> None:
    steps = make_steps(kinds)
    flat = flatten(steps)
    kernels = [at for at, each in enumerate(flat) if not isinstance(each, HostOperator)]
    end = kernels[round(len(kernels) * 0.45)] if kernels else len(flat)
    assert flatten(keep_head(steps)) == flat[:end]


@given(KINDS, st.integers(0, 5))
def test_a_machine_runs_one_kernel_at_a_time_and_none_before_its_launch(kinds: list[int], seed: int) -> None:
    machine = Machine(Random(seed), 1_000)
    for step in (*make_steps(kinds), Wait(), Pause(500), Close()):
        machine.play(step)
    assert len(machine.kernels) == sum(kinds)
    assert all(a[1] <= b[0] for a, b in pairwise(machine.kernels))
    assert machine.host_ns > max((end for _, end in machine.kernels), default=0)  # it waited


@given(st.lists(st.one_of(st.tuples(st.integers(1, 10**8), st.booleans()), st.none()), max_size=60))
def test_the_allocator_adds_up(source_options: list[tuple[int, bool] | None]) -> None:
    """Each wish is a size and whether it is kept; None gives the latest block back."""
    allocator = Allocator()
    start, kept, blocks = allocator.allocated_nbytes, [], []
    for plan in source_options:
        if plan is None:
            assert allocator.release() == (blocks.pop() if blocks else None)
        else:
            (kept if plan[1] else blocks).append(allocator.allocate(plan[0], kept=plan[1]))
            latest = (kept if plan[1] else blocks)[-1]
            assert 0 <= latest[1] - plan[0] < 512
        live = sorted([*kept, *blocks])
        assert allocator.allocated_nbytes == start + sum(nbytes for _, nbytes in live)
        assert allocator.allocated_nbytes <= allocator.reserved_nbytes
        assert all(a[0] + a[1] <= b[0] for a, b in pairwise(live))
