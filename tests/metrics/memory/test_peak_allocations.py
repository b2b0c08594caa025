"""What contains the memory at its peak, against a plain account of what is alive."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.trace import ALLOCATIONS, MEMORY_EVENTS, STACKS, Accounting, Trace
from deepprof.metrics.contexts.tree import build_tree
from deepprof.metrics.memory.peak_allocations import HELD, find_allocation, find_peak
from tests.metrics.contexts.test_slices import op
from tests.tables import Row, make_trace, table

NAMES = ("Memcpy HtoD", "gemm", "relu", "aten::mm", "aten::relu", "cudaLaunchKernel", "train.py(7): step")
MEMORY = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 1)), max_size=20)


def with_memory(host: list[Row], rows: list[Row]) -> Trace:
    trace = make_trace((), host, names=NAMES)
    count = trace.accounting.kept + len(rows)
    return replace(trace, memory_events=table(rows, MEMORY_EVENTS), accounting=Accounting(count, count))


@given(MEMORY)
def test_what_is_in_use_at_the_peak_is_found(drawn: Any) -> None:
    """An address that is in use is released next, one that is not is allocated; operators are open at some times."""
    live: dict[tuple[int, int], int] = {}
    rows, states = [], []
    for time, (address, nbytes, device) in enumerate(drawn):
        key = device, address
        size = -live.pop(key) if key in live else live.setdefault(key, nbytes)
        rows.append({"time_ns": time, "process": 1, "thread": 1, "device": device, "address": address, "nbytes": size})
        states.append((device, dict(live)))
    host = [op(1, 0, 6, 3), op(1, 8, 12, 4)]
    trace = with_memory(host, rows)
    peak = find_peak(trace, build_tree(trace))
    if not rows:
        assert peak is None
        return
    sums = [sum(size for (at, _), size in held.items() if at == device) for device, held in states]
    assert peak is not None
    assert peak.known_nbytes == max(sums)
    first = sums.index(max(sums))
    candidates = [k for k, each in enumerate(sums) if each == max(sums)]
    assert peak.time_ns in candidates
    held = {key[1] for key in states[peak.time_ns][1] if key[0] == peak.device}
    expected = defaultdict[tuple[str | None, int], int](int)
    for address in held:
        at = max(
            k for k in range(peak.time_ns + 1) if rows[k]["address"] == address and rows[k]["device"] == peak.device
        )
        name = "aten::mm" if at < 6 else "aten::relu" if 8 <= at < 12 else None
        expected[name, int(str(rows[at]["nbytes"]))] += 1
    found = {(row["operator"], row["piece_nbytes"]): row["calls"] for row in peak.held.rows(named=True)}
    assert found == expected
    assert peak.held.schema == pl.Schema(HELD)
    assert first <= peak.time_ns


def test_an_allocation_has_the_frames_of_the_host_or_else_its_own_stack() -> None:
    rows: list[Row] = [
        {"time_ns": 5, "process": 1, "thread": 1, "device": 0, "address": 1, "nbytes": 8},
        {"time_ns": 50, "device": 0, "address": 2, "nbytes": 9},
    ]
    stacks = table([{"stack_id": 3, "frames": "at::empty;model.py(12): forward"}], STACKS)
    allocations = table([{"event": k, "stack_id": 3} for k in (0, 1)], ALLOCATIONS)
    trace = replace(with_memory([op(1, 0, 9, 3)], rows), stacks=stacks, allocations=allocations)
    tree = build_tree(trace)
    assert find_allocation(trace, tree, 0)["name"].to_list() == ["thread 1", "aten::mm"]
    own = find_allocation(trace, tree, 1)
    assert own.select("kind", "name", "file", "line").rows() == [
        ("python", "forward", "model.py", 12),
        ("native", "at::empty", None, None),
    ]
    bare = replace(trace, allocations=allocations.clear())
    assert find_allocation(bare, build_tree(bare), 1).is_empty()


def test_processes_with_equal_addresses_hold_memory_each() -> None:
    rows: list[Row] = [
        {"time_ns": time, "process": process, "thread": 1, "device": 0, "address": 1, "nbytes": 8}
        for time, process in ((1, 1), (2, 2))
    ]
    trace = with_memory([], rows)
    peak = find_peak(trace, build_tree(trace))
    assert peak is not None
    assert (peak.known_nbytes, peak.held["calls"].to_list()) == (16, [2])


def test_without_operators_memory_is_told_by_call_stack() -> None:
    """As a snapshot has it; allocations without a stack are told by size, and those of an operator by that and size."""
    sizes = {1: (500, 0), 2: (300, 0), 3: (500, 1), 4: (70, None), 5: (70, None), 6: (30, 2), 7: (80, 0)}
    rows: list[Row] = [
        {"time_ns": 10 * k, "process": 1, "thread": 1, "device": 0, "address": k, "nbytes": nbytes}
        for k, (nbytes, _) in sizes.items()
    ]
    frames = ["at::empty;torch/nn/linear.py(9): forward;model.py(12): forward", "data.py(3): load", "at::empty"]
    stacks = table([{"stack_id": k, "frames": each} for k, each in enumerate(frames)], STACKS)
    own = [{"event": k - 1, "stack_id": stack} for k, (_, stack) in sizes.items() if stack is not None]
    trace = replace(with_memory([op(1, 65, 75, 3)], rows), stacks=stacks, allocations=table(own, ALLOCATIONS))
    peak = find_peak(trace, build_tree(trace))
    assert peak is not None
    assert peak.held.select("operator", "line", "piece_nbytes", "calls", "nbytes").rows() == [
        (None, "model.py(12): forward", None, 2, 800),
        (None, "data.py(3): load", 500, 1, 500),
        (None, None, 70, 2, 140),
        ("aten::mm", None, 80, 1, 80),
        (None, None, 30, 1, 30),
    ]
    assert peak.held.schema == pl.Schema(HELD)
