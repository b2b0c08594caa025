"""Why a rank is late: the part of its iterations that is longer than the others'."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.causes import LateCause, SlowerKernels, compare_kernels, find_cause
from deepprof.metrics.ranks.facts import mean_times
from tests.rank_jobs import RankJob
from tests.tables import make_trace


def job(*scale: tuple[int, int], iterations: int = 6) -> tuple[list[Loop], list[Trace]]:
    """Ranks that compute 100 times these before their two collectives."""
    compute = np.array(scale)[:, None, :] * np.full((1, iterations, 1), 100)
    return RankJob(compute_ns=compute, transfer_ns=(10, 10)).build()


def longer(loop: Loop, column: str, ns: int) -> Loop:
    return replace(loop, parts=loop.parts.with_columns(pl.col(column) + ns))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("compute_ns", "compute"),
        ("idle_input_ns", "input"),
        ("idle_launch_ns", "host"),
        ("idle_sync_ns", "host"),
        ("idle_allocator_ns", "host"),
        ("idle_host_ns", "host"),
        ("exposed_htod_ns", "copy"),
        ("idle_unknown_ns", "unknown"),
        ("idle_dependency_ns", "unknown"),
    ],
)
def test_the_part_that_grew_is_the_cause(column: str, kind: str) -> None:
    loops, _ = job((3, 3), (3, 3), (3, 3))
    found = find_cause(longer(loops[1], column, 500), [loops[0], loops[2]], 500)
    assert found == LateCause(kind, 0 if kind == "unknown" else 500)  # type: ignore[arg-type]


def test_a_part_that_explains_less_than_half_is_no_cause() -> None:
    loops, _ = job((3, 3), (3, 3))
    assert find_cause(longer(loops[1], "compute_ns", 249), loops[:1], 500).kind == "unknown"
    assert find_cause(longer(loops[1], "compute_ns", 251), loops[:1], 500).kind == "compute"
    assert find_cause(loops[1], loops[:1], 0).kind == "unknown"


def test_more_kernels_are_other_work() -> None:
    loops, _ = job((3, 3), (3, 3))
    busier = replace(loops[1], iterations=loops[1].iterations.with_columns(pl.col("kernels") + 1))
    assert find_cause(longer(busier, "compute_ns", 400), loops[:1], 500).kind == "work"


def test_nothing_to_compare_is_unknown() -> None:
    loops, _ = job((3, 3), iterations=1)
    assert find_cause(loops[0], [], 500).kind == "unknown"


def test_kernels_that_are_all_slower_are_even() -> None:
    first, even, uneven = (mean_times(*each) for each in zip(*job((2, 4), (3, 6), (2, 5)), strict=True))
    assert compare_kernels(even, first) == SlowerKernels(1.5, True, "kernel1")
    assert compare_kernels(uneven, first) == SlowerKernels(1.1667, False, "kernel1")


def test_ranks_without_a_common_kernel_are_not_compared() -> None:
    loops, traces = job((2, 4), (2, 4))
    nothing = mean_times(loops[1], replace(make_trace(rank=1), path="empty"))
    assert compare_kernels(mean_times(loops[0], traces[0]), nothing) is None
