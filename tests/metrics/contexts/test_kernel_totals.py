"""What kernels needed in all and where they come from, and what contains memory at its peak: against plain Python."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.trace import LAUNCH_SHAPES, Trace
from deepprof.metrics.contexts.kernel_totals import KERNEL_TOTALS, find_place_of, list_calls, total_calls
from deepprof.metrics.contexts.tree import build_tree
from tests.metrics.contexts.test_slices import op
from tests.tables import copy, event, launch, make_trace, table

NAMES = ("Memcpy HtoD", "gemm", "relu", "aten::mm", "aten::relu", "cudaLaunchKernel", "train.py(7): step")
EVENTS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 50), st.integers(0, 9), st.none() | st.integers(1, 8)), max_size=12
)


@given(EVENTS)
def test_totals_are_sums_over_the_calls_of_a_name(drawn: Any) -> None:
    rows = [event(name, start, start + length) for name, start, length, _ in drawn] + [copy(0, 4, 100)]
    trace = make_trace(rows, names=NAMES)
    ordered = trace.device_events.rows(named=True)
    grids = {k: drawn[k % len(drawn)][3] if drawn else None for k in range(len(ordered))}
    shapes = [{"event": k, "grid": grid} for k, grid in grids.items() if grid is not None]
    trace = replace(trace, launch_shapes=table(shapes, LAUNCH_SHAPES))
    totals = total_calls(list_calls(trace, build_tree(trace)))
    assert totals.schema == pl.Schema(KERNEL_TOTALS)
    found = {row["name_id"]: row for row in totals.rows(named=True)}
    assert len(found) == totals.height == len({row["name_id"] for row in ordered})
    for name, row in found.items():
        own = [(k, each["end_ns"] - each["start_ns"]) for k, each in enumerate(ordered) if each["name_id"] == name]
        times = [ns for _, ns in own]
        assert (row["calls"], row["device_ns"]) == (len(times), sum(times))
        assert (row["min_ns"], row["max_ns"], row["mean_ns"]) == (min(times), max(times), sum(times) / len(times))
        known = [grid for k, _ in own if (grid := grids[k]) is not None]
        assert row["grid"] == (pytest.approx(sum(known) / len(known)) if known else None)
        assert row["nbytes"] == (100 if name == 0 else None)
    assert totals["device_ns"].is_sorted(descending=True)


def called() -> Trace:
    """Return gemm, launched twice from aten::mm in step and once, for longest, from nowhere in particular."""
    host = [
        op(1, 0, 90, 6, category="python"),
        op(1, 10, 20, 3),
        launch(1, 12, 13, 5),
        op(1, 30, 40, 3),
        launch(2, 32, 33, 5),
        launch(3, 95, 96, 5),
    ]
    events = [event(1, 20, 30, correlation=1), event(1, 40, 50, correlation=2), event(1, 100, 190, correlation=3)]
    return make_trace([*events, event(1, 200, 900, correlation=4)], host, names=NAMES)


def test_the_stack_is_that_of_the_place_that_launched_most() -> None:
    trace = called()
    tree = build_tree(trace)
    calls = list_calls(trace, tree)
    place = find_place_of(calls, tree, (1, "kernel"), "calls")
    assert place.frames.select("kind", "name", "line").rows() == [
        ("thread", "thread 1", None),
        ("python", "step", 7),
        ("operator", "aten::mm", None),
        ("runtime", "cudaLaunchKernel", None),
        ("kernel", "gemm", None),
    ]
    assert (place.calls, place.device_ns, place.places) == (2, 20, 2)
    longest = find_place_of(calls, tree, (1, "kernel"), "device_ns")
    assert longest.frames["kind"].to_list() == ["thread", "runtime", "kernel"]
    assert (longest.calls, longest.device_ns) == (1, 90)  # not the one whose launch is not in the trace


def test_where_no_launch_is_known_the_reason_is_the_place() -> None:
    trace = make_trace([event(1, 0, 5)], names=NAMES)
    tree = build_tree(trace)
    place = find_place_of(list_calls(trace, tree), tree, (1, "kernel"), "calls")
    assert place.frames["kind"].to_list() == ["unattributed", "kernel"]
    assert (place.calls, place.places) == (1, 1)
