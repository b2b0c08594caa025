"""A rank that has ended shows the iterations of the analysis of all its records, not those that were found live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import deepprof
from deepprof.live.service.daemon_rank import DaemonRank
from deepprof.live.service.examination import FoundLoop
from deepprof.live.service.session import RankSession
from deepprof.live.service.views import DeviceView
from tests.deepprof.live.service.inside import Inside, inside
from tests.deepprof.live.service.sending import iterations_of
from tests.deepprof.live.service.session.feeding import batches_of, feed
from tests.deepprof.live.service.traces import gpu_only_trace

ITERATIONS, KERNELS = 30, 100


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=ITERATIONS, kernels=KERNELS)


def loops(*numbers: int) -> list[FoundLoop]:
    return [FoundLoop(0, number, KERNELS + number, 0.5, f"loop {number}", "mined") for number in numbers]


def rows_of(trace: deepprof.Trace) -> pl.DataFrame:
    return iterations_of(trace).drop("rank")


def shown(session: RankSession) -> DeviceView:
    [device] = session.devices
    return device


def test_what_is_settled_takes_the_place_of_what_was_live(trace: deepprof.Trace) -> None:
    session = RankSession()
    feed(session, batches_of(trace, 1000))
    live, rows = shown(session), rows_of(trace)
    assert live.iterations == ITERATIONS
    session.settle(rows, loops(0))
    assert shown(session).evidence == shown(session).loops[0].evidence
    assert shown(session).evidence == "loop 0"
    of_loop = {"loops", *shown(session).loops[0].shown()}
    same = {each.name: getattr(live, each.name) for each in fields(DeviceView) if each.name not in of_loop}
    assert {name: getattr(shown(session), name) for name in same} == same  # the same iterations, the same figures


def test_of_other_iterations_other_figures(trace: deepprof.Trace) -> None:
    session = RankSession()
    feed(session, batches_of(trace, 1000))
    fewer = rows_of(trace).head(7).with_columns(complete=pl.Series([False, *[True] * 6]))
    session.settle(fewer, loops(0))
    device = shown(session)
    assert (device.iterations, device.incomplete_total, sum(device.duration_counts)) == (7, 1, 6)
    assert device.duration_sum_ns == fewer["iteration_ns"][1:].sum()
    assert device.interval_ns_total == fewer["interval_ns"].sum()
    assert device.last_iteration_start_ns == fewer["start_ns"][-1]
    assert device.median_iteration_ns == round(float(fewer["iteration_ns"][1:].median() or 0))


def test_several_loops_in_turn(trace: deepprof.Trace) -> None:
    session = RankSession()
    feed(session, batches_of(trace, 1000))
    rows = rows_of(trace).head(6).with_columns(loop=pl.Series([3, 3, 5, 3, 5, 5], dtype=pl.Int64))
    session.settle(rows, loops(3, 5))
    device = shown(session)
    assert [(loop.number, loop.period, loop.iterations) for loop in device.loops] == [(3, 103, 3), (5, 105, 3)]
    assert (device.loop, device.evidence) == (5, device.loops[1].evidence)
    assert device.iterations == 6


def test_none_at_all(trace: deepprof.Trace) -> None:
    session = RankSession()
    feed(session, batches_of(trace, 1000))
    session.settle(rows_of(trace).clear(), [])
    device = shown(session)
    assert (device.iterations, device.loops, device.period, device.median_iteration_ns) == (0, (), 0, 0)
    assert device.events_total == trace.device_events.height


def test_it_survives_saving(trace: deepprof.Trace) -> None:
    session = RankSession()
    feed(session, batches_of(trace, 1000))
    session.settle(rows_of(trace).head(7), loops(0))
    assert RankSession.restore(session.save()).devices == session.devices


def test_the_daemon_shows_what_was_settled_also_after_a_crash(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body(daemon: Inside, rank: DaemonRank) -> None:
        await daemon.engine.order(lambda: daemon.engine.worker.settle(rank, rows_of(trace).head(7), loops(0)))
        assert [device.iterations for device in rank.view.devices] == [7]

    async def after(daemon: Inside, rank: DaemonRank) -> None:
        assert rank.settled
        assert [device.iterations for device in rank.view.devices] == [7]

    asyncio.run(first_run(tmp_path, trace, body))
    asyncio.run(next_run(tmp_path, after))


Body = Callable[[Inside, DaemonRank], Coroutine[Any, Any, None]]


async def first_run(folder: Path, trace: deepprof.Trace, body: Body) -> None:
    async with inside(folder) as daemon:
        await body(daemon, await daemon.send(trace, "settled"))


async def next_run(folder: Path, body: Body) -> None:
    async with inside(folder) as daemon:
        [rank] = daemon.engine.roster
        await body(daemon, rank)
