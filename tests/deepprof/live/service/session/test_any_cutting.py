"""What a session gives depends on the records alone: not on batches, on when it advances, on saving and restoring."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.collectors.trace import ANNOTATIONS, HOST_EVENTS, Trace
from deepprof.live.service.session import RankSession
from tests.chance import examples
from tests.deepprof.live.service.session.feeding import Outcome, cut_at, device_rows, make_trace, play

NAMES = 400
WAIT, GRAPH, CALL, STEP, LAYER = range(NAMES, NAMES + 5)
TEXTS = ["cudaStreamSynchronize", "cudaGraphLaunch", "cudaLaunchKernel", "ProfilerStep#1", "layer_3"]
PITCH = 2_000


def tables(schema: pl.Schema, **columns: Any) -> pl.DataFrame:
    count = len(columns["start_ns"])
    series = [pl.Series(name, columns.get(name, [None] * count)) for name in schema]
    return pl.DataFrame(series).sort("start_ns", maintain_order=True).cast(dict(schema))  # type: ignore[arg-type]


@cache
def eventful() -> Trace:
    """A job on two devices that changes its iteration and its main stream, with launches, waits, ranges and copies."""
    random = np.random.default_rng(7)
    first, other = random.integers(0, 300, 60), random.integers(0, 300, 90)
    symbols = np.concatenate(
        [np.tile(first, 90), np.tile(other, 80), np.tile(first, 60), random.integers(0, 300, 9000)]
    )
    count = len(symbols)
    start = PITCH * np.arange(count, dtype=np.int64) + random.integers(0, 900, count)
    start[7::50] = start[6::50][: len(start[7::50])]  # some begin at the same time
    start.sort()
    ids = np.arange(count) + 1
    main = device_rows(start_ns=start, end_ns=start + 1_500, name_id=symbols, correlation=ids)
    copies = device_rows(
        start_ns=start[::60] - 10,
        end_ns=start[::60] + 400,
        name_id=[399] * len(start[::60]),
        stream=20,
        activity="memcpy",
        copy_kind=["HtoD" if i % 3 else "DtoH" for i in range(len(start[::60]))],
        nbytes=4096,
    )
    later = [
        play(np.tile(first[:40], 40), stream=30, device=1, pitch=PITCH),
        play(np.tile(other[:70], 60), at=2_000_000, stream=31, device=1, pitch=PITCH),
    ]
    launch = start - 60_000
    launch[11::97] = start[11::97] + 3_000  # as clocks that differ have it
    every = slice(0, None, 60)
    calls = tables(
        HOST_EVENTS,
        start_ns=np.concatenate([launch, launch[every] - 500]),
        end_ns=np.concatenate([launch + 700, launch[every] - 100]),
        category=["runtime"] * (count + len(launch[every])),
        name_id=np.concatenate([np.where(np.arange(count) % 500 == 3, GRAPH, CALL), [WAIT] * len(launch[every])]),
        correlation=pl.Series([*ids.tolist(), *[None] * len(launch[every])]),
    )
    at = np.concatenate([launch[every] - 600, launch[10::20] - 50])
    length = np.concatenate([np.full(len(launch[every]), 60 * PITCH - 100), np.full(len(launch[10::20]), 9 * PITCH)])
    ranges = tables(
        ANNOTATIONS,
        start_ns=at,
        end_ns=at + length,
        side=["host"] * len(at),
        name_id=[STEP] * len(launch[every]) + [LAYER] * len(launch[10::20]),
        framework=[False] * len(at),
    )
    return make_trace(pl.concat([main, copies, *later]), NAMES, TEXTS, host_events=calls, annotations=ranges)


def run(bounds: list[int], pattern: list[int], gaps: frozenset[int]) -> tuple[Outcome, RankSession]:
    """Cut at `bounds` and `gaps`; before each batch do what the pattern says: nothing, advance, or save and restore."""
    session, outcome = RankSession(), Outcome()
    for number, batch in enumerate(cut_at(eventful(), {*bounds, *gaps})):
        if batch.first in gaps:
            session.gap(100)
        session.take(batch)
        what = pattern[number % len(pattern)]
        if what:
            outcome.add(session.advance())
        if what == 2:
            session = RankSession.restore(session.save())
    session.end()
    outcome.add(session.advance())
    return outcome, session


@cache
def at_once(gaps: frozenset[int]) -> tuple[Outcome, RankSession]:
    return run([], [0], gaps)


def test_the_job_is_eventful() -> None:
    outcome, session = at_once(frozenset())
    kinds = {event.kind for event in outcome.events}
    assert {"lock", "lost", "review", "main"} <= kinds
    assert len(session.devices) == 2
    assert session.devices[0].loops[0].boundary_source == "annotation"
    assert all(view.iterations > 20 for view in session.devices)


def mined(session: RankSession) -> list[bytes]:
    """Return the miners' states: all that they were given, evidence included."""
    followers = session._state.followers
    return [followers[device].main.miner.save() for device in sorted(followers) if followers[device].main]


numbers = st.integers(1, 30_000)


@settings(max_examples=examples(25))
@given(
    bounds=st.lists(numbers, max_size=40),
    pattern=st.lists(st.integers(0, 2), min_size=1, max_size=7),
    gaps=st.frozensets(st.sampled_from([900, 1_700, 9_000, 9_001, 16_000]), max_size=3),
)
def test_any_cutting_gives_the_same(bounds: list[int], pattern: list[int], gaps: frozenset[int]) -> None:
    wanted, known = at_once(gaps)
    given_, session = run(bounds, pattern, gaps)
    assert given_.rows.equals(wanted.rows)
    for device in (0, 1):
        assert [e for e in given_.events if e.device == device] == [e for e in wanted.events if e.device == device]
    assert session.devices == known.devices
    assert mined(session) == mined(known)
    assert dict(session.dropped) == dict(known.dropped)
