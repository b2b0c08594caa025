"""Rules on memory: each finds the case made for it, and is silent on the one that only looks like it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import DEVICES, FAILED_ALLOCATIONS, MEMORY_EVENTS, SEGMENTS, STACKS, Trace
from deepprof.diagnosis.causes import rank
from deepprof.diagnosis.engine import diagnose_memory
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.allocator_bound import allocator_bound
from deepprof.diagnosis.rules.allocator_churn import allocator_churn
from deepprof.diagnosis.rules.fragmentation import fragmentation
from deepprof.diagnosis.rules.graph_growth import graph_growth
from deepprof.diagnosis.rules.memory_growth import memory_growth
from deepprof.diagnosis.rules.near_limit import near_limit
from deepprof.diagnosis.rules.out_of_memory import out_of_memory
from deepprof.metrics.annotation.event_stages import TraceStages
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation, annotate
from deepprof.metrics.contexts.tree import build_tree
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.device_memory import DeviceMemory, list_memory
from deepprof.metrics.memory.leaks import list_growth
from deepprof.simulation import simulate, write
from tests.deepprof.diagnosis.loops import Did, Job, compute
from tests.loops import MS, make_loop
from tests.manifest import path_of, rows
from tests.metrics.memory.test_rises import MIB, leaking
from tests.tables import Row, make_trace, table

GB = 1_000_000_000
WITH_MEMORY = {  # real traces with memory events
    *("absent", "tb-resnet50-nw0-c", "tb-resnet50-nw4-d", "tl-h100-falcon", "tl-h100-qwen", "tl-mi300-falcon"),
    *("tl-mi300-qwen", "tl-norm", "tl-vllm-decode-capture", "tl-ddp-resnet18-nopool", "tl-jax-conv-08"),
    *("tl-jax08-attention", "tl-jax08-gemm", "tl-jax-conv-legacy"),
}


def memory_of(trace: Trace, loop: Loop | None = None) -> DeviceMemory:
    """Return the memory of device 0 of a trace without contexts."""
    nothing = np.zeros(trace.device_events.height, np.int8)
    return DeviceMemory(TraceAnnotation(trace, None, TraceStages(nothing - 1, nothing, None), None), 0, loop)


def with_rows(trace: Trace, **tables: pl.DataFrame) -> Trace:
    """Return the trace with other tables of records, all of them counted."""
    changed = sum(rows.height - getattr(trace, name).height for name, rows in tables.items())
    kept = trace.accounting.kept + changed
    return replace(trace, accounting=replace(trace.accounting, read=kept, kept=kept), **tables)  # type: ignore[arg-type]


def with_device(trace: Trace, nbytes: int) -> Trace:
    """Return the trace with the size of device 0."""
    return replace(trace, devices=table([{"device": 0, "name": "A", "memory_nbytes": nbytes}], DEVICES))


def allocate(*sizes: tuple[float, int, int], held: int | None = None, base: int = 0) -> pl.DataFrame:
    """Return memory events of device 0: time in ms, address, and size, negative for a release."""

    rows: list[Row] = []
    for time, address, nbytes in sizes:
        base += nbytes
        row: Row = {"time_ns": round(time * MS), "process": 1, "thread": 1, "device": 0, "address": address}
        rows.append(row | {"nbytes": nbytes, "allocated_nbytes": base, "reserved_nbytes": held})
    return table(rows, MEMORY_EVENTS)


def test_memory_that_is_kept_is_found_without_addresses() -> None:
    trace = with_device(leaking([80 * MIB * (i + 1) for i in range(13)]), 80_000 * MIB)
    (found,) = memory_growth(memory_of(trace, make_loop([10.0] * 12)))
    assert (found.severity, found.location) == ("warning", None)
    assert found.evidence["nbytes_per_iteration"] == 80 * MIB
    assert found.evidence["iterations_left"] == pytest.approx((80_000 - 1000 - 12 * 80) / 80, abs=2)
    assert "full after" in found.summary


def test_what_is_allocated_and_never_released_leaks() -> None:
    rows = [(10 * i + 5.0, 1000 + i, 4 * MIB) for i in range(13)]
    trace = with_rows(make_trace(), memory_events=allocate(*rows, base=GB))
    (found,) = memory_growth(memory_of(trace, make_loop([10.0] * 12)))
    assert found.evidence["nbytes_per_iteration"] == 4 * MIB
    assert found.evidence["leaking_iterations"] == 10  # what the last two leave may be released later
    assert found.evidence["last_nbytes"] == GB + 13 * 4 * MIB


@pytest.mark.parametrize(
    "rows",
    [
        [(10 * i + 5.0, 1000 + i, 4 * MIB) for i in range(5)],
        [(10 * i + 5.0, 1000 + i, 4) for i in range(13)],
        [(10 * i + 5.0 + k, 1000 + i, (1 - 2 * k) * MIB) for i in range(13) for k in (0, 1)],
        [(10 * i + 5.0, 1000 + i, 4 * MIB) for i in range(13) if i >= 9],
        [],
        [(5.0, 7, MIB)],
    ],
    ids=["a cache that is full", "a number", "released", "a queue", "nothing", "one event"],
)
def test_what_does_not_go_on_is_no_leak(rows: list[tuple[float, int, int]]) -> None:
    trace = with_rows(make_trace(), memory_events=allocate(*rows, base=GB))
    assert diagnose_memory(memory_of(trace, make_loop([10.0] * 12))) == []


@pytest.mark.parametrize(("nbytes", "found"), [(512, 0), (64 * MIB, 1)])
def test_without_totals_only_a_large_leak_is_one(nbytes: int, found: int) -> None:
    """What is in use next to what the recording shows is unknown: a kept number doubles nothing."""
    rows = allocate(*((10 * i + 5.0, 1000 + i, nbytes) for i in range(13)))
    rows = rows.with_columns(allocated_nbytes=pl.lit(None, pl.UInt64))
    trace = with_rows(make_trace(), memory_events=rows)
    assert len(list(memory_growth(memory_of(trace, make_loop([10.0] * 12))))) == found


def test_a_device_that_holds_more_than_it_has_is_not_filled_by_a_number() -> None:
    """Managed memory may be more than that of the device."""
    rows = allocate(*((10 * i + 5.0, 1000 + i, 512) for i in range(13)), base=2 * GB)
    trace = with_device(with_rows(make_trace(), memory_events=rows), GB)
    assert list(memory_growth(memory_of(trace, make_loop([10.0] * 12)))) == []


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_iterations_show_no_growth(count: int) -> None:
    rows = [(10 * i + 5.0, 1000 + i, 4 * MIB) for i in range(13)]
    trace = with_rows(make_trace(), memory_events=allocate(*rows, base=GB))
    assert list(memory_growth(memory_of(trace, make_loop([10.0] * count)))) == []
    assert list(memory_growth(memory_of(trace))) == []


def test_what_was_kept_before_an_interruption_may_have_been_released_in_it() -> None:
    rows = [(10 * i + 5.0, 1000 + i, 4 * MIB) for i in range(13)]
    trace = with_rows(make_trace(), memory_events=allocate(*rows, base=GB))
    late = replace(trace, breaks_ns=(80 * MS,))
    assert list_growth(memory_of(trace, make_loop([10.0] * 12)))["is_steady"].to_list() == [True]
    assert list_growth(memory_of(late, make_loop([10.0] * 12)))["is_steady"].to_list() == [False]


def test_a_peak_near_the_size_of_the_device() -> None:
    rows = allocate((1, 1, 85 * GB // 10), (2, 2, GB), (3, 2, -GB), held=96 * GB // 10)
    trace = with_rows(make_trace(), memory_events=rows)
    (found,) = near_limit(memory_of(with_device(trace, 10 * GB)))
    assert (found.rule, found.severity, found.rank, found.device, found.stream) == ("near-limit", "info", 0, 0, None)
    assert found.evidence["peak_nbytes"] == 9_500_000_000
    assert found.evidence["headroom_nbytes"] == 500_000_000
    assert list(near_limit(memory_of(with_device(trace, 11 * GB)))) == []
    (beyond,) = near_limit(memory_of(with_device(trace, 5 * GB)))
    assert beyond.title == "More is in use at the peak than the device's memory holds"
    assert beyond.evidence["headroom_nbytes"] == 0
    assert list(near_limit(memory_of(trace))) == []


def segments(*held: tuple[float, int, int]) -> pl.DataFrame:
    rows: list[Row] = [
        {"time_ns": round(time * MS), "device": 0, "address": address, "nbytes": nbytes, "stream": 0}
        for time, address, nbytes in held
    ]
    return table(rows, SEGMENTS)


def split_trace(*, spread: bool) -> Trace:
    """Return a trace whose allocator contains ten segments of 10 MiB, each half in use, or half of them whole."""
    places = [10 * MIB * (i + 1) for i in range(10)]
    used = [(places[i], 5 * MIB) for i in range(10)] if spread else [(places[i], 10 * MIB) for i in range(5)]
    events = allocate(*((1.0 + i, *block) for i, block in enumerate(used)), held=100 * MIB)
    return with_rows(make_trace(), memory_events=events, segments=segments(*((0.0, at, 10 * MIB) for at in places)))


def test_memory_in_pieces_and_memory_that_is_cached() -> None:
    (found,) = fragmentation(memory_of(split_trace(spread=True)))
    assert (found.evidence["split_nbytes"], found.evidence["largest_free_nbytes"]) == (50 * MIB, 5 * MIB)
    assert found.evidence["reserved_nbytes"] == 2 * int(str(found.evidence["allocated_nbytes"])) == 100 * MIB
    assert list(fragmentation(memory_of(split_trace(spread=False)))) == []


def test_one_long_free_stretch_is_no_pieces() -> None:
    events = allocate((1.0, 10 * MIB, 20 * MIB), held=100 * MIB)
    trace = with_rows(make_trace(), memory_events=events, segments=segments((0.0, 10 * MIB, 100 * MIB)))
    assert list(fragmentation(memory_of(trace))) == []


def test_gaps_say_nothing_where_blocks_are_from_before_the_recording() -> None:
    trace = split_trace(spread=True)
    more = trace.memory_events.with_columns(pl.col("allocated_nbytes") + 20 * MIB)
    assert list(fragmentation(memory_of(replace(trace, memory_events=more)))) == []


def test_more_memory_taken_although_as_much_was_free() -> None:
    loop = make_loop([10.0] * 12)
    base = allocate((5, 1, 60 * MIB), (15, 1, -40 * MIB), (25, 2, 30 * MIB), held=60 * MIB)
    grown = base.with_columns(reserved_nbytes=pl.Series([60, 60, 90], dtype=pl.UInt64) * MIB)
    (found,) = fragmentation(memory_of(with_rows(make_trace(), memory_events=grown), loop))
    assert found.evidence["refused_nbytes"] == 30 * MIB
    needed = allocate((5, 1, 60 * MIB), (15, 1, -20 * MIB), (25, 2, 30 * MIB), held=60 * MIB)
    needed = needed.with_columns(reserved_nbytes=grown["reserved_nbytes"])
    assert list(fragmentation(memory_of(with_rows(make_trace(), memory_events=needed), loop))) == []


def test_what_came_between_two_looks_was_refused_by_nobody() -> None:
    """Totals alone do not show how large the requests were for which the allocator used more."""
    loop = make_loop([10.0] * 8)
    totals = {"time_ns": 0, "process": 1, "device": 0}
    looks = table(
        [
            totals | {"time_ns": int(at * MS), "allocated_nbytes": 90 * MIB + at, "reserved_nbytes": held * MIB}
            for at, held in ((1, 130), (41, 130), (42, 160), (60, 160))
        ],
        MEMORY_EVENTS,
    )
    memory = memory_of(with_rows(make_trace(), memory_events=looks), loop)
    assert memory.has_only_totals
    assert list(fragmentation(memory)) == []
    sized = memory_of(with_rows(make_trace(), memory_events=looks.with_columns(nbytes=pl.lit(1, pl.Int64))), loop)
    assert len(list(fragmentation(sized))) == 1


def test_pieces_do_not_matter_while_the_device_has_room() -> None:
    """PyTorch uses 20 MiB for a request of one: a small job contains a few pieces, and nothing is short of memory."""
    trace = split_trace(spread=True)
    assert list(fragmentation(memory_of(with_device(trace, 210 * MIB)))) == []
    assert len(list(fragmentation(memory_of(with_device(trace, 190 * MIB))))) == 1


def test_the_summary_tells_what_was_found() -> None:
    """Where little is between blocks in use at the peak, what the allocator took in vain is told."""
    loop = make_loop([10.0] * 12)
    first, second = 100 * MIB, 200 * MIB
    base = [(5, first, 60), (15, first, -60), (16, first, 20), (25, second, 30), (26, first + 20 * MIB, 40)]
    rows = allocate(*((time, place, size * MIB) for time, place, size in base))
    rows = rows.with_columns(reserved_nbytes=pl.Series([60, 60, 60, 90, 90], dtype=pl.UInt64) * MIB)
    held = segments((0.0, first, 60 * MIB), (25.0, second, 30 * MIB))
    (found,) = fragmentation(memory_of(with_rows(make_trace(), memory_events=rows, segments=held), loop))
    assert (found.evidence["split_nbytes"], found.evidence["refused_nbytes"]) == (0, 30 * MIB)
    assert "took 31.5 MB more although as much was free" in found.summary


def failed_trace(asked: int, left: int) -> Trace:
    """Return a trace in which an allocation fails while the driver has `left`, and 50 MiB are kept and not in use."""
    frames = "torch/nn/functional.py(9): linear;model.py(7): forward;train.py(3): main"
    row: Row = {"time_ns": 90 * MS, "device": 0, "nbytes": asked, "free_nbytes": left, "stack_id": 4}
    trace = with_rows(split_trace(spread=False), failed_allocations=table([row], FAILED_ALLOCATIONS))
    return replace(trace, stacks=table([{"stack_id": 4, "frames": frames}], STACKS))


def test_a_failed_allocation_that_would_have_fit_in_all() -> None:
    (found,) = fragmentation(memory_of(failed_trace(60 * MIB, 12 * MIB)))
    assert found.location == {"function": "forward", "file": "model.py", "line": 7}
    assert "failed although 65.0 MB were free in all" in found.summary
    assert list(fragmentation(memory_of(failed_trace(80 * MIB, 12 * MIB)))) == []
    assert list(fragmentation(memory_of(failed_trace(60 * MIB, 70 * MIB)))) == []  # a limit of the process


def test_an_allocation_that_failed_is_a_finding() -> None:
    (found,) = out_of_memory(memory_of(failed_trace(80 * MIB, 12 * MIB)))
    assert (found.rule, found.severity, found.confidence) == ("out-of-memory", "critical", 1.0)
    assert found.title == "An allocation of device memory failed"
    assert found.summary == (
        "An allocation of 83.9 MB failed while 65.0 MB were free in all. 52.4 MB were in use. "
        "Nothing was allocated after it."
    )
    assert found.location == {"function": "forward", "file": "model.py", "line": 7}
    assert found.advice.startswith("forward model.py:7 requested it: request less there. Where more has to fit: ")
    assert found.evidence == {
        "failures": 1,
        "asked_nbytes": 80 * MIB,
        "free_nbytes": 12 * MIB,
        "free_in_all_nbytes": 62 * MIB,
        "allocated_nbytes": 50 * MIB,
        "reserved_nbytes": 100 * MIB,
        "fragmented": "no",
        "went_on": "no",
    }


def test_why_an_allocation_failed_decides_the_advice() -> None:
    (fragmented,) = out_of_memory(memory_of(failed_trace(60 * MIB, 12 * MIB)))
    assert "failed although 65.0 MB were free in all: the pieces were too short" in fragmented.summary
    assert "give tensors the same sizes" in fragmented.advice
    (barred,) = out_of_memory(memory_of(failed_trace(60 * MIB, 70 * MIB)))
    assert "enough of it in one piece: it may be of another stream or pool" in barred.summary
    bare = failed_trace(80 * MIB, 12 * MIB)
    unknown = bare.failed_allocations.with_columns(
        free_nbytes=pl.lit(None, pl.UInt64), stack_id=pl.lit(None, pl.UInt32)
    )
    alone = with_rows(bare, failed_allocations=unknown, memory_events=bare.memory_events.clear())
    (silent,) = out_of_memory(memory_of(with_rows(alone, segments=alone.segments.clear())))
    assert "failed; what was free is not recorded." in silent.summary
    assert silent.location is None
    assert silent.advice.startswith("Where more has to fit: ")


def test_a_program_that_went_on_is_warned() -> None:
    trace = failed_trace(80 * MIB, 12 * MIB)
    twice = pl.concat([trace.failed_allocations] * 2)
    later = allocate((95, 1 << 30, MIB))
    more = with_rows(trace, failed_allocations=twice, memory_events=pl.concat([trace.memory_events, later]))
    (found,) = out_of_memory(memory_of(more))
    assert found.severity == "warning"
    assert found.title == "Allocations of device memory failed"
    assert found.summary.startswith("2 allocations failed, the last one of 83.9 MB while ")
    assert found.summary.endswith("The program went on.")
    other = later.with_columns(device=pl.lit(1, pl.Int32))
    elsewhere = with_rows(trace, memory_events=pl.concat([trace.memory_events, other]))
    (found,) = out_of_memory(memory_of(elsewhere))
    assert found.severity == "critical"


def test_a_device_that_is_nearly_full_has_not_failed() -> None:
    trace = split_trace(spread=False)
    assert list(out_of_memory(memory_of(with_device(trace, 51 * MIB)))) == []
    assert list(out_of_memory(memory_of(make_trace()))) == []
    failed = failed_trace(80 * MIB, 12 * MIB)
    elsewhere = failed.failed_allocations.with_columns(device=pl.lit(1, pl.Int32))
    assert list(out_of_memory(memory_of(with_rows(failed, failed_allocations=elsewhere)))) == []


def churning(length: float, *, calls: bool, every: int = 1, busy: float = 99_990) -> tuple[Loop, Trace]:
    """Return iterations that call the driver for `length` µs while the device computes."""
    host = [Did("cudaMalloc", 20_000, 20_000 + length / 2, every=every), Did("cudaFree", 40_000, 40_000 + length / 2)]
    return Job(100_000, [compute(busy)], host if calls else [Did("cudaEventQuery", 20_000, 20_500)]).build()


def test_calls_for_memory_behind_other_work() -> None:
    loop, trace = churning(4_000, calls=True)
    (found,) = allocator_churn(memory_of(trace, loop))
    assert found.severity == "info"
    assert found.evidence["calls_per_iteration"] == 2
    assert found.evidence["host_ns_per_iteration"] == 4 * MS
    loop, trace = churning(4_000, calls=False)
    assert list(allocator_churn(memory_of(trace, loop))) == []
    loop, trace = churning(600, calls=True)
    assert list(allocator_churn(memory_of(trace, loop))) == []


def test_calls_of_the_driver_within_the_runtimes_count_once() -> None:
    """And memory of the host that is pinned is not called the device's."""
    host = [
        Did("cudaHostAlloc", 20_000, 24_000),
        Did("cuMemHostAlloc", 20_100, 23_900),
        Did("cudaFree", 24_000, 25_000),
    ]
    loop, trace = Job(100_000, [compute(99_990)], [host[0], host[2]]).build()
    (once,) = allocator_churn(memory_of(trace, loop))
    loop, trace = Job(100_000, [compute(99_990)], host).build()
    (found,) = allocator_churn(memory_of(trace, loop))
    assert found.evidence == once.evidence
    assert (found.evidence["calls_per_iteration"], found.evidence["host_ns_per_iteration"]) == (2, 5 * MS)
    assert "device memory" not in found.summary


def test_the_line_that_calls_for_memory() -> None:
    host = [
        Did("model/train.py(7): grow", 19_000, 26_000, "python"),
        Did("aten::empty", 19_500, 25_500, "op"),
        Did("cudaMalloc", 20_000, 22_000),
        Did("cudaFree", 23_000, 25_000),
    ]
    loop, trace = Job(100_000, [compute(99_990)], host, iterations=9).build()
    known = annotate(trace, [loop], build_tree(trace))
    (memory,) = list_memory(known, [loop])
    (churn,) = allocator_churn(memory)
    assert churn.location == {"function": "grow", "file": "model/train.py", "line": 7, "operator": "aten::empty"}


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_calls_in_few_iterations_may_fill_a_cache(iterations: int) -> None:
    host = [Did("cudaMalloc", 20_000, 24_000)]
    loop, trace = Job(100_000, [compute(99_990)], host, iterations=iterations).build()
    assert list(allocator_churn(memory_of(trace, loop))) == []
    assert list(allocator_churn(memory_of(trace))) == []


def test_a_graph_that_grows_explains_its_memory() -> None:
    loop = make_loop([100.0 + 5 * i for i in range(12)], kernels=[200.0 + 10 * i for i in range(12)])
    trace = leaking([80 * MIB * (i + 1) for i in range(200)])
    (growth,), (memory,) = graph_growth(loop, trace), memory_growth(memory_of(trace, loop))
    first, second = rank([memory, growth])
    assert (first.rule, second.rule, second.caused_by) == ("graph-growth", "memory-growth", "graph-growth")


def test_calls_for_which_the_device_waits_are_told_once() -> None:
    host = [Did("cudaMalloc", 59_000, 99_900)]
    loop, trace = Job(100_000, [compute(60_000)], host).build()
    assert list(allocator_churn(memory_of(trace, loop))) == []
    assert [each.rule for each in allocator_bound(loop, trace)] == ["allocator-bound"]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("scenario", "rules"), [("memory-growth", ["memory-growth"]), ("healthy", []), ("inference", [])]
)
def test_simulated_jobs(tmp_path: Path, scenario: str, rules: list[str], seed: int) -> None:
    path = tmp_path / "job.json"
    write(simulate(scenario, iterations=20, seed=seed), path)
    found = deepprof.analyze(deepprof.read(path)).findings
    assert [each.rule for each in found if each.rule in RULES] == rules


RULES = {"memory-growth", "near-limit", "fragmentation", "allocator-churn"}


def test_a_trace_without_memory_events_has_no_findings_on_memory() -> None:
    found: list[Finding] = diagnose_memory(memory_of(make_trace(), make_loop([10.0] * 12)))
    assert found == []


# A recording of vLLM, which takes nine tenths of the device on purpose: near its limit is true of it.
SAID = {"tl-vllm-decode-capture": {"near-limit"}}


@pytest.mark.traces
@pytest.mark.parametrize(
    "row", [each for each in rows() if each.id is None or each.id.partition("/")[0] in WITH_MEMORY]
)
def test_real_traces_have_no_other_findings_on_memory(row: dict[str, str]) -> None:
    path = path_of(row)
    found = {each.rule for each in deepprof.analyze(deepprof.read(path)).findings}
    assert found & RULES == SAID.get(path.parent.name, set())
