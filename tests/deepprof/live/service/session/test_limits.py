"""Whatever a client sends, a session contains no more than its limits state, and counts what it gives up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
import pytest

from deepprof.collectors.trace import ANNOTATIONS, HOST_EVENTS
from deepprof.live.service.session import RankSession, SessionLimits
from deepprof.live.wire import CheckedRecords
from tests.deepprof.live.service.session.feeding import device_rows, play
from tests.deepprof.live.service.session.test_any_cutting import tables
from tests.widening import slow_unless

SMALL = SessionLimits(
    pending_records=20_000, held_events=5_000, devices=3, streams=8, launches=1_000, ranges=500, host_rows=2_000
)
BATCH = 5_000
Sender = Callable[[int], tuple[dict[str, pl.DataFrame], int, tuple[str, ...]]]


def host_only(i: int) -> tuple[dict[str, pl.DataFrame], int, tuple[str, ...]]:
    start = np.arange(BATCH) * 100 + i * BATCH * 100
    calls = tables(
        HOST_EVENTS,
        start_ns=start,
        end_ns=start + 10**12,
        category=["runtime"] * BATCH,
        name_id=[0] * BATCH,
        correlation=start,
    )
    ranges = tables(
        ANNOTATIONS,
        start_ns=start,
        end_ns=start + 10**15,
        side=["host"] * BATCH,
        name_id=[1] * BATCH,
        framework=[False] * BATCH,
    )
    return {"host_events": calls, "annotations": ranges}, int(start[-1]) + 1, ("cudaStreamSynchronize", "step")


def copies_only(i: int) -> tuple[dict[str, pl.DataFrame], int, tuple[str, ...]]:
    start = np.arange(BATCH) * 100 + i * BATCH * 100
    copies = device_rows(
        start_ns=start, end_ns=start + 10**12, activity="memcpy", copy_kind="HtoD", nbytes=2**64 - 1, name_id=0
    )
    return {"device_events": copies}, int(start[-1]) + 1, ("copy",)


def all_at_one_time(i: int) -> tuple[dict[str, pl.DataFrame], int, tuple[str, ...]]:
    return {"device_events": play(np.zeros(BATCH, np.int64), pitch=0, at=7)}, 0, ("k",)


def no_watermark(i: int) -> tuple[dict[str, pl.DataFrame], int, tuple[str, ...]]:
    return {"device_events": play(np.arange(BATCH) % 50, at=i * BATCH * 1000)}, -(2**62), tuple(map(str, range(50)))


def many_devices(i: int) -> tuple[dict[str, pl.DataFrame], int, tuple[str, ...]]:
    devices = (np.arange(BATCH) + i * BATCH) % 2**16
    rows = play(np.arange(BATCH) % 50, at=i * BATCH * 1000, device=devices, stream=devices)
    return {"device_events": rows}, (i + 1) * BATCH * 1000, tuple(map(str, range(50)))


def farthest_times(i: int) -> tuple[dict[str, pl.DataFrame], int, tuple[str, ...]]:
    far = 2**62
    start = np.sort(np.random.default_rng(i).choice([-far, 1 - far, -5, 0, 9, far - 1], BATCH))
    rows = device_rows(
        start_ns=start,
        end_ns=np.where(start > 0, far, start + 3),
        name_id=0,
        correlation=np.arange(BATCH),
        stream=start,
    )
    calls = tables(
        HOST_EVENTS,
        start_ns=start,
        end_ns=np.full(BATCH, far),
        category=["runtime"] * BATCH,
        name_id=[1] * BATCH,
        correlation=np.arange(BATCH),
    )
    return {"device_events": rows, "host_events": calls}, -far, ("k", "cudaGraphLaunch")


def long_iterations(i: int) -> tuple[dict[str, pl.DataFrame], int, tuple[str, ...]]:
    symbols = (np.arange(BATCH, dtype=np.int64) + i * BATCH) ** 2 // 77 % 3_000
    return {"device_events": play(symbols, at=i * BATCH * 1000)}, (i + 1) * BATCH * 1000, tuple(map(str, range(3000)))


SENDERS: list[Sender] = [
    host_only,
    copies_only,
    all_at_one_time,
    no_watermark,
    many_devices,
    farthest_times,
    long_iterations,
]


def batches(sender: Sender, count: int) -> Iterator[CheckedRecords]:
    for i in range(count):
        rows, until, names = sender(i)
        yield CheckedRecords(0, sum(t.height for t in rows.values()), rows, names if i == 0 else (), 0, until)


# The sender of long iterations is the one that costs seconds, and its session has no more to hold where none advances.
HELD = [(sender, advances) for advances in (True, False) for sender in SENDERS]
HELD_QUICK = [case for case in HELD if case != (long_iterations, False)]


@pytest.mark.parametrize(("sender", "advances"), slow_unless(HELD_QUICK.__contains__, HELD))
def test_what_is_held_is_bounded(sender: Sender, advances: bool) -> None:
    session, sizes = RankSession(SMALL), []
    for batch in batches(sender, 24):
        session.take(batch)
        if advances:
            session.advance()
        assert session.pending_records <= SMALL.pending_records
        sizes.append(session.nbytes)
    session.end()
    session.advance()
    assert max(sizes) <= 6 << 20
    RankSession.restore(session.save())


def test_devices_beyond_the_limit_are_dropped_and_counted() -> None:
    session = RankSession(SMALL)
    for batch in batches(many_devices, 2):
        session.take(batch)
    session.end()
    session.advance()
    assert [view.device for view in session.devices] == [0, 1, 2]
    assert dict(session.dropped) == {"device": 2 * BATCH - 3}
    assert sum(session.dropped_kinds["device"].values()) == 2 * BATCH - 3


def test_times_beyond_all_clocks_are_dropped_and_counted() -> None:
    session = RankSession(SMALL)
    start = [-(2**62), 1 - 2**62, 2**62 - 1, 2**62]
    rows = device_rows(start_ns=start, end_ns=start, name_id=0)
    session.take(CheckedRecords(0, 4, {"device_events": rows}, ("k",), 0, 0))
    assert dict(session.dropped) == {"time": 2}


def test_without_a_promise_the_older_half_is_taken_as_complete() -> None:
    session, given = RankSession(SMALL), 0
    for batch in batches(no_watermark, 24):
        session.take(batch)
        given += session.advance().iterations.height
    (view,) = session.devices
    assert view.events_total >= 24 * BATCH - SMALL.pending_records
    assert dict(session.dropped) == {}  # nothing came too late
    session.take(next(batches(no_watermark, 1)))
    assert session.dropped["late"] == BATCH


def test_an_iteration_whose_beginning_is_no_longer_held_is_incomplete() -> None:
    period = np.concatenate([np.tile(np.arange(5), 7), np.arange(5, 20)])
    symbols = np.tile(period, 60)
    place = np.arange(len(symbols))
    kernels = device_rows(
        start_ns=place * 10_000 + place // 50 * 200_000, end_ns=place * 10_000 + place // 50 * 200_000 + 9_000,
        name_id=symbols,
    )  # fmt: skip
    start = np.arange(0, int(kernels["start_ns"][-1]), 2_000)
    copies = device_rows(
        start_ns=start, end_ns=start + 100, activity="memcpy", copy_kind="DtoD", nbytes=1, name_id=20, stream=9
    )
    rows = pl.concat([kernels, copies]).sort("start_ns")
    names = tuple(map(str, range(21)))
    given, few = {}, SessionLimits(held_events=500)
    for limits in (few, SessionLimits()):
        session = RankSession(limits)
        session.take(CheckedRecords(0, rows.height, {"device_events": rows}, names, 0, 0))
        session.end()
        given[limits] = session.advance().iterations
    small, large = given[few], given[SessionLimits()]
    assert small["start_ns"].to_list() == large["start_ns"].to_list()
    assert large["complete"].all()
    assert not small["complete"].all()
    assert small.filter("complete").equals(large.filter(small["complete"]))


SOAK = """
import sys
from tests.deepprof.live.service.session import test_limits as t
from deepprof.live.service.session import RankSession
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
session = RankSession()
sender = getattr(t, sys.argv[1])
base, most = None, 0
for number, batch in enumerate(t.batches(sender, int(sys.argv[2]))):
    session.take(batch)
    session.advance()
    if number == 3:
        base = rss()
    most = max(most, rss())
print((most - base) // 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("sender", slow_unless("no_watermark".__eq__, ["no_watermark", "many_devices", "copies_only"]))
def test_a_process_stays_small(sender: str) -> None:
    done = subprocess.run([sys.executable, "-c", SOAK, sender, "300"], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 400  # MiB beyond what it began with, for 1.5 M records
