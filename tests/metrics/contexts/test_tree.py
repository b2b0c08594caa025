"""The tree of hand-made traces: who is where, and what each needed."""

from __future__ import annotations

import polars as pl
import pytest

from deepprof.collectors.trace import MEMORY_EVENTS, Accounting, Trace
from deepprof.metrics.contexts.launches import NOT_IN_TRACE, NOT_LINKED, NOT_RECORDED
from deepprof.metrics.contexts.measures import COLUMNS, MEASURES, measure_contexts
from deepprof.metrics.contexts.tree import CONTEXTS, ContextTree, build_tree
from tests.metrics.contexts.test_slices import op
from tests.tables import copy, event, launch, make_trace, span, table

NAMES = (
    "gemm",
    "train.py(5): step",
    "nn.Module: Linear_0",
    "aten::linear",
    "cudaLaunchKernel",
    "cudaStreamSynchronize",
    "autograd::engine::evaluate_function: LinearBackward0",
    "Memcpy HtoD",
)
GEMM, STEP, MODULE, LINEAR, LAUNCH, WAIT, ENGINE, COPY = range(8)


def python(name: int, start: int, end: int) -> dict[str, object]:
    return op(1, start, end, name, category="python")


def training() -> Trace:
    """Two steps of a linear layer: a kernel forward and one backward in each, and a kernel of no one."""
    host, device = [], []
    for at in (0, 1000):
        host += [python(STEP, at, at + 500), python(MODULE, at + 10, at + 200)]
        host += [
            op(1, at + 20, at + 180, LINEAR, sequence=at, forward_thread=0),
            launch(at + 1, at + 30, at + 40, LAUNCH),
        ]
        host += [op(2, at + 300, at + 400, ENGINE, sequence=at, forward_thread=1)]
        host += [launch(at + 2, at + 310, at + 330, LAUNCH) | {"thread": 2}, launch(at + 3, at + 450, at + 490, WAIT)]
        device += [
            event(GEMM, at + 100, at + 150, correlation=at + 1),
            event(GEMM, at + 400, at + 470, correlation=at + 2),
        ]
    device += [event(GEMM, 1600, 1700, correlation=99)]
    return make_trace(device, host, names=NAMES)


def paths(tree: ContextTree) -> list[str]:
    """Return each context with those around it, without the first."""
    found = list[str]()
    for row in tree.contexts.iter_rows(named=True):
        found.append(f"{found[row['parent']]}/{row['name']}" if row["parent"] else str(row["name"]))
    return found


def test_backward_kernels_stand_under_the_forward_line() -> None:
    trace = training()
    tree = build_tree(trace)
    linear = "thread 1/step/Linear_0/aten::linear"
    engine = f"{linear}/autograd::engine::evaluate_function: LinearBackward0"
    known = paths(tree)
    assert tree.contexts.schema == CONTEXTS
    assert [known[each] for each in tree.of_events.tolist()] == [
        *[f"{linear}/cudaLaunchKernel/gemm", f"{engine}/cudaLaunchKernel/gemm"] * 2,
        f"{NOT_IN_TRACE}/gemm",
    ]
    backward = {path for path, row in zip(known, tree.contexts["backward"], strict=True) if row}
    assert backward == {engine, f"{engine}/cudaLaunchKernel", f"{engine}/cudaLaunchKernel/gemm"}
    assert tree.contexts.filter(name="step").select("kind", "file", "line").row(0) == ("python", "train.py", 5)
    assert tree.contexts.filter(name="Linear_0")["kind"].to_list() == ["module"]


def test_what_each_took_adds_up() -> None:
    trace = training()
    tree = build_tree(trace)
    taken = pl.concat([tree.contexts, measure_contexts(trace, tree)], how="horizontal")
    assert set(MEASURES) < set(taken.columns)
    root, linear = taken.row(0, named=True), taken.filter(name="aten::linear").row(0, named=True)
    assert (root["device_ns"], root["kernels"], root["own_device_ns"]) == (2 * (50 + 70) + 100, 5, 0)
    assert (linear["device_ns"], linear["kernels"], linear["launches"]) == (240, 4, 4)
    assert (linear["host_ns"], linear["own_host_ns"]) == (2 * (160 + 100), 2 * 150)
    assert root["host_ns"] == 2 * (500 + 100)
    waiting = taken.filter(name="cudaStreamSynchronize").row(0, named=True)
    assert (waiting["waiting_ns"], waiting["launches"]) == (80, 0)
    assert taken.filter(kind="unattributed", name=NOT_IN_TRACE)["device_ns"].to_list() == [100]


@pytest.mark.parametrize(
    ("device", "host", "reason"),
    [
        ([event(0, 0, 5)], [], NOT_RECORDED),
        ([event(0, 0, 5, correlation=4)], [], NOT_RECORDED),
        ([event(0, 0, 5)], [launch(1, 0, 1)], NOT_LINKED),
        ([event(0, 0, 5, correlation=4)], [launch(1, 0, 1)], NOT_IN_TRACE),
    ],
)
def test_what_nobody_launched_has_a_reason(device: list, host: list, reason: str) -> None:
    tree = build_tree(make_trace(device, host))
    assert paths(tree)[tree.of_events[0]] == f"{reason}/k0"


def test_an_operator_stands_for_a_launch_that_is_not_recorded() -> None:
    trace = make_trace([event(0, 5, 9, external_id=3)], [op(1, 0, 4, 1, external_id=3)], names=("k", "aten::add"))
    assert paths(build_tree(trace))[-1] == "thread 1/aten::add/k"


def test_markers_that_count_are_one_context() -> None:
    trace = make_trace(annotations=[span(0, 0, 5), span(1, 6, 9)], names=("ProfilerStep#1", "ProfilerStep#2"))
    assert paths(build_tree(trace))[4:] == ["thread 1", "thread 1/ProfilerStep#*"]


def test_copies_waits_and_allocations_count_for_who_made_them() -> None:
    host = [op(1, 0, 100, 3), launch(1, 10, 20, 4), launch(2, 30, 40, 4)]
    trace = make_trace(
        [copy(15, 25, 4000, correlation=1), event(0, 40, 90, activity="sync", correlation=2)], host, names=NAMES
    )
    memory = table(
        [
            {"time_ns": at, "process": 1, "thread": 1, "device": 0, "nbytes": size}
            for at, size in ((12, 64), (50, 8), (60, -8), (300, 1))
        ],
        MEMORY_EVENTS,
    )
    whole = Trace(
        path="", format="", names=trace.names, accounting=Accounting(9, 9), host_events=trace.host_events,
        device_events=trace.device_events, memory_events=memory,
    )  # fmt: skip
    tree = build_tree(whole)
    taken = pl.concat([tree.contexts, measure_contexts(whole, tree)], how="horizontal")
    root, linear = taken.row(0, named=True), taken.filter(name="aten::linear").row(0, named=True)
    assert (root["copies"], root["copied_nbytes"], root["device_ns"], root["device_wait_ns"]) == (1, 4000, 10, 50)
    assert (linear["allocated_nbytes"], linear["own_allocated_nbytes"], root["own_allocated_nbytes"]) == (72, 8, 1)


def test_an_empty_trace_is_a_tree_of_nothing() -> None:
    trace = make_trace()
    tree = build_tree(trace)
    assert tree.contexts["kind"].to_list() == ["all", *["unattributed"] * 3]
    assert measure_contexts(trace, tree).sum().row(0) == (0,) * 2 * len(COLUMNS)
