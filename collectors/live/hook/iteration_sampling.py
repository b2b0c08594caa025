"""Has torch call the library only in those iterations that are collected, so that the others cost nothing.

torch calls at each operator, whether or not the library does anything then; that costs as much as collecting it. An
iteration is what lies between the ends of two steps of the first optimizer.
"""

from __future__ import annotations

import time
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from deepprof.collectors.live.hook.torch_hook import Operators

if __name__.startswith("deepprof."):  # else watch.py has run it in this space
    from deepprof.collectors.live.hook.optimizer_steps import call_at_steps

ROUNDS, CALLS = 5, 200
MOST_OTHERS = 100  # steps of other optimizers between two of the first


def _measure_call(torch: ModuleType, operators: Operators) -> int:
    """Return the nanoseconds that torch takes to call the library about one operator, while that does nothing yet."""
    value = torch.zeros(1, device="cpu")  # a child that is spawned may have a GPU as its default by now
    least_ns: dict[bool, int] = {}
    for number in range(2 * ROUNDS):
        is_called = number % 2 == 1
        if is_called:
            operators.enter()
        spent_ns = _time_calls(torch.neg, value)
        operators.leave()
        least_ns[is_called] = min(spent_ns, least_ns.get(is_called, spent_ns))
    return max(least_ns[True] - least_ns[False], 0) // CALLS


def _time_calls(call: Callable[[Any], Any], value: Any) -> int:
    start_ns = time.perf_counter_ns()
    for _ in range(CALLS):
        call(value)
    return time.perf_counter_ns() - start_ns


class _OptimizerSteps:
    """Tells the library of the steps of one optimizer: the first that takes one, as long as it takes any."""

    def __init__(self, torch: ModuleType, operators: Operators) -> None:
        self.operators = operators
        self.find_pass = getattr(torch._C, "_current_graph_task_id", None) or _find_no_pass
        self.first: Callable[[], Any] = type(None)  # a weak reference, once there is one
        self.others = MOST_OTHERS

    def note(self, optimizer: Any) -> None:
        """Note the end of a step. In a backward pass torch calls on, as it gives its profilers back after each node."""
        if not self.operators.is_here():
            return
        if self.first() is not optimizer:
            self.others += 1
            if self.first() is not None and self.others <= MOST_OTHERS:
                return
            self.first = weakref.ref(optimizer)
        self.others = 0
        is_collected = bool(self.operators.library.deepprof_step())
        if self.find_pass() < 0:
            self.operators.choose(is_collected)


def _find_no_pass() -> int:
    """Return that of a torch before 2.1 which does not tell."""
    return -1


def sample_iterations(torch: ModuleType, operators: Operators, is_first: bool) -> None:
    """Begin to leave out, as the library decides. A torch without hooks of optimizers goes on to call always.

    What calls cost is measured where nothing is collected yet, else the budget is for what the library does in them.
    """
    if is_first:
        operators.library.deepprof_call_cost(_measure_call(torch, operators))
    call_at_steps(None, _OptimizerSteps(torch, operators).note)
