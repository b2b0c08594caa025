"""Rules on what a processor computes, where operators take the place of kernels: casts, optimizers, losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import OPERANDS, Trace
from deepprof.diagnosis.finding import Finding
from tests.metrics.contexts.test_slices import op
from tests.tables import Row, make_trace, span, table

ITERATIONS = 10
THREAD = 1
MS = 1_000_000
PAUSE_NS = 10_000  # between two operators
LINEAR, GRADIENT = "aten::linear", "autograd::engine::evaluate_function: AddmmBackward0"
SOFTMAX, OF_SOFTMAX = "aten::softmax", "autograd::engine::evaluate_function: SoftmaxBackward0"
ADAM = ("aten::lerp_", "aten::mul_", "aten::addcmul_", "aten::item", "aten::sqrt", "aten::div", "aten::addcdiv_")


@dataclass(frozen=True)
class Operator:
    """An operator that takes so long, of which copies inside take `casts_ms` each, with the `types` of both sides."""

    name: str
    ms: float
    casts_ms: Sequence[float] = ()
    types: tuple[str, str] = ("c10::BFloat16", "float")


@dataclass
class Program:
    """Writes the operators of a program on one thread."""

    names: list[str] = field(default_factory=list)
    host: list[Row] = field(default_factory=list)
    operands: list[tuple[int, str]] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    now: int = 0

    def number(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def run(self, operator: Operator) -> None:
        begin = self.now
        for ms in operator.casts_ms:
            end = self.now + round(ms * MS)
            self.operands.append((self.now + 1, '["{}", "{}", ""]'.format(*operator.types)))
            self.host.append(op(THREAD, self.now + 1, end, self.number("aten::copy_")))
            self.now = end
        self.now = begin + round(operator.ms * MS)
        self.host.append(op(THREAD, begin, self.now, self.number(operator.name)))
        self.now += PAUSE_NS

    def trace(self) -> Trace:
        made = make_trace([], self.host, self.steps, names=tuple(self.names))
        starts = made.host_events["start_ns"].to_list()
        rows: list[Row] = [
            {"event": starts.index(start), "dims": "[[8], [8], []]", "dtypes": types} for start, types in self.operands
        ]
        return replace(made, operands=table(rows, OPERANDS))


def record(operators: Sequence[Operator]) -> Trace:
    """Return a program that runs these operators in each of its iterations."""
    program = Program()
    for number in range(ITERATIONS):
        begin = program.now
        for operator in operators:
            program.run(operator)
        program.steps.append(span(program.number(f"ProfilerStep#{number}"), begin, program.now, framework=True))
        program.now += 100
    return program.trace()


def find(rule: str, operators: Sequence[Operator]) -> Finding | None:
    """Return the finding of a rule, None without one."""
    return next((each for each in deepprof.analyze(record(operators)).findings if each.rule == rule), None)


def test_casts_inside_operators_count_and_copies_of_one_type_do_not() -> None:
    rest = [Operator("aten::relu", 2.0), Operator("aten::gelu", 1.0)]
    found = find("repeated-casts", [Operator(LINEAR, 6.0, [1.0, 0.5]), *rest, Operator("aten::to", 1.0, [0.8])])
    assert found is not None
    assert found.evidence["cost_ns_per_iteration"] == pytest.approx(2.3 * MS, abs=10)
    assert found.evidence["kernels_per_iteration"] == 3
    assert found.evidence["work_share_ratio"] == pytest.approx(2.3 / 10, abs=1e-3)
    moved = [Operator(LINEAR, 6.0, [1.0, 0.5], ("float", "float")), *rest, Operator("aten::to", 1.0)]
    assert find("repeated-casts", moved) is None
    few = [Operator(LINEAR, 6.0, [0.4, 0.4]), *rest]  # less than a tenth
    assert find("repeated-casts", few) is None


def test_an_optimizer_in_a_loop_is_found_across_the_counts_that_it_reads() -> None:
    operators = [Operator(LINEAR, 4.0), Operator(GRADIENT, 8.0)]
    operators += [Operator(name, 0.1) for _ in range(10) for name in ADAM]
    found = find("unfused-optimizer", operators)
    assert found is not None
    taken_ms, pauses_ms = 70 * 0.1, 69 * PAUSE_NS / MS
    assert found.evidence["kernel_ns_per_iteration"] == pytest.approx(taken_ms * MS, abs=10)
    # One kernel moves 7 times the parameters' size for 18, and the interpreter's pauses are gone.
    assert found.evidence["cost_ns_per_iteration"] == pytest.approx((taken_ms * 11 / 18 + pauses_ms) * MS, abs=10)
    few = [Operator(LINEAR, 4.0), *(Operator(name, 0.5) for _ in range(2) for name in ADAM)]
    assert find("unfused-optimizer", few) is None  # two parameters may be a model's own operators


LOSS = [Operator(SOFTMAX, 1.0), Operator("aten::log", 0.8), Operator("aten::mul", 0.4), Operator("aten::sum", 0.2)]
OF_LOSS = [Operator("aten::ones_like", 0.1), Operator("aten::neg", 0.5), Operator(OF_SOFTMAX, 1.5)]


def test_a_softmax_that_its_gradient_follows_belongs_to_a_loss_and_not_to_attention() -> None:
    operators = [Operator(LINEAR, 4.0), *LOSS, *OF_LOSS, Operator(GRADIENT, 8.0)]
    found = find("unfused-loss", operators)
    assert found is not None
    assert found.evidence["written_by_hand"] == 1
    # Of 4.5 ms softmax and its gradient keep two fifths of their 2.5.
    assert found.evidence["cost_ns_per_iteration"] == pytest.approx((4.5 - 0.4 * 2.5) * MS, abs=10)
    assert find("unfused-attention", operators) is None


def test_a_softmax_with_a_product_before_its_gradient_is_attention() -> None:
    scores, values = Operator("aten::matmul", 2.0), Operator("aten::matmul", 2.5)
    gradients = Operator("autograd::engine::evaluate_function: BmmBackward0", 4.0)
    operators = [scores, Operator(SOFTMAX, 1.0), values, gradients, Operator(OF_SOFTMAX, 1.5), gradients]
    assert find("unfused-loss", operators) is None
    assert find("unfused-attention", operators) is not None
