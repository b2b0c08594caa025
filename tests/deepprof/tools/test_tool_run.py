"""Tools get each record once, however it is cut; whatever they raise is one error that names them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import MEMORY_EVENTS, RECORD_TABLES, Accounting
from deepprof.metrics.iteration import ITERATIONS
from deepprof.simulation import simulate, write
from deepprof.tools import Tool, ToolError, ToolRun, run
from deepprof.tools.hooks import RECORD_HOOKS
from tests.tables import copy, event, launch, make_trace, span, table

BATCH_HOOKS = [hook.batches for hook in RECORD_HOOKS]
MEMORY = table([{"time_ns": 5, "device": 0, "nbytes": 64}, {"time_ns": 9, "device": 0, "nbytes": -64}], MEMORY_EVENTS)


class Everything(Tool):
    """Keep every frame of every hook."""

    def begin(self) -> None:
        self.frames: dict[str, list[pl.DataFrame]] = {hook: [] for hook in BATCH_HOOKS}

    def on_kernels(self, frame: pl.DataFrame) -> None:
        self.frames["on_kernels"].append(frame)

    def on_copies(self, frame: pl.DataFrame) -> None:
        self.frames["on_copies"].append(frame)

    def on_synchronisations(self, frame: pl.DataFrame) -> None:
        self.frames["on_synchronisations"].append(frame)

    def on_memory(self, frame: pl.DataFrame) -> None:
        self.frames["on_memory"].append(frame)

    def on_operators(self, frame: pl.DataFrame) -> None:
        self.frames["on_operators"].append(frame)

    def on_calls(self, frame: pl.DataFrame) -> None:
        self.frames["on_calls"].append(frame)

    def on_ranges(self, frame: pl.DataFrame) -> None:
        self.frames["on_ranges"].append(frame)

    def report(self) -> dict[str, pl.DataFrame]:
        return {hook: pl.concat(frames) for hook, frames in self.frames.items() if frames}


class EachKernel(Tool):
    """Keep the rows of kernels, copies and memory one by one."""

    def begin(self) -> None:
        self.rows: list[tuple[str, int, str | None]] = []

    def on_kernel(self, event) -> None:
        self.rows.append(("kernel", event.end_ns - event.start_ns, event.name))

    def on_copy(self, event) -> None:
        self.rows.append(("copy", event.nbytes, event.copy_kind))

    def on_memory_event(self, event) -> None:
        self.rows.append(("memory", event.nbytes, event.name))

    def on_operator(self, event) -> None:
        self.rows.append(("operator", event.rank, event.name))

    def report(self) -> dict[str, int]:
        return {"rows": len(self.rows)}


@pytest.fixture
def trace() -> deepprof.Trace:
    """One record or more for every hook, and three for none: a Python function, an overhead and a copy of memory."""
    operator = launch(0, 1, 4, 2) | {"category": "op"}
    made = make_trace(
        [
            *(event(0, 0, 5), event(1, 6, 8), event(0, 9, 12, activity="graph"), copy(12, 13, 5)),
            *(event(0, 14, 15, activity="memset"), event(1, 16, 20, activity="sync")),
        ],
        [launch(1, 0, 2, 3), operator, launch(0, 5, 6, 2) | {"category": "python"}],
        [span(2, 0, 9)],
        names=["gemm", "relu", "aten::mm", "cudaLaunchKernel"],
        rank=3,
    )
    kept = made.accounting.kept + MEMORY.height
    return replace(made, memory_events=MEMORY, accounting=Accounting(kept, kept))


def test_every_hook_gets_its_records_with_rank_and_name(trace) -> None:
    found = run(Everything(), trace)
    assert {hook: frame["name"].to_list() for hook, frame in found.items()} == {
        "on_kernels": ["gemm", "relu", "gemm"],
        "on_copies": ["gemm", "gemm"],
        "on_synchronisations": ["relu"],
        "on_memory": [None, None],
        "on_operators": ["aten::mm"],
        "on_calls": ["cudaLaunchKernel"],
        "on_ranges": ["aten::mm"],
    }
    for hook in RECORD_HOOKS:
        frame, columns = found[hook.batches], getattr(trace, hook.table)
        assert frame.schema == pl.Schema({**columns.schema, "rank": pl.Int64, "name": pl.String})
        assert set(frame["rank"]) == {3}
        first = frame.columns[0]
        assert frame.drop("rank", "name").rows() == columns.filter(pl.col(first).is_in(frame[first].implode())).rows()


def test_methods_for_single_events_get_the_same(trace) -> None:
    tool = EachKernel()
    assert run(tool, trace) == {"rows": 8}
    assert tool.rows == [
        ("kernel", 5, "gemm"),
        ("kernel", 2, "relu"),
        ("kernel", 3, "gemm"),
        ("copy", 5, "HtoD"),
        ("copy", None, None),
        ("memory", 64, None),
        ("memory", -64, None),
        ("operator", 3, "aten::mm"),
    ]


def test_only_overridden_hooks_are_called(trace, monkeypatch) -> None:
    class Copies(Tool):
        def begin(self) -> None:
            self.calls = 0

        def on_copies(self, frame) -> None:
            self.calls += 1

        def report(self):
            return {"calls": self.calls}

    for hook in {*BATCH_HOOKS, "on_iterations"} - {"on_copies"}:
        monkeypatch.setattr(Tool, hook, lambda *_: pytest.fail("called"))
    monkeypatch.setattr("deepprof.analysis.analyze", lambda *_, **__: pytest.fail("analysed"))
    going = ToolRun(Copies())
    going.feed(trace)
    assert going.conclude(pytest.fail) == {"calls": 1}


events = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.sampled_from(["kernel", "memcpy", "sync"])))


@given(st.lists(events, min_size=1, max_size=3), st.integers(1, 9))
def test_any_batching_gives_what_one_batch_gives(ranks, rows) -> None:
    traces = [
        make_trace([event(name, start, start + 1, activity=kind) for name, start, kind in of], rank=rank)
        for rank, of in enumerate(ranks)
    ]
    reports = []
    for size in (rows, 1 << 17):
        tool = Everything()
        going = ToolRun(tool, size)
        for trace in traces:
            going.feed(trace)
        assert all(0 < frame.height <= size for frames in tool.frames.values() for frame in frames)
        reports.append(going.conclude(pytest.fail))
    few, one = reports
    assert few.keys() == one.keys()
    assert all(few[hook].equals(one[hook]) for hook in one)
    kernels = [(rank, start) for rank, of in enumerate(ranks) for _, start, kind in of if kind == "kernel"]
    seen = one["on_kernels"].select("rank", "start_ns").rows() if kernels else []
    assert seen == sorted(kernels)


@pytest.mark.parametrize("rows", [[], [event(0, 3, 4)]])
def test_empty_traces_and_single_events(rows) -> None:
    assert run(Everything(), make_trace(rows)).keys() == ({"on_kernels"} if rows else set())
    assert run(EachKernel(), [make_trace(rows), make_trace(rows)]) == {"rows": 2 * len(rows)}


def test_begin_prepares_a_tool_for_another_run(trace) -> None:
    tool = EachKernel()
    assert run(tool, trace) == run(tool, trace)


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> deepprof.Trace:
    path = tmp_path_factory.mktemp("job") / "job.json.gz"
    write(simulate("graph-growth", iterations=12), path)
    return deepprof.read(path)


class Iterations(Tool):
    """Count iterations, one by one, and keep the analysis."""

    def begin(self) -> None:
        self.indices: list[int] = []

    def on_iteration(self, event) -> None:
        assert event._fields == ("rank", "device", "stream", "loop", *ITERATIONS)
        self.indices.append(event.index)

    def on_analysis(self, analysis) -> None:
        self.analysis = analysis

    def report(self):
        return {"iterations": len(self.indices), "mean_ns": np.float64(2.5), "loops": len(self.analysis.loops)}


def test_iterations_and_the_analysis_come_last(job) -> None:
    tool = Iterations()
    report = run(tool, job)
    assert report == {"iterations": tool.analysis.iterations.height, "mean_ns": 2.5, "loops": 1}
    assert type(report["mean_ns"]) is float
    assert tool.indices == tool.analysis.iterations["index"].to_list()
    assert len(tool.indices) >= 12


def test_counts_and_stream_are_those_of_the_analysis(job) -> None:
    assert run(Iterations(), job, counts=[12], stream=(0, 7))["iterations"] >= 12
    with pytest.raises(deepprof.UsageError):
        run(Iterations(), job, counts=[1])


def broken(**methods) -> Tool:
    """Return a tool with these methods."""
    return type("BadTool", (Tool,), {"report": lambda _: {}, **methods})()


def raises(error):
    def method(*_):
        raise error

    return method


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"begin": raises(ValueError("two\nlines"))}, "tool bad-tool: begin raised ValueError: two lines"),
        ({"on_kernels": raises(KeyError("x"))}, "tool bad-tool: on_kernels raised KeyError: 'x'"),
        ({"on_kernel": raises(SystemExit(3))}, "tool bad-tool: on_kernels raised SystemExit: 3"),
        ({"on_analysis": raises(MemoryError())}, "tool bad-tool: on_analysis raised MemoryError: "),
        ({"report": raises(ZeroDivisionError("\x1b[1m"))}, "tool bad-tool: report raised ZeroDivisionError: \\x1b[1m"),
        ({"report": lambda _: 3}, "tool bad-tool: report returned int, not values by name"),
        ({"report": lambda _: {"a": [1]}}, "tool bad-tool: 'a' of its report is list, not a table, a number or a text"),
        ({"report": lambda _: {3: 1}}, "tool bad-tool: 3 of its report is int, not a table, a number or a text"),
        ({"report": Tool.report}, "tool bad-tool: report raised NotImplementedError: "),
    ],
)
def test_what_a_tool_raises_is_one_error_that_names_it(trace, methods, said) -> None:
    with pytest.raises(ToolError) as raised:
        run(broken(**methods), trace)
    assert str(raised.value) == said


def test_ctrl_c_is_no_error_of_the_tool(trace) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(broken(on_kernels=raises(KeyboardInterrupt())), trace)


def test_names_are_those_of_classes_or_their_own() -> None:
    class HTTPCount2Tables(Tool):
        pass

    class Other(Tool):
        name = "mine"

    class Below(Other):
        pass

    assert [kind.name for kind in (HTTPCount2Tables, Other, Below)] == ["http-count2-tables", "mine", "below"]


def test_every_table_of_records_that_running_jobs_send_has_a_hook() -> None:
    tables = {hook.table for hook in RECORD_HOOKS}
    assert tables == {"device_events", "host_events", "annotations", "memory_events"}
    assert tables <= set(RECORD_TABLES)
