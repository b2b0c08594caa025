"""At which level to prefetch, and what: by what fits."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import DEVICES, Trace
from deepprof.metrics.memory.address_bands import ADDRESS_BANDS, BAND_NBYTES, measure_bands
from deepprof.metrics.memory.block_lifetimes import pair_blocks
from deepprof.metrics.memory.operand_footprints import measure_footprints
from deepprof.metrics.memory.prefetch_plan import NOT_MANAGED, PREFETCHES, PrefetchPlan, plan_prefetch
from deepprof.tools import find_tool, run
from tests.metrics.memory.test_floors import with_memory
from tests.metrics.memory.test_operand_footprints import IN_PLACE, MATRICES, record
from tests.tables import Row, copy, launch, make_trace, table

MB = 1 << 20


def make(capacity: int | None = 8 * MB, *, managed: bool = True, memory: bool = True) -> Trace:
    """Return a program that allocates 4 MiB for all of 1,000 ns and, 2 MiB further, 1 MiB for 100 ns."""
    trace = record(MATRICES, IN_PLACE)
    if managed:
        call = table([launch(99, 500, 501, 0)], trace.host_events.schema)
        kept = trace.accounting.kept + 1
        trace = replace(
            trace,
            names=trace.names.set(trace.names == "cudaLaunchKernel", "cudaMallocManaged"),
            host_events=pl.concat([trace.host_events, call]),
            accounting=replace(trace.accounting, read=kept, kept=kept),
        )
    devices: list[Row] = [{"device": 0, "memory_nbytes": capacity}]
    trace = replace(trace, devices=table(devices, DEVICES))
    in_use = 0
    rows: list[Row] = []
    for time, address, nbytes in ((0, 0, 4 * MB), (200, 8 * MB, MB), (300, 8 * MB, -MB), (1000, 0, -4 * MB)):
        in_use += nbytes
        rows.append({"time_ns": time, "process": 1, "device": 0, "address": address, "nbytes": nbytes})
        rows[-1]["allocated_nbytes"] = in_use
    return with_memory(trace, rows) if memory else trace


def plan(trace: Trace) -> PrefetchPlan:
    bands = measure_bands(pair_blocks(trace.memory_events).table, (0, 1000), 1).bands
    return plan_prefetch(trace, 0, measure_footprints(trace), bands)


def test_whole_objects_where_all_fits() -> None:
    found = plan(make())
    assert (found.level, found.factor) == ("object", 5 / 8)
    assert found.rows.select("action", "address", "nbytes").rows() == [
        ("prefetch once", 0, 4 * MB),
        ("leave to migration", 8 * MB, BAND_NBYTES),
    ]


def test_tensors_where_not_all_fits() -> None:
    found = plan(make(capacity=2 * MB))
    assert (found.level, found.factor) == ("tensor", 2.5)
    assert found.rows.select("action", "operator", "address", "nbytes").rows() == [
        ("prefetch before each call", "aten::mm", None, 896),
        ("prefetch before each call", "aten::add_", None, 800),
        ("pin", None, 0, 4 * MB),
        ("evict first", None, 8 * MB, BAND_NBYTES),
    ]


def test_operands_that_do_not_fit_alone_are_left_to_migration() -> None:
    assert plan(make(capacity=850)).rows["action"].to_list()[:2] == ["leave to migration", "prefetch before each call"]


@pytest.mark.parametrize(
    ("trace", "factor", "reason"),
    [
        (make(managed=False), 5 / 8, NOT_MANAGED),
        (make(capacity=None), None, "how much memory the device has is not recorded: whether objects fit is not known"),
        (make(memory=False), None, "how much memory is in use is not recorded: whether objects fit is not known"),
        (make_trace(), None, NOT_MANAGED),
    ],
)
def test_no_plan_without_evidence(trace: Trace, factor: float | None, reason: str) -> None:
    found = plan(trace)
    assert (found.level, found.factor, found.reason) == (None, factor, reason)
    assert (found.rows.height, found.rows.schema) == (0, pl.Schema(PREFETCHES))


def test_a_migration_shows_managed_memory() -> None:
    trace = make_trace([copy(0, 10, 5)], names=["Unified H2D"])
    found = plan_prefetch(trace, 0, measure_footprints(trace), pl.DataFrame(schema=ADDRESS_BANDS))
    assert found.reason.startswith("how much memory the device has")


def test_the_tool_reports_each_device() -> None:
    found = run(find_tool("prefetch")(), make(capacity=2 * MB))
    assert found["plans"].select("device", "level", "factor").rows() == [(0, "tensor", 2.5)]  # type: ignore[union-attr]
    assert found["advice"].height == 4  # type: ignore[union-attr]
    assert run(find_tool("prefetch")(), make(managed=False))["summary"] == NOT_MANAGED
    assert run(find_tool("prefetch")(), make_trace())["summary"] == "no work of a device was recorded"
