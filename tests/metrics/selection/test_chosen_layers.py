"""What belongs to a layer on the host and in memory, on small traces by hand."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from deepprof.collectors.trace import MEMORY_EVENTS, Accounting, Trace
from deepprof.metrics.annotation.event_stages import TraceStages
from deepprof.metrics.annotation.layers import TraceLayers
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation, annotate
from deepprof.metrics.contexts.tree import build_tree
from deepprof.metrics.cpu_fallback import stand_in
from deepprof.metrics.selection.chosen_parts import list_layers, mark_layer
from tests.metrics.contexts.test_slices import op
from tests.tables import event, launch, make_trace, span, table

NAMES = ("k", "nn.Module: Net_0", "nn.Module: Linear_0", "nn.Module: Linear_1", "aten::mm", "cudaLaunchKernel", "mine")


def modules() -> Trace:
    """Return a net of two layers, a kernel, a range and an allocation in each."""
    host, device, ranges, memory = [op(1, 0, 100, 1, category="python")], [], [], []
    for number, begin in enumerate((10, 50)):
        host += [op(1, begin, begin + 30, 2 + number, category="python"), op(1, begin + 2, begin + 20, 4)]
        host.append(launch(number, begin + 5, begin + 6, 5))
        device.append(event(0, begin + 10, begin + 40, correlation=number))
        ranges.append(span(6, begin + 1, begin + 25))
        memory.append({"time_ns": begin + 3, "process": 1, "thread": 1, "device": 0, "nbytes": 8})
    trace = make_trace(device, host, ranges, NAMES)
    count = trace.accounting.kept + 2
    return replace(trace, memory_events=table(memory, MEMORY_EVENTS), accounting=Accounting(count, count))


def test_everything_in_the_functions_of_a_module_is_its_own() -> None:
    trace = modules()
    known = annotate(trace, (), build_tree(trace))
    assert list_layers(known) == ["Net_0", "Net_0/Linear_0", "Net_0/Linear_1"]
    marks = mark_layer(known, "Net_0/Linear_1", trace)
    assert marks is not None
    assert marks["device_events"].tolist() == [False, True]
    assert marks["host_events"].tolist() == [False] * 4 + [True] * 3
    assert marks["annotations"].tolist() == [False, True]
    assert marks["memory_events"].tolist() == [False, True]
    whole = mark_layer(known, "Net_0", trace)
    assert whole is not None
    assert all(whole[name].all() for name in ("device_events", "host_events", "annotations", "memory_events"))


def test_a_path_that_is_no_layer_has_nothing() -> None:
    trace = modules()
    known = annotate(trace, (), build_tree(trace))
    assert [mark_layer(known, path, trace) for path in ("", "Linear_0", "net_0")] == [None] * 3
    assert mark_layer(None, "Net_0", trace) is None
    assert list_layers(None) == []


def test_of_blocks_of_operators_the_operators_with_all_in_them_are_marked() -> None:
    """A recording of the CPU: operators are its kernels, and what repeats among them its layers."""
    host = [op(1, 10 * k, 10 * k + 8, 4) for k in range(12)] + [op(1, 10 * k + 2, 10 * k + 4, 4) for k in range(12)]
    recorded = make_trace((), sorted(host, key=lambda row: row["start_ns"]), names=NAMES)
    trace = stand_in(recorded)
    assert trace is not None
    of_events = np.array([0, 1] * 6)
    layers = TraceLayers(("", "block 1"), np.array([-1, 0]), "blocks", of_events, np.empty(0, np.int64))
    nothing = np.full(12, -1, np.int8)
    known = TraceAnnotation(trace, None, TraceStages(nothing, nothing, None), layers)
    marks = mark_layer(known, "block 1", recorded)
    assert marks is not None
    assert marks["host_events"].tolist() == [False, False, True, True] * 6
    assert not any(marks[name].any() for name in ("annotations", "memory_events"))
