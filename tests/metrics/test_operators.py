from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import DEVICES, MEMORY_EVENTS, OPERANDS, Accounting, Trace
from deepprof.metrics.cpu_fallback import stand_in, stand_ins
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.streams import classify_streams
from tests.tables import Row, event, make_trace, span, table

NAMES = (
    "aten::add",
    "autograd::engine::evaluate_function: MmBackward0",
    "MmBackward0",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "dynamo",
    "backward_compile (dynamo_timed)",
    "## Call CompiledFxGraph fabc ##",
    "TfrtCpuExecutable::Execute",
    "gloo:all_reduce",
)
ADD, BACKWARD, NODE, LOADING, COMPILING, LATE, COMPILED, FOREIGN, REDUCING = range(len(NAMES))
MAIN = 11


def op(name: int, start: int, end: int, thread: int = MAIN, **more: object) -> Row:
    """A host operator."""
    fixed: Row = {"process": 1, "thread": thread, "category": "op"}
    return fixed | {"name_id": name, "start_ns": start, "end_ns": end} | more


def many(count: int = 12, start: int = 1000, thread: int = MAIN, length: int = 5) -> list[Row]:
    """Operators one after the other, away from what a test is about."""
    return [op(ADD, start + 10 * k, start + 10 * k + length, thread) for k in range(count)]


def cpu_trace(host: list[Row], annotations: list[Row] = (), **more: object) -> Trace:  # type: ignore[assignment]
    return replace(make_trace(host=host, annotations=annotations, names=NAMES), **more)  # type: ignore[arg-type]


def kernels(trace: Trace) -> list[tuple[int, int, int]]:
    """The stand-ins before the `many` ones, as (name, start, end)."""
    made = stand_in(trace)
    assert made is not None
    rows = made.device_events.filter(pl.col("start_ns") < 1000).select("name_id", "start_ns", "end_ns").rows()
    return [(int(name), int(start), int(end)) for name, start, end in rows]


@pytest.mark.parametrize("name", ["nccl:all_to_all", "aten::record_stream", "Optimizer.step#FusedAdam.step"])
def test_operators_of_a_gpu_job_are_no_kernels(name: str) -> None:
    assert stand_in(cpu_trace(many())) is not None
    trace = replace(make_trace(host=many(), names=[*NAMES, name]), notes=("holds no kernel: x",))
    assert stand_in(trace) is None


def test_the_outermost_operators_become_kernels_of_the_threads_stream() -> None:
    trace = cpu_trace([op(BACKWARD, 0, 100), op(NODE, 10, 90), op(ADD, 20, 80), op(ADD, 100, 120), *many()])
    made = stand_in(trace)
    assert made is not None
    assert kernels(trace) == [(BACKWARD, 0, 100), (ADD, 100, 120)]
    assert made.device_events.select("device", "stream", "activity").unique().rows() == [(0, MAIN, "kernel")]
    assert made.device_events["correlation"].null_count() == made.device_events.height == 14
    assert made.notes == ("recorded on the CPU only: iterations are counted in operators of thread 11",)
    assert is_stand_in(made)
    assert not is_stand_in(trace)


def test_every_record_is_still_counted_once() -> None:
    trace = cpu_trace([op(BACKWARD, 0, 100), op(ADD, 20, 80), *many()], [span(LOADING, 400, 500, thread=MAIN)])
    made = stand_in(trace)
    assert made is not None
    assert made.accounting == trace.accounting  # which `Trace` compares with its tables
    assert (made.device_events.height, made.host_events.height, made.annotations.height) == (13, 1, 1)
    assert made.host_events.rows() == trace.host_events.filter(name_id=ADD, start_ns=20).rows()


def test_ranges_of_collectives_are_collectives_of_their_thread() -> None:
    waiting = [span(REDUCING, 10, 900, thread=12), span(REDUCING, 50, 60, thread=13), span(LOADING, 0, 5, thread=12)]
    made = stand_in(cpu_trace(many(), waiting))
    assert made is not None
    moved = made.device_events.filter(pl.col("name_id") == REDUCING)
    assert moved.select("start_ns", "end_ns", "stream").rows() == [(10, 900, 12), (50, 60, 13)]
    assert made.annotations["name_id"].to_list() == [LOADING]
    assert classify_streams(made).select("stream", "role").rows() == [
        (MAIN, "main"),
        (12, "communication"),
        (13, "communication"),
    ]


def test_details_of_the_operators_that_remain_keep_their_rows() -> None:
    host = [op(BACKWARD, 0, 100), op(ADD, 20, 30), op(ADD, 40, 50), op(ADD, 200, 210), *many()]
    details = pl.DataFrame({"event": [0, 2, 3], "dims": ["a", "b", "c"], "dtypes": [None] * 3})
    details = details.with_columns(values=None, strides=None).cast(dict(OPERANDS))
    made = stand_in(cpu_trace(host, operands=details))
    assert made is not None
    assert made.operands.rows() == [(1, "b", None, None, None)]
    assert made.host_events["start_ns"].to_list() == [20, 40]


def test_loading_data_is_no_compute() -> None:
    ranges = [span(LOADING, 0, 100, thread=MAIN), span(LOADING, 300, 400, thread=99)]
    host = [op(ADD, 10, 20), op(ADD, 150, 160), op(ADD, 310, 320), *many()]
    assert kernels(cpu_trace(host, ranges)) == [(ADD, 150, 160), (ADD, 310, 320)]


def test_compiling_is_no_compute_and_a_backward_pass_that_compiles_is_only_its_operators() -> None:
    host = [op(COMPILING, 0, 100), op(ADD, 10, 20), op(ADD, 30, 30)]
    host += [op(BACKWARD, 200, 500), op(LATE, 210, 400), op(ADD, 220, 230), op(ADD, 450, 460), op(BACKWARD, 600, 700)]
    assert kernels(cpu_trace([*host, *many()])) == [(ADD, 450, 460), (BACKWARD, 600, 700)]


def test_compiled_code_computes_though_it_is_no_operator() -> None:
    assert kernels(cpu_trace([op(NODE, 0, 100), op(COMPILED, 10, 90), op(ADD, 20, 30), *many()])) == [
        (COMPILED, 10, 90)
    ]


def test_the_training_thread_is_the_one_that_goes_backward() -> None:
    readers = many(40, thread=5, length=9)
    made = stand_in(cpu_trace([op(BACKWARD, 0, 100), *many(), *readers]))
    assert made is not None
    assert made.device_events["stream"].unique().to_list() == [MAIN]
    busiest = stand_in(cpu_trace([*many(), *readers]))  # no backward pass anywhere: the most operator time
    assert busiest is not None
    assert busiest.device_events["stream"].unique().to_list() == [5]


@pytest.mark.parametrize(
    "host",
    [
        [],
        [op(ADD, 0, 10)],
        many(11),
        [op(ADD, 0, 10_000), *many(30)],  # one operator contains all others
        [op(FOREIGN, 10 * k, 10 * k + 5) for k in range(30)],  # another framework's functions
        [op(NODE, 10 * k, 10 * k + 5) for k in range(30)],
        [*many(30), op(ADD, 0, 5, category="runtime")],  # a device was in use
    ],
)
def test_thin_evidence_and_devices_in_use_make_no_stand_in(host: list[Row]) -> None:
    assert stand_in(cpu_trace(host)) is None


def test_anything_that_speaks_of_a_device_makes_no_stand_in() -> None:
    trace = cpu_trace(many())
    assert stand_in(trace) is not None
    device = {"device": [0], "name": ["GPU"], "memory_nbytes": [1], "multiprocessors": [1], "properties": ["{}"]}
    assert stand_in(replace(trace, devices=pl.DataFrame(device, schema=dict(DEVICES)))) is None
    other = Accounting(read=13, kept=12, dropped={"other-device": 1})
    assert stand_in(replace(trace, accounting=other)) is None
    assert stand_in(make_trace([event(ADD, 0, 1, activity="sync")], many(), names=NAMES)) is None
    for place, expected in ((-1, True), (0, False)):
        memory = table([{"time_ns": 1, "device": place, "nbytes": 8}], MEMORY_EVENTS)
        counted = Accounting(read=13, kept=13)
        assert (stand_in(replace(trace, memory_events=memory, accounting=counted)) is not None) == expected


def test_ranks_stand_in_together_or_not_at_all() -> None:
    cpu, gpu, empty = cpu_trace(many()), make_trace([event(0, 0, 1)]), make_trace()
    assert stand_ins([cpu, gpu]) == (cpu, gpu)
    first, second = stand_ins([cpu, empty])
    assert is_stand_in(first)
    assert second is empty
    assert stand_ins([first]) == (first,)
    assert stand_ins([]) == ()


@st.composite
def nested(draw: st.DrawFn) -> list[Row]:
    """Operators of two threads that nest as calls do, some of them empty, in any order."""
    rows: list[Row] = []
    for thread in (MAIN, 12):
        reach: list[int] = []
        now = 0
        for _ in range(draw(st.integers(0, 25))):
            now += draw(st.integers(0, 3))
            reach = [end for end in reach if end > now]
            end = now + draw(st.integers(0, 12))
            reach.append(min([end, *reach]))
            rows.append(op(ADD, now, reach[-1], thread))
    return draw(st.permutations(rows))


def outermost_by_hand(rows: list[Row]) -> list[tuple[int, int]]:
    """What no other row of the same thread encloses, of two equal ones one; an empty row in an open one is inside."""
    spans = sorted(((int(str(r["start_ns"])), int(str(r["end_ns"]))) for r in rows), key=lambda s: (s[0], -s[1]))
    kept: list[tuple[int, int]] = []
    for start, end in spans:
        if not any(a <= start < b for a, b in kept):
            kept.append((start, end))
    return kept


@given(nested())
def test_outermost_agrees_with_brute_force(rows: list[Row]) -> None:
    anchor = [op(BACKWARD, 900, 999), *many()]  # the main thread, whatever was drawn
    made = stand_in(cpu_trace([*rows, *anchor]))
    assert made is not None
    early = made.device_events.filter(pl.col("start_ns") < 900)
    expected = outermost_by_hand([row for row in rows if row["thread"] == MAIN])
    assert sorted(early.select("start_ns", "end_ns").rows()) == sorted(expected)
    assert np.all(np.diff(made.device_events["start_ns"].to_numpy()) >= 0)


@pytest.mark.traces
def test_a_real_trace_of_a_cpu_has_its_steps(traces: Path) -> None:
    (path,) = (traces / "hta-cpu-only").iterdir()
    analysis = deepprof.analyze(deepprof.read(path))
    (loop,) = analysis.loops
    made = analysis.traces[0]
    ids = made.names.str.starts_with("ProfilerStep").arg_true()
    steps = made.annotations.filter(pl.col("name_id").is_in(ids.implode()))
    assert steps.height == loop.iterations.height == 5
    begins = loop.iterations["start_ns"]
    assert ((steps["start_ns"] <= begins) & (begins < steps["end_ns"])).all()
    assert analysis.headline is not None
    assert analysis.headline.rule == "communication-bound"  # the thread waits for gloo's


@pytest.mark.traces
@pytest.mark.parametrize("case", ["hta-mtia-infer", "cs336-ihor", "ecf-baseline-0"])
def test_real_traces_that_lack_their_device_keep_their_reason(traces: Path, case: str) -> None:
    (path,) = (traces / case).iterdir()
    trace = deepprof.read(path)
    assert stand_in(trace) is None
    assert str(deepprof.analyze(trace).no_loop_reason).startswith("the trace holds no GPU kernel; ")
