"""How the kernels of a context were launched: means by hand, what is not recorded, and empty tables."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import LAUNCH_SHAPES, Trace
from deepprof.results.analysis_tables import PLACED_SHAPES
from tests.tables import Row, event, launch, make_trace, table

GEMM, COPY, CALL = 0, 1, 2


def make(shapes: list[Row], rank: int | None = None) -> Trace:
    """Return a trace of the kernels gemm, gemm, other, gemm, of which these launch shapes are recorded."""
    kernels = [GEMM, GEMM, COPY, GEMM]
    device = [event(name, 100 * i, 100 * i + 50, correlation=i + 1) for i, name in enumerate(kernels)]
    host = [launch(i + 1, 100 * i - 20, 100 * i - 10, CALL) for i in range(len(kernels))]
    trace = make_trace(device, host, names=["gemm", "other", "cudaLaunchKernel"], rank=rank)
    return replace(trace, launch_shapes=table(shapes, LAUNCH_SHAPES))


def shapes_by_name(*traces: Trace) -> dict[str, Row]:
    analysis = deepprof.analyze(traces)
    joined = analysis.context_shapes.join(analysis.contexts, on=["rank", "context"], how="left", suffix="_context")
    return {row["name"]: row for row in joined.select("name", *PLACED_SHAPES).iter_rows(named=True)}


def test_means_are_over_the_kernels_of_a_context() -> None:
    found = shapes_by_name(
        make(
            [
                {"event": 0, "registers": 32, "shared_nbytes": 0, "grid": 10, "block": 256},
                {"event": 1, "registers": 64, "shared_nbytes": 100, "grid": 20, "block": 128},
                {"event": 2, "registers": 8, "shared_nbytes": 1, "grid": 1, "block": 32},
                {"event": 3, "registers": 33, "shared_nbytes": 50, "grid": 60, "block": 128},
            ]
        )
    )
    assert set(found) == {"gemm", "other"}
    gemm = found["gemm"]
    assert (gemm["kernels"], gemm["registers"], gemm["shared_nbytes"]) == (3, 43.0, 50.0)
    assert (gemm["grid"], gemm["block"], gemm["common_block"]) == (30.0, pytest.approx(512 / 3), 128)
    assert (found["other"]["kernels"], found["other"]["grid"]) == (1, 1.0)


def test_what_is_not_recorded_is_null_and_counts_in_no_mean() -> None:
    found = shapes_by_name(
        make([{"event": 0, "grid": 2**64 - 1}, {"event": 1, "grid": 2**64 - 1}, {"event": 2, "block": 64}])
    )
    gemm = found["gemm"]
    assert (gemm["kernels"], gemm["registers"], gemm["block"], gemm["common_block"]) == (2, None, None, None)
    assert gemm["grid"] == pytest.approx(2.0**64)
    assert (found["other"]["block"], found["other"]["grid"]) == (64.0, None)


def test_of_equally_common_blocks_it_is_the_smallest() -> None:
    found = shapes_by_name(make([{"event": i, "block": block} for i, block in ((0, 512), (1, 96))]))
    assert found["gemm"]["common_block"] == 96


def test_ranks_stand_below_each_other() -> None:
    analysis = deepprof.analyze([make([{"event": 2, "block": 64}], 0), make([{"event": 2, "block": 32}], 1)])
    assert analysis.context_shapes.select("rank", "common_block").rows() == [(0, 64), (1, 32)]


@pytest.mark.parametrize("trace", [make([]), make_trace()], ids=["without details", "without events"])
def test_without_shapes_there_is_no_row(trace: Trace) -> None:
    shapes = deepprof.analyze(trace).context_shapes
    assert shapes.schema == PLACED_SHAPES
    assert shapes.is_empty()


def test_a_shape_of_no_event_is_nobodys() -> None:
    assert deepprof.analyze(make([{"event": 9, "block": 64}])).context_shapes.select(pl.len()).item() == 0
