from __future__ import annotations

import numpy as np
import pytest

from deepprof.metrics.evidence import gather_evidence
from deepprof.metrics.sequence import main_sequence
from tests.tables import copy, event, launch, make_trace, span


def test_only_kernels_and_graphs_are_symbols() -> None:
    rows = [event(1, 0, 5), copy(5, 6, 1), event(2, 7, 9), event(3, 9, 10, activity="graph"), event(4, 3, 4, stream=9)]
    sequence = main_sequence(make_trace(rows), 0, 7)
    assert sequence.symbols.tolist() == [1, 2, 3]
    assert sequence.gap_ns.tolist() == [0, 2, 0]
    assert not sequence.linked


def test_launch_times_come_by_correlation_and_never_fall() -> None:
    rows = [event(1, 100 + i, 101 + i, correlation=c) for i, c in enumerate([None, 7, None, 9, 8])]
    calls = [launch(7, 10, 11), launch(8, 20, 21), launch(9, 30, 31)]
    sequence = main_sequence(make_trace(rows, calls), 0, 7)
    assert sequence.launch_ns.tolist() == [-1, 10, 10, 30, 30]
    gaps = gather_evidence(make_trace(rows, calls), sequence).launch_gaps
    assert gaps is not None
    assert gaps.tolist() == [0, 0, 0, 18, 0]  # 10 to 30, less two calls of 1 in between
    assert sequence.linked


def test_an_empty_stream_is_an_empty_sequence() -> None:
    sequence = main_sequence(make_trace(), 0, 7)
    assert len(sequence.symbols) == len(sequence.gap_ns) == 0
    assert gather_evidence(make_trace(), sequence).families == ()


def test_an_input_belongs_to_the_kernel_that_was_launched_after_its_copy() -> None:
    """Copies on their own stream run long before the kernels that wait for them."""
    rows = [event(0, 100 + 10 * i, 105 + 10 * i, correlation=i + 1) for i in range(6)]
    calls = [launch(i + 1, 10 * i, 10 * i + 1) for i in range(6)] + [
        launch(90 + i, 20 * i + 5, 20 * i + 6) for i in (0, 1)
    ]
    copies = [copy(101 + i, 102 + i, 8, stream=9, correlation=90 + i) for i in (0, 1)]
    trace = make_trace([*rows, *copies], calls)
    evidence = gather_evidence(trace, main_sequence(trace, 0, 7))
    assert evidence.copies is not None
    assert np.flatnonzero(evidence.copies).tolist() == [1, 3]


def test_evidence_points_at_the_first_kernel_launched_after_a_range() -> None:
    names = ["k", "ProfilerStep#1", "ProfilerStep#2", "Optimizer.step#SGD.step", "cudaStreamSynchronize", "layer"]
    rows = [event(0, 100 + 10 * i, 105 + 10 * i, correlation=i + 1) for i in range(6)]
    calls = [launch(i + 1, 10 * i, 10 * i + 1) for i in range(6)] + [launch(99, 12, 18, name=4)]
    ranges = [
        span(1, 5, 25),
        span(2, 25, 60),
        span(3, 15, 22, framework=True),
        span(5, 31, 32),
    ]
    trace = make_trace([*rows, copy(121, 124, 8)], calls, ranges, names)
    evidence = gather_evidence(trace, main_sequence(trace, 0, 7))
    found = {f.name: (f.trust, f.positions.tolist()) for f in evidence.families}
    assert found == {
        "ProfilerStep": ("step", [1, 3]),
        "Optimizer.step#SGD.step": ("loop", [3]),  # where it ends
        "layer": ("part", [4]),
    }
    assert evidence.copies is not None
    assert evidence.syncs is not None
    assert np.flatnonzero(evidence.copies).tolist() == [3]
    assert np.flatnonzero(evidence.syncs).tolist() == [2]
    assert evidence.start == 0


@pytest.mark.parametrize(
    ("name", "trust"),
    [
        ("ProfilerStep#12", "step"),
        ("step 3", "step"),
        ("step_3", "step"),
        ("Iteration 7", "step"),
        ("train_step", "step"),
        ("training step 4", "step"),
        ("batch_1", "step"),
        ("execute_context_0(0)_generation_8(8)", "step"),
        ("step[DECODE bs=8]", "step"),
        ("optimizer_step", "range"),
        ("forward pass", "range"),
        ("iterator", "range"),
        ("stepwise", "range"),
        ("batchnorm", "part"),
        ("scaled dot product attention", "part"),
        ("model.layers.3", "part"),
        ("batch_to_device", "range"),
        ("step forward", "range"),
    ],
)
def test_step_markers_are_told_from_other_ranges_by_name(name: str, trust: str) -> None:
    trace = make_trace([event(0, 10, 11)], annotations=[span(1, 0, 5)], names=["k", name])
    (family,) = gather_evidence(trace, main_sequence(trace, 0, 7)).families
    assert family.trust == trust


def test_kernels_launched_before_the_capture_are_before_its_start() -> None:
    rows = [event(0, 10 * i, 10 * i + 5, correlation=i) for i in range(1, 5)]
    trace = make_trace(rows, [launch(3, 1, 2), launch(4, 3, 4)])
    assert gather_evidence(trace, main_sequence(trace, 0, 7)).start == 2
