"""Incomplete recordings: one finding with all that is missing, and how to record it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepprof.diagnosis.rules.capture_incomplete import capture_incomplete
from tests.loops import make_loop
from tests.tables import launch, make_trace


def test_a_good_recording_is_not_mentioned() -> None:
    assert list(capture_incomplete(make_loop([10.0] * 20), make_trace())) == []


def test_all_that_is_missing_is_one_finding_the_decisive_first() -> None:
    loop = make_loop([10.0] * 2, idle_unknown_ns=5.0)
    trace = replace(
        make_trace(host=[launch(1, 0, 5)]), notes=("nsys warning: Not all CUDA events might have been collected.",)
    )
    (found,) = capture_incomplete(loop, trace)
    assert (found.rule, found.severity) == ("capture-incomplete", "warning")
    assert list(found.evidence) == ["unknown_idle_ratio", "usual_iterations", "notes"]
    assert found.summary.startswith("50 % of the iteration time is idle without a cause")
    assert found.headroom_ns_per_iteration is None


def test_dispatches_that_are_not_in_the_file_are_a_warning_with_their_number() -> None:
    note = "4,590 of 4,734 dispatches are not in the file: their numbers are missing"
    (found,) = capture_incomplete(make_loop([10.0] * 20), replace(make_trace(), notes=(note,)))
    assert (found.severity, found.evidence["missing_dispatches"]) == ("warning", 4_590)


def test_few_iterations_alone_are_a_remark() -> None:
    (found,) = capture_incomplete(make_loop([10.0] * 2), make_trace())
    assert (found.severity, found.confidence) == ("info", 0.5)
    assert found.summary.startswith("Only 2 iterations")


@pytest.mark.parametrize("count", [0, 1])
def test_results_that_rest_on_one_iteration_are_a_warning(count: int) -> None:
    (found,) = capture_incomplete(make_loop([10.0] * count), make_trace())
    assert found.severity == "warning"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("kineto", "torch.profiler"),
        ("nsys", "nsys profile"),
        ("nsys-jax", "nsys profile"),
        ("nvprof", "nvprof"),
        ("rocprof", "rocprofv3"),
        ("rocpd", "rocprofv3"),
        ("rpd", "runTracer"),
        ("xplane", "jax.profiler"),
        ("xla-json", "jax.profiler"),
        ("table", "runtime calls"),
    ],
)
def test_the_advice_fits_the_recorder(name: str, word: str) -> None:
    (found,) = capture_incomplete(make_loop([10.0]), replace(make_trace(), format=name))
    assert word in found.advice or (name == "nvprof" and "device-buffer-size" in found.advice)
