"""Loops whose calls have costs that are given, on a device with round peaks: rooflines that can be reckoned by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import polars as pl

from deepprof.collectors.trace import DEVICES, Trace
from deepprof.metrics.cost.loop_roofline import WorkSources, measure_roofline
from deepprof.metrics.cost.roofline_tables import LoopRoofline
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.cost.trace_costs import OPERATOR_CALLS, TraceCosts
from deepprof.metrics.loop import Loop
from tests.deepprof.builders import build_iterations, build_loop
from tests.tables import event, make_trace, table

ITERATION_NS = 10_000
PEAKS = DevicePeaks(
    name="Round",
    source="made up",
    vector_flops_per_s={"float32": 1e12},  # 1,000 in a nanosecond
    matrix_flops_per_s={"bfloat16": 1e13, "tf32": 5e12},
    memory_nbytes_per_s={"memory": 1e11},  # 100 in a nanosecond
    shortest_kernel_ns=10,
)


@dataclass(frozen=True)
class OperatorCall:
    """A call with its kernels, in ns; without a name kernels of no call. `recorded`: whether the host has it."""

    operator: str | None
    kernels: Sequence[int]
    flops: int | None = None
    nbytes: int | None = None
    product_flops: int | None = None
    dtype: str | None = None
    kernel: str = "gemm"
    dims: str = "[[8, 8], [8, 8]]"
    recorded: bool = True
    kept: Sequence[int] | None = None  # only in these iterations


def product(ns: int, flops: int, nbytes: int = 100, dtype: str = "bfloat16", **more: object) -> OperatorCall:
    """Return a matrix product of one kernel."""
    return replace(OperatorCall("aten::mm", [ns], flops, nbytes, flops, dtype), **more)  # type: ignore[arg-type]


def build_worked(calls: Sequence[OperatorCall], iterations: int = 3) -> tuple[Trace, Loop, TraceCosts]:
    """Return a trace, its loop and the costs: the calls one after the other at the start of every iteration.

    Of the iterations the last one is not followed by another, as in any recording.
    """
    times = [ITERATION_NS] * iterations
    rows = build_iterations(times, warmup=0, partial=False)
    names = list(dict.fromkeys(call.kernel for call in calls))
    events, found, owner = [], [], []
    for number, start in enumerate(rows["start_ns"].to_list()):
        begin = start
        for call in (each for each in calls if each.kept is None or number in each.kept):
            for ns in call.kernels:
                events.append(event(names.index(call.kernel), begin, begin + ns))
                owner.append(len(found) if call.operator else -1)
                begin += ns
            if call.operator:
                found.append(_write_call(call, len(found)))
    trace = make_trace(events, names=names)
    device = {"device": 0, "name": "Round", "memory_nbytes": None, "multiprocessors": None, "properties": None}
    trace = msgspec.structs.replace(trace, devices=table([device], DEVICES))
    loop = build_loop(times, iterations=rows)
    return trace, loop, TraceCosts(table(found, OPERATOR_CALLS), np.array(owner, np.int64))


def _write_call(call: OperatorCall, number: int) -> dict[str, object]:
    """Return the row of a call in the table of calls."""
    return {
        "host_event": number if call.recorded else None,
        "operator": call.operator,
        "dims": call.dims,
        "dtypes": '["c10::BFloat16", "c10::BFloat16"]',
        "flops": call.flops,
        "nbytes": call.nbytes,
        "product_flops": call.product_flops,
        "product_dtype": call.dtype,
        "kernels": len(call.kernels),
        "device_ns": sum(call.kernels),
    }


def measure(
    calls: Sequence[OperatorCall], iterations: int = 3, peaks: DevicePeaks | None = PEAKS
) -> LoopRoofline | None:
    """Return the roofline of such a loop."""
    trace, loop, costs = build_worked(calls, iterations)
    return measure_roofline(trace, loop, WorkSources(costs, None, None), peaks)


def of(found: LoopRoofline | None, operator: str) -> dict[str, object]:
    """Return the only group of calls of an operator."""
    assert found is not None
    (row,) = found.groups.filter(pl.col("operator") == operator).to_dicts()
    return row
