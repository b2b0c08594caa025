"""CUDA graphs: one record per launch, capture while collecting is off, and millions of records of their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.gpu.counting import between
from benchmarks.gpu.programs import Plan, await_level, run, start_collected
from benchmarks.gpu.reader import EventLog, Reader, TimeCheck
from benchmarks.gpu.rows import Row, Verdict, judge
from deepprof.collectors.live.packets import CollectionLevel

__all__ = ["check_launches", "check_replays", "check_windows"]

GROWTH_NBYTES = 256 << 20  # of device memory, from the second eighth of the time to the last
SETUP_KERNELS = 100  # that run next to a graph's own, at most
BUSY_RATIO = 1.05  # of the time that kernels of one stream can have run in all
EIGHTHS = 8


def check_launches(plan: Plan) -> Iterator[Row]:
    """Count the launches of a graph where its nodes are not wanted."""
    plan = replace(plan, graphs="launches")
    with Reader(plan.folder / "a.sock", make_consumer=EventLog) as reader:
        window = run(plan, ["loops", f"graph={plan.checks}"], reader=reader)["found"]["graph"]["window_ns"]
    assert isinstance(reader.main.consumer, EventLog)
    events = reader.main.consumer.events
    inside = events[(events["start_ns"] >= window[0]) & (events["start_ns"] <= window[1])]
    found = reader.main.count(inside)
    launches = sum(count for (activity, _), count in found.items() if activity == "graph")
    figure = f"{launches:,} of {plan.checks:,} launches"
    yield judge("graphs by launch", launches == plan.checks, figure, "more or fewer records than launches")


def check_windows(plan: Plan) -> Iterator[Row]:
    """Capture a graph while collecting is off, switch it on, and replay."""
    for level, before in ((CollectionLevel.OFF, "never on before"), (CollectionLevel.ON, "on before")):
        found, expected = replay_captured_off(plan, level)
        yield judge(
            f"graph captured while off, {before}",
            found == expected,
            f"{found:,} of {expected:,} kernels of its replays seen once on",
            "a kernel of a replay that is missing",
        )


def replay_captured_off(plan: Plan, level: CollectionLevel) -> tuple[int, int]:
    """Return how many kernels of replays were seen, and how many ran; collecting begins at `level`."""
    with (
        Reader(plan.folder / "a.sock", level, make_consumer=EventLog) as reader,
        start_collected(plan, ["windows", f"graph={plan.checks}"], reader) as program,
    ):
        program.reach("started")
        await_level(plan, reader, program, level)
        reader.switch(CollectionLevel.OFF)
        await_level(plan, reader, program, CollectionLevel.OFF)
        program.go()
        program.reach("captured")
        reader.switch(CollectionLevel.ON)
        session = await_level(plan, reader, program, CollectionLevel.ON)
        program.go()
        found = program.result()["found"]
    marks = found["marks"]
    kernels = between(session, marks[0][0] - 5_000_000, marks[-1][1])
    return int((kernels["activity"] == 0).sum()), found["nodes"] * plan.checks


def check_replays(plan: Plan) -> Iterator[Row]:
    """Replay a graph for millions of records, and watch their times and the device's memory."""
    arguments = ["replays", f"graph={plan.graph_records}", "--seconds", f"{plan.graph_s:g}"]
    plan = replace(plan, timeout_s=plan.graph_s + 60)
    with Reader(plan.folder / "a.sock", make_consumer=TimeCheck) as reader:
        found = run(plan, arguments, reader=reader)["found"]
    yield judge_times(plan, found, reader)
    yield judge_memory(found["samples"])


def judge_times(plan: Plan, found: dict[str, Any], reader: Reader) -> Row:
    """Return whether all kernels came, with times that can be true."""
    times, session = reader.main.consumer, reader.main
    assert isinstance(times, TimeCheck)
    busy = times.busy_ns / 1e9 / found["seconds"]
    extra = times.kernels + times.impossible - found["kernels"]
    ok = session.lost == 0 and not times.impossible and 0 <= extra <= SETUP_KERNELS and busy <= BUSY_RATIO
    reasons = ", ".join(f"{name} {count}" for name, count in session.reasons.items() if name != "NONE")
    figure = (
        f"{found['kernels'] / 1e6:.2f} M of {plan.graph_records / 1e6:g} M kernels in {found['seconds']:.0f} s: "
        f"{times.kernels:,} seen, {times.impossible:,} with an impossible time, {session.lost:,} lost"
        f"{f' ({reasons})' if reasons else ''}, busy {busy:.1%} of the time"
    )
    row = judge(
        "records of graph kernels", ok, figure, "a record missing, before the start, from the future, or negative"
    )
    is_short = found["kernels"] < plan.graph_records
    return replace(row, verdict=Verdict.MEASURED, figure=f"{figure}; time ran out") if ok and is_short else row


def judge_memory(samples: list[list[int]]) -> Row:
    """Return whether the device's memory stays as it is once the driver's buffers are there."""
    used = np.array([nbytes for _, nbytes in samples], np.int64)
    medians = [int(np.median(part)) for part in np.array_split(used, EIGHTHS) if len(part)]
    growth = medians[-1] - medians[min(1, len(medians) - 1)]
    figure = f"MiB in use by eighths: {' '.join(str(each >> 20) for each in medians)}; growth {growth / (1 << 20):.0f}"
    disproof = f"over {GROWTH_NBYTES >> 20} MiB more in the last eighth than in the second"
    return judge("device memory meanwhile", growth <= GROWTH_NBYTES and len(used) >= EIGHTHS, figure, disproof)
