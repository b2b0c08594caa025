"""The writer next to a device clock that fails, and with promises that no one reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deepprof.collectors.live.identity import CollectorIdentity
from deepprof.collectors.live.packets import EVENT, NO_TIME, Kind, Reason
from deepprof.collectors.live.writer import RecordBatch, Writer, read_clocks
from tests.collectors.live.listener import Listener
from tests.collectors.live.reader import await_truth


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    started = Listener(tmp_path / "a.sock").start()
    yield started
    started.stop()


def events(count: int, begin: int = 0) -> np.ndarray:
    rows = np.zeros(count, EVENT)
    rows["start_ns"] = rows["end_ns"] = np.arange(begin, begin + count)
    return rows


def test_a_device_clock_that_fails_ends_nothing(listener: Listener) -> None:
    """Not one that never worked, and not one that stops: what it was ahead is then taken as it was."""
    ahead_ns, works = 10**15, [False]

    def read_device() -> int:
        if not works[0]:
            raise OSError("the driver is gone")
        return time.monotonic_ns() + ahead_ns

    made = Writer(CollectorIdentity("test"), listener.path, device_clock=read_device)
    assert made.start()
    for count, works[0] in ((1, False), (2, True), (3, False)):
        begin = time.monotonic_ns() + ahead_ns
        assert made.put(RecordBatch(events(20_000, begin), events_until_ns=begin + 20_000))
        listener.wait(lambda at, count=count: at.connections and len(at.last.events) == 20_000 * count)
        before = int(listener.last.ticks[-1]["events_until_ns"])
    assert before <= begin + 20_000
    made.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.ticks[-1]["events_until_ns"] == begin + 20_000
    assert heard.ticks[-1]["device_ns"] == NO_TIME


def test_a_reading_that_failed_is_not_the_best_for_being_quick() -> None:
    readings = iter([OSError(), 7, OSError()])

    def read_device() -> int:
        found = next(readings)
        if isinstance(found, OSError):
            raise found
        time.sleep(0.001)  # slower than to fail
        return int(found)

    assert read_clocks(read_device)[0] == 7


def test_promises_to_a_reader_that_stops_take_no_memory(listener: Listener) -> None:
    made = Writer(CollectorIdentity("test"), listener.path)
    assert made.start()
    listener.wait(lambda at: at.connections and at.last.ticks)
    listener.reading.clear()
    made.put(RecordBatch(events(200_000)))
    await_truth(lambda: made.connection and made.connection.pieces and not made.queue, "a full socket")
    made.put(RecordBatch(events(10, 200_000), events_until_ns=1))
    for until_ns in range(2, 1000):
        assert made.put(RecordBatch(events_until_ns=until_ns, lost=until_ns == 500, reason=Reason.DRIVER_DROPPED))
    assert len(made.queue) == 1
    made.put(RecordBatch(events(10, 200_010)))
    listener.reading.set()
    made.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.ticks[-1]["events_until_ns"] == 999
    assert heard.heads[-2:] == [(Kind.EVENTS, 200_011, 10, Reason.DRIVER_DROPPED), (Kind.END, 200_021, 0, Reason.NONE)]
