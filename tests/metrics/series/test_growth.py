"""Growth and building against planted ones, and what only looks like them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.collectors.trace import Trace
from deepprof.metrics.series.growth import (
    find_count_growth,
    find_interval_growth,
    find_rebuilding,
)
from tests.chance import examples
from tests.loops import MS, make_loop
from tests.tables import Row, launch, make_trace, span


@settings(max_examples=examples(50))
@given(st.integers(0, 9999), st.integers(8, 60), st.integers(1, 20))
def test_a_count_that_grows_is_found_with_its_slope(seed: int, n: int, slope: int) -> None:
    rng = np.random.default_rng(seed)
    kernels = 200 + slope * np.arange(n)
    loop = make_loop((50 + 0.1 * slope * np.arange(n) + rng.normal(0, 0.01, n)).tolist(), kernels=kernels.tolist())
    found = find_count_growth(loop)
    if slope * (n - 1) < 0.02 * np.median(kernels):
        assert found is None
        return
    assert found is not None
    assert (found.count, found.trend.slope) == ("kernels", slope)
    assert found.lost_ns == pytest.approx(0.1 * slope * (n - n // 3) * MS, rel=0.2, abs=0.1 * MS)


@pytest.mark.parametrize("events", [False, True])
def test_events_of_other_streams_count_too(events: bool) -> None:
    grown = [110.0 + 3 * i for i in range(12)]
    found = find_count_growth(make_loop([50.0] * 12, **({"events": grown} if events else {})))
    assert (found is not None and found.count == "events") == events


@settings(max_examples=examples(30))
@given(st.integers(0, 9999), st.integers(6, 60))
def test_counts_that_vary_with_the_batch_do_not_grow(seed: int, n: int) -> None:
    kernels = np.random.default_rng(seed).choice([180, 200, 240], n)
    trend = [20.0] * n
    found = find_count_growth(make_loop(trend, kernels=kernels.tolist()))
    assert found is None or found.trend.tau >= 0.5  # by chance, in one of a few thousand


@pytest.mark.parametrize("n", [0, 1, 5])
def test_few_iterations_prove_no_growth(n: int) -> None:
    loop = make_loop([10.0] * n, kernels=[100.0 + 10 * i for i in range(n)] or 100)
    assert find_count_growth(loop) is find_interval_growth(loop) is None
    assert n > 1 or find_rebuilding(loop, compiling(n, 0.5)) is None


def compiling(
    iterations: int, share: float, name: str = "_compile.compile_inner (dynamo_timed)", only: int = 1
) -> Trace:
    """Return a trace in which every `only`-th iteration of 10 ms compiles for `share` of its time."""
    rows = [span(0, (10 * i + 1) * MS, round((10 * i + 1 + 10 * share) * MS)) for i in range(0, iterations, only)]
    return make_trace(annotations=rows, names=[name])


@pytest.mark.parametrize(
    "name",
    [
        "_compile.compile_inner (dynamo_timed)",
        "dynamo",
        "entire_frame_compile",
        "PjRtStreamExecutorClient::Compile",
        "GpuCompiler::BackendCompile",
        "backend_compile",
    ],
)
def test_compilers_at_work_in_every_iteration_are_found(name: str) -> None:
    found = find_rebuilding(make_loop([10.0] * 8), compiling(8, 0.4, name))
    assert found is not None
    assert (found.affected, found.iterations, found.graphs, found.name) == (8, 8, False, name)
    assert found.building_ns == pytest.approx(4 * MS)


@pytest.mark.parametrize(
    "name",
    ["Torch-Compiled Region: 0/0", "## Call CompiledFxGraph fxh3 ##", "CompiledFunctionBackward", "gc", "compiled"],
)
def test_running_compiled_code_is_not_compiling(name: str) -> None:
    assert find_rebuilding(make_loop([10.0] * 8), compiling(8, 0.4, name)) is None


def test_compiling_now_and_then_or_for_a_moment_is_no_property_of_the_loop() -> None:
    assert find_rebuilding(make_loop([10.0] * 8), compiling(8, 0.4, only=2)) is None
    assert find_rebuilding(make_loop([10.0] * 8), compiling(8, 0.01)) is None


@pytest.mark.parametrize(("iterations", "found"), [(1, False), (2, True), (3, True)])
def test_two_iterations_that_compile_are_enough(iterations: int, found: bool) -> None:
    rebuilding = find_rebuilding(make_loop([10.0] * iterations), compiling(iterations, 0.4))
    assert (rebuilding is not None) == found


def test_graphs_captured_in_every_iteration_are_found() -> None:
    names = ["cudaStreamBeginCapture", "cudaGraphInstantiate_v11040"]
    calls: list[Row] = []
    for i in range(8):
        calls.append(launch(2 * i, (10 * i + 2) * MS, (10 * i + 2) * MS + 5000, name=0))
        calls.append(launch(2 * i + 1, (10 * i + 4) * MS, (10 * i + 5) * MS, name=1))
    found = find_rebuilding(make_loop([10.0] * 8), make_trace(host=calls, names=names))
    assert found is not None
    assert (found.affected, found.graphs, found.name) == (8, True, names[1])
    assert found.building_ns == pytest.approx(3 * MS)  # from the capture's begin to the instantiation's end


def test_an_interval_must_be_large_to_grow() -> None:
    assert find_interval_growth(make_loop([10.0 + i for i in range(20)])) is None  # a tenth of the iteration
