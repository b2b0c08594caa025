"""Recordings with breaks, as schedules of a profiler make them: no iteration, interval or finding reaches over one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.clocks import shift
from deepprof.collectors.store.rank import open_rank, write_rank
from deepprof.collectors.time_range import POINTS, account_part
from deepprof.collectors.trace import Trace
from deepprof.live.service.session import RankSession
from deepprof.live.wire import WireLimits, check_batch, make_end, make_hello
from deepprof.live.wire.assembly import TraceAssembly
from deepprof.live.wire.cutting import cut_with_gaps
from deepprof.simulation import Simulation, simulate, write
from deepprof.v1.records_pb2 import Gap
from tests.deepprof.live.service.session.feeding import Outcome

WAIT, ACTIVE, CYCLES = 5, 20, 3
ITERATIONS = CYCLES * (WAIT + ACTIVE)


@pytest.fixture(scope="module", params=[True, False], ids=["marked", "unmarked"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Simulation, Trace]:
    made = simulate("healthy", iterations=ITERATIONS + 2, seed=11, annotate=request.param)
    path = tmp_path_factory.mktemp("job") / "job.json.gz"
    write(made, path)
    return made, deepprof.read(path)


def windows(made: Simulation, trace: Trace, late: int = 0) -> list[tuple[int, int]]:
    """When the profiler is on: from the launch of an iteration's first kernel, or `late` kernels on, to another's."""
    calls = trace.host_events.filter(pl.col("category") == "runtime").select("correlation", launch_ns="start_ns")
    main = trace.device_events.filter((pl.col("stream") == made.stream) & (pl.col("activity") == "kernel"))
    launch_ns = main.join(calls, on="correlation", how="left", maintain_order="left")["launch_ns"]
    begins = [WAIT + i * (WAIT + ACTIVE) for i in range(CYCLES)]
    first = made.first_kernels
    return [(launch_ns[first[b] + late], launch_ns[first[b + ACTIVE]]) for b in begins]


def within(column: str, spans: list[tuple[int, int]]) -> pl.Expr:
    return pl.any_horizontal((pl.col(column) >= begin) & (pl.col(column) < end) for begin, end in spans)


def recorded(trace: Trace, spans: list[tuple[int, int]]) -> Trace:
    """The trace as a profiler that is on during `spans` gives it: what the host did in them, and what it launched."""
    host = trace.host_events.filter(within("start_ns", spans))
    rows = {
        "host_events": host,
        "device_events": trace.device_events.filter(pl.col("correlation").is_in(host["correlation"].implode())),
        "annotations": trace.annotations.filter(within("start_ns", spans)),
        **{table: getattr(trace, table).filter(within("time_ns", spans)) for table in POINTS},
    }
    empty = {table: getattr(trace, table).clear() for table in ("collectives", "operands", "launch_shapes")}
    breaks = tuple(begin for begin, _ in spans[1:])
    return replace(trace, accounting=account_part(trace.accounting, rows), breaks_ns=breaks, **rows, **empty)


def live(trace: Trace) -> pl.DataFrame:
    """What the daemon finds while the records come."""
    session, outcome, names = RankSession(), Outcome(), 0
    for message in cut_with_gaps(trace, records=500):
        if isinstance(message, Gap):
            session.gap(None)
            continue
        batch = check_batch(message, WireLimits(), names)
        names = max(names, batch.first_name + len(batch.names))
        session.take(batch)
        outcome.add(session.advance())
    session.end()
    outcome.add(session.advance())
    return outcome.rows


def settled(trace: Trace) -> Trace:
    """What the daemon makes of the messages when the rank has ended."""
    assembly = TraceAssembly(make_hello(trace, "job", collector="test"))
    for message in cut_with_gaps(trace, records=500):
        if isinstance(message, Gap):
            assembly.add_gap(message)
        else:
            assembly.add_batch(message)
    assembly.add_end(make_end(trace))
    return assembly.trace()


def over(rows: pl.DataFrame, breaks: tuple[int, ...]) -> Iterator[int]:
    """Where iterations reach over a break, measured to where the next one starts."""
    until = rows["start_ns"] + rows["busy_ns"] + rows["idle_ns"]
    for time in breaks:
        yield int(((rows["start_ns"] < time) & (until > time)).sum())


@pytest.mark.parametrize("late", [0, 30])
def test_no_iteration_reaches_over_a_break(job: tuple[Simulation, Trace], late: int) -> None:
    made, whole = job
    trace = recorded(whole, windows(made, whole, late))
    analysis = deepprof.analyze(trace)
    rows = analysis.iterations
    assert list(over(rows, trace.breaks_ns)) == [0, 0]
    complete = rows.filter("complete")
    assert complete.height == CYCLES * (ACTIVE - (late > 0))
    assert complete["iteration_ns"].max() < 2 * complete["iteration_ns"].median()  # type: ignore[operator]
    assert not [f for f in analysis.findings if f.rule == "slow-iterations"]


def test_the_report_of_all_records_is_that_of_the_file(job: tuple[Simulation, Trace]) -> None:
    made, whole = job
    trace = recorded(whole, windows(made, whole))
    again = settled(trace)
    assert again.device_events.equals(trace.device_events)
    file, daemon = deepprof.analyze(trace), deepprof.analyze(again)
    assert daemon.iterations.equals(file.iterations)
    assert [f.rule for f in daemon.findings] == [f.rule for f in file.findings]


def test_the_stream_gives_as_many_as_the_file(job: tuple[Simulation, Trace]) -> None:
    made, whole = job
    trace = recorded(whole, windows(made, whole))
    found, file = live(trace), deepprof.analyze(trace).iterations
    assert list(over(found, trace.breaks_ns)) == [0, 0]
    assert found.filter("complete")["start_ns"].to_list() == file.filter("complete")["start_ns"].to_list()


def test_a_store_keeps_breaks(job: tuple[Simulation, Trace], tmp_path: Path) -> None:
    made, whole = job
    trace = recorded(whole, windows(made, whole))
    write_rank(trace, tmp_path / "rank=0")
    assert open_rank(tmp_path / "rank=0").read().breaks_ns == trace.breaks_ns


def test_breaks_move_with_the_clock(job: tuple[Simulation, Trace]) -> None:
    made, whole = job
    trace = recorded(whole, windows(made, whole))
    assert shift(trace, -5).breaks_ns == tuple(time - 5 for time in trace.breaks_ns)
