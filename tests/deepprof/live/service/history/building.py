"""Iterations and histories for the tests of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from deepprof.live.service.history import Checkpoint, History
from deepprof.live.service.journal import JournalPlace
from deepprof.live.service.views import HISTORY

HOUR = 3600 * 10**9


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 10**18

    def __call__(self) -> int:
        return self.now


def iterations(*numbers: int, device: int = 0) -> pl.DataFrame:
    """Rows that differ in `index` and are otherwise a little of everything, nulls among it."""
    rows = [
        {
            **dict.fromkeys(HISTORY, number * 1000 + 7),
            "device": device,
            "index": number,
            "complete": number % 2 == 0,
            "warmup": number == 0,
            "interval_ns": None if number % 3 == 0 else number,
            "overlap_ratio": None if number % 3 == 0 else number / 7,
        }
        for number in numbers
    ]
    return pl.DataFrame(rows, schema=HISTORY)


def checkpoint(session: int, *numbers: int, device: int = 0, at: int = 1) -> Checkpoint:
    return Checkpoint(session, JournalPlace(1, at, 0), b"state %d" % at, iterations(*numbers, device=device))


@contextmanager
def opened(folder: Path, clock: Any = None) -> Iterator[History]:
    history = History.open(folder, clock=clock or Clock())
    try:
        yield history
    finally:
        history.close()


def read_all(history: History, job: str = "job", limit: int = 3, **which: Any) -> list[tuple[int, int]]:
    """Return rank and index of every iteration, page by page."""
    found, after = [], ""
    while True:
        page, after = history.iterations(job, after=after, limit=limit, **which)
        assert page.height <= limit
        found += page.select("rank", "index").rows()
        if not after:
            return found


def seal_all(history: History) -> int:
    return history.seal(2**62, window_ns=0)


def begin(history: History, job: str = "job", rank: int = 0, collector: str = "a") -> int:
    """Begin a session, and return its number."""
    return history.begin(job, rank, collector, b"hello", 5)
