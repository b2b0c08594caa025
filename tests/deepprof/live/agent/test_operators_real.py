"""Real programs on a CPU, window by window: the kernels and iterations of the whole recording."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.live.agent.operators import OperatorKernels, OperatorSplit
from deepprof.live.service.session import RankSession
from deepprof.live.wire import CheckedRecords
from deepprof.metrics.cpu_fallback import stand_in
from deepprof.metrics.operators import is_stand_in
from tests.deepprof.live.service.session.feeding import Outcome
from tests.loops import agrees_live
from tests.metrics.test_operators import ADD, BACKWARD, COMPILED, cpu_trace, op
from tests.test_programs import Record, record
from tests.widening import slow_unless

__all__ = ["record"]

WINDOWS_MS = (pytest.param(3, marks=pytest.mark.slow), 100, 10_000)
SOUND = ("healthy", "fast-loader", "logging")
PROGRAM_WINDOWS = [(program, window_ms) for program in (*SOUND, "kept-graph") for window_ms in (3, 100, 10_000)]
QUICK = {("healthy", 100), ("healthy", 10_000), ("kept-graph", 100)}  # many windows, one, and a loop that grows
COLUMNS = ("start_ns", "end_ns", "kernels", "events", "operation_ns", "interval_ns", "busy_ns", "idle_ns")


def windows(trace: Trace, window_ms: int, kernels: OperatorKernels) -> Iterator[OperatorSplit]:
    """Give a trace's host rows as they would come, a window every this many milliseconds."""
    tables, names = (trace.host_events, trace.annotations), trace.names.to_list()
    first, last = (min(int(rows["start_ns"][0]) for rows in tables if rows.height), int(tables[0]["start_ns"][-1]))
    for begin in range(first, last + 1, window_ms * 1_000_000):
        end = begin + window_ms * 1_000_000
        own = [rows.filter(pl.col("start_ns").is_between(begin, end, closed="left")) for rows in tables]
        yield kernels.split(*own, names, end)
    yield kernels.finish()


def feed(trace: Trace, splits: list[OperatorSplit]) -> tuple[Outcome, int]:
    """Give windows to the daemon's session of a rank; return all that it found, and how much of it before the end."""
    session, outcome, first = RankSession(), Outcome(), 0
    session.take_names(trace.names.to_list(), 0)
    for split in splits:
        count = sum(rows.height for rows in split.tables.values())
        session.take(CheckedRecords(first, count, split.tables, (), len(trace.names), split.until_ns))
        outcome.add(session.advance())
        first += count
    live = outcome.rows.height
    session.end()
    outcome.add(session.advance())
    return outcome, live


def gather(trace: Trace, splits: list[OperatorSplit], note: str) -> Trace:
    """Return what the daemon makes of the windows once the rank has ended."""
    whole = stand_in(trace)
    assert whole is not None
    tables = {}
    for name in ("device_events", "host_events", "annotations"):
        found = [split.tables[name] for split in splits if name in split.tables]
        tables[name] = pl.concat(found) if found else getattr(whole, name).clear()
    order = ("start_ns", "end_ns", "name_id")
    assert tables["device_events"].sort(order).equals(whole.device_events.sort(order))
    made = replace(trace, **tables, operands=trace.operands.clear(), notes=(*trace.notes, note))
    assert is_stand_in(made)
    return made


def check(trace: Trace, window_ms: int, *, grows: bool = False) -> None:
    """Assert that windows give what the whole does, live too unless the iteration `grows`: that is only seen later."""
    wanted = deepprof.analyze(trace).iterations
    assert wanted.height > 0
    kernels = OperatorKernels()
    splits = list(windows(trace, window_ms, kernels))
    settled = deepprof.analyze(gather(trace, splits, kernels.note))
    assert settled.iterations.select(COLUMNS).equals(wanted.select(COLUMNS))
    outcome, live = feed(trace, splits)
    assert live <= outcome.rows.height
    if not grows:
        found = outcome.rows.filter("complete").select(COLUMNS)
        assert agrees_live(found, wanted.filter("complete").select(COLUMNS))


@pytest.mark.parametrize(("program", "window_ms"), slow_unless(QUICK.__contains__, PROGRAM_WINDOWS))
def test_a_program_has_its_iterations_at_the_end(record: Record, program: str, window_ms: int) -> None:
    check(deepprof.read(record(program).path), window_ms, grows=program == "kept-graph")


@pytest.mark.traces
@pytest.mark.parametrize("window_ms", WINDOWS_MS)
def test_a_recorded_rank_has_its_iterations_at_the_end(traces: Path, window_ms: int) -> None:
    (path,) = (traces / "hta-cpu-only").iterdir()
    check(deepprof.read(path), window_ms)


def test_a_short_loop_is_found_while_it_runs() -> None:
    """Three operators every millisecond, of 600 iterations: known long before they are over."""
    starts = [
        (name, 1000 * k + 100 * place) for k in range(600) for place, name in enumerate((ADD, BACKWARD, COMPILED))
    ]
    trace = cpu_trace([op(name, 1000 * start, 1000 * start + 90_000) for name, start in starts])
    splits = list(windows(trace, 50, OperatorKernels()))
    outcome, live = feed(trace, splits)
    assert live > 570  # the session looks 20 ms behind what is promised
    assert outcome.rows["kernels"].unique().to_list() == [3]
    assert outcome.rows.height == 600
