"""Rules on work where operators decide: what a checkpoint runs again, and programs on a processor."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from benchmarks.cases.working import WORKING_RULES
from deepprof.collectors.trace import OPERANDS, Trace
from deepprof.diagnosis.on_cpu import DEVICE_WORDS
from deepprof.metrics.cost.roofs import DevicePeaks
from tests.deepprof.diagnosis.test_context_rules import of_rule
from tests.metrics.contexts.test_slices import op
from tests.tables import Row, event, launch, make_trace, span, table

ITERATIONS = 8
NODE = "autograd::engine::evaluate_function: MmBackward0"
NAMES = ("aten::mm", NODE, "aten::relu", "aten::add_", "mm_kernel", "relu_kernel", "add_kernel", "cudaLaunchKernel")
MM, BACKWARD, RELU, UPDATE, *_ = range(len(NAMES))
KERNELS = {MM: 4, RELU: 5, UPDATE: 6}
CALL = 7
MAIN, ENGINE = 1, 2
MS = 1_000_000


class _Recorder:
    """Writes operators one after the other; on a device each launches a kernel of the same length."""

    def __init__(self, *, device: bool) -> None:
        self.device, self.now, self.sequence = device, 0, 0
        self.host, self.kernels, self.operands, self.steps = list[Row](), list[Row](), list[Row](), list[Row]()
        self.begun = 0
        self.engine = ENGINE if device else MAIN  # on a processor the caller's thread computes gradients

    def run(self, name: int, ms: float, thread: int = MAIN, dtype: str = "float", **more: object) -> None:
        """Run an operator on a matrix of 1,024 columns and rows."""
        ns = round(ms * MS)
        self.operands.append({"start_ns": self.now, "dtype": dtype})
        self.host.append(op(thread, self.now, self.now + ns, name, **more))
        if self.device:
            number = len(self.kernels) + 1
            self.host.append(launch(number, self.now + 1, self.now + 2, CALL) | {"thread": thread})
            self.kernels.append(event(KERNELS[name], self.now + 10, self.now + ns, correlation=number))
        self.now += ns + 100

    def forward(self, name: int, ms: float, **more: object) -> int:
        """Run an operator of a forward pass; return its number."""
        self.sequence += 1
        self.run(name, ms, sequence=self.sequence, forward_thread=0, **more)
        return self.sequence

    def backward(self, number: int, again_ms: float, gradient_ms: float) -> None:
        """Run the backward node of an operator, in which a product runs again before the gradient."""
        begin = self.now
        self.now += 10
        if again_ms:
            self.sequence += 1
            self.run(MM, again_ms, self.engine, sequence=self.sequence, forward_thread=0)
        self.run(MM, gradient_ms, self.engine)
        self.host.append(op(self.engine, begin, self.now, BACKWARD, sequence=number, forward_thread=MAIN))
        self.now += 10

    def end_step(self) -> None:
        """Mark what ran since the last mark as an iteration."""
        self.steps.append(span(len(NAMES) + len(self.steps), self.begun, self.now, framework=True))
        self.now += 100
        self.begun = self.now

    def trace(self) -> Trace:
        """Return the trace, with the types of operands."""
        marks = [f"ProfilerStep#{number}" for number in range(len(self.steps))]
        made = make_trace(self.kernels, self.host, self.steps, names=(*NAMES, *marks))
        starts = made.host_events["start_ns"].to_list()
        rows: list[Row] = [
            {"event": starts.index(row["start_ns"]), "dims": "[[1024, 1024], [1024, 1024]]", "dtypes": _twice(row)}
            for row in self.operands
        ]
        return replace(made, operands=table(rows, OPERANDS))


def _twice(row: Row) -> str:
    """Return the types of two operands of one type, as JSON."""
    return f'["{row["dtype"]}", "{row["dtype"]}"]'


def record(*, device: bool, again_ms: float) -> Trace:
    """Return a training job of a product, an activation and an update; the product runs again for so long."""
    recorder = _Recorder(device=device)
    for _ in range(ITERATIONS):
        number = recorder.forward(MM, 4)
        recorder.forward(RELU, 1)
        recorder.backward(number, again_ms, 8)
        recorder.run(UPDATE, 1)
        recorder.end_step()
    return recorder.trace()


def compute(dtype: str, operators: Sequence[tuple[int, float]] = ((MM, 6), (RELU, 1), (UPDATE, 1))) -> Trace:
    """Return a program on a processor whose operators need one type."""
    recorder = _Recorder(device=False)
    for _ in range(2 * ITERATIONS):
        for name, ms in operators:
            recorder.run(name, ms, dtype=dtype)
        recorder.end_step()
    return recorder.trace()


@pytest.mark.parametrize("device", [True, False])
def test_what_a_checkpoint_runs_again_is_a_remark(device: bool) -> None:
    found = of_rule(deepprof.analyze(record(device=device, again_ms=4)), "recomputed-forward")
    assert found.severity == "info"
    # 4 of 18 ms; on a device kernels begin 10 ns after their operators, on a processor nodes begin before them.
    assert found.headroom_ns_per_iteration == pytest.approx(4 * MS, abs=200)
    assert found.evidence["share_ratio"] == pytest.approx(4 / 18, abs=1e-3)
    assert found.title.startswith("22.2 % of the computing time runs a part of the forward pass again")


@pytest.mark.parametrize("device", [True, False])
def test_gradients_are_no_forward_pass(device: bool) -> None:
    for again_ms in (0, 1):  # a sixteenth of the time is not worth a word
        found = deepprof.analyze(record(device=device, again_ms=again_ms)).findings
        assert "recomputed-forward" not in {each.rule for each in found}


def test_float64_on_a_processor_takes_more_than_half_again() -> None:
    found = of_rule(deepprof.analyze(compute("double")), "double-precision")
    assert found.headroom_ns_per_iteration == pytest.approx(0.6 * 8 * MS, rel=1e-3)
    assert "kernel" not in found.summary
    assert "device" not in found.title


def test_types_of_numbers_beside_tensors_do_not_count() -> None:
    trace = compute("float")
    mixed = trace.operands.with_columns(dtypes=pl.lit('["float", "double"]'))
    for operands in (trace.operands, mixed):
        rules = {each.rule for each in deepprof.analyze(replace(trace, operands=operands)).findings}
        assert not rules & {"double-precision", "wrong-precision", "fallback-kernels"}


def test_products_of_float16_on_a_processor_are_a_fallback() -> None:
    found = of_rule(deepprof.analyze(compute("c10::Half")), "fallback-kernels")
    assert found.headroom_ns_per_iteration == 6 * MS
    assert "torch.autocast('cpu'" in found.advice


def test_a_processor_with_known_peaks_has_a_faster_type() -> None:
    flops = 2 * 1024**3  # 6 ms at 358 GFLOP/s
    rates = {"vector_flops_per_s": {"float32": 400e9}, "memory_nbytes_per_s": {"memory": 1e12}}
    peaks = DevicePeaks(name="this processor", source="measured", matrix_flops_per_s={"bfloat16": 1600e9}, **rates)
    found = of_rule(deepprof.analyze(compute("float"), peaks=peaks), "wrong-precision")
    assert found.headroom_ns_per_iteration == pytest.approx(6 * MS - flops / 1600, rel=1e-3)
    assert found.evidence["times_as_fast"] == 4
    assert "torch.autocast('cpu', dtype=torch.bfloat16)" in found.advice
    without = deepprof.analyze(compute("float"))
    assert "wrong-precision" not in {each.rule for each in without.findings}


@pytest.mark.parametrize("dtype", ["float", "double", "c10::Half"])
def test_texts_on_a_processor_name_no_device(dtype: str) -> None:
    rates = {"vector_flops_per_s": {"float32": 400e9}, "memory_nbytes_per_s": {"memory": 1e12}}
    peaks = DevicePeaks(name="this processor", source="measured", matrix_flops_per_s={"bfloat16": 1600e9}, **rates)
    found = [each for each in deepprof.analyze(compute(dtype), peaks=peaks).findings if each.rule in WORKING_RULES]
    assert found
    texts = [text for each in found for text in (each.title, each.summary, each.advice)]
    assert not [text for text in texts if DEVICE_WORDS.search(text)]
