"""An RPD file read while it is written: every record once, in order, as the importer shows it when all is there."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.collectors.importers import read
from deepprof.live.agent.rpd import growing_database as module
from deepprof.live.agent.rpd.growing_database import DatabaseBusyError, GrowingDatabase
from deepprof.live.agent.rpd.held_rows import HeldRows
from deepprof.live.agent.rpd.rpd_source import TEXT_S
from tests.chance import examples
from tests.collectors.rpd_database import build, call, op
from tests.patience import PATIENCE_S

from .rpd_tails import (
    COPY,
    GEMM,
    ITERATION,
    KERNEL,
    LAUNCH,
    MARKER,
    SECOND,
    STRINGS,
    Tail,
    insert,
    launch,
    play,
    show,
    with_names,
)


def test_a_file_that_is_not_there_yet_is_told(tmp_path):
    async def look(tail):
        await tail.look()
        await tail.look(1)

    tail = Tail(tmp_path / "later.rpd")
    asyncio.run(look(tail))
    assert tail.lines == [f"{tmp_path}/later.rpd: is not there yet; it is followed once it is"]


@pytest.mark.traces
@pytest.mark.parametrize("file", ["rpd-matmul/matmul_result.rpd", "rpd-matmul-large/matmul_result_large.rpd"])
def test_a_real_file_is_what_the_importer_shows(traces, file):
    async def moves(tail):
        for _ in range(3):
            await tail.look(1)

    tail, trace = play(traces / file, moves), read(traces / file)
    rank = tail.ranks[0]
    rows = rank.rows("device_events")
    assert show(rows, rows["start_ns"].min()) == show(with_names(trace), trace.device_events["start_ns"].min())
    assert rank.rows("host_events").height == trace.host_events.height
    assert rank.rows("annotations").height == trace.annotations.height
    json.dumps(tail.source.state())


@pytest.mark.traces
@settings(max_examples=examples(10))
@given(cuts=st.lists(st.integers(1, 84), max_size=4).map(sorted), seconds=st.sampled_from([0, 1, 40]))
def test_a_real_file_that_grows_is_the_same_in_the_end(traces, tmp_path_factory, cuts, seconds):
    """Its tables are filled piece by piece, whole rows of each; whatever was seen in between, all arrives once."""
    whole, path = traces / "rpd-matmul/matmul_result.rpd", tmp_path_factory.mktemp("rpd") / "live.rpd"
    rows = empty_copy(whole, path)

    async def moves(tail):
        for first, last in zip([0, *cuts], [*cuts, 85], strict=True):
            fill(path, rows, first / 85, last / 85)
            await tail.look(seconds)

    tail, trace = play(path, moves), read(whole)
    given, (rank,) = tail.source.counts, tail.ranks
    assert given["records"] + given["late"] == trace.accounting.kept
    assert rank.log[-1].get("late", 0) == given["late"]
    if seconds == 0 or not cuts:
        assert given["late"] == 0
        times = rank.rows("device_events")["start_ns"]
        assert (times - times[0]).to_list() == (
            trace.device_events["start_ns"] - trace.device_events["start_ns"][0]
        ).to_list()


def empty_copy(whole: Path, path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Make a copy whose timed tables are empty, and return their rows."""
    path.write_bytes(whole.read_bytes())
    tables = ("rocpd_op", "rocpd_api", "rocpd_api_ops", "rocpd_kernelapi", "rocpd_copyapi")
    with sqlite3.connect(path) as connection:
        rows = {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables}
        for table in tables:
            connection.execute(f"DELETE FROM {table}")
    connection.close()
    return rows


def fill(path: Path, rows: dict[str, list[tuple[Any, ...]]], since: float, until: float) -> None:
    """Write a share of the rows of every table."""
    with sqlite3.connect(path) as connection:
        for table, those in rows.items():
            part = those[int(since * len(those)) : len(those) if until == 1 else int(until * len(those))]
            for row in part:
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    connection.close()


KEYS = st.lists(st.sampled_from([*range(1, 40), *range(2**31, 2**31 + 20), *range(2**32, 2**32 + 20)]), unique=True)


@given(KEYS, st.data())
def test_every_row_is_read_once_in_whatever_order_it_is_written(tmp_path_factory, keys, data):
    path = build(tmp_path_factory.mktemp("rpd") / "a.rpd", STRINGS)
    seen: list[int] = []
    with GrowingDatabase(path) as growth:
        at = 0
        while at < len(keys):
            more = data.draw(st.integers(1, len(keys) - at))
            insert(path, "rocpd_api", *(call(key, LAUNCH) for key in keys[at : at + more]))
            at += more
            seen += growth.read()["rocpd_api"]["id"].to_list()
        assert growth.read() == {}
    assert sorted(seen) == sorted(keys)


def test_rows_come_in_bites(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 7)
    path = build(tmp_path / "a.rpd", STRINGS, rocpd_op=[op(at, KERNEL, id=at + 1) for at in range(20)])
    with GrowingDatabase(path) as growth:
        sizes = [growth.read().get("rocpd_op", pl.DataFrame()).height for _ in range(4)]
    assert sizes == [7, 7, 6, 0]


def test_a_writer_that_has_the_file_is_waited_for(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)
    launch(path, 1, 100 * SECOND)

    async def moves(tail):
        await tail.look()
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN EXCLUSIVE")
        await tail.look()
        assert tail.source.counts["busy"] == 1
        writer.execute("ROLLBACK")
        writer.close()
        launch(path, 2, 101 * SECOND)
        await tail.look()

    assert play(path, moves).ranks[0].log == [4, {"late": 0}]


def test_a_cancelled_tail_gives_out_what_it_has(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)
    launch(path, 1, 100 * SECOND)

    async def run():
        tail = Tail(path)
        task = asyncio.create_task(tail.source.run())
        async with asyncio.timeout(PATIENCE_S):
            while tail.source.held.waiting < 2:
                await asyncio.sleep(0.001)
        assert tail.ranks == []
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return tail.ranks[0].log

    assert asyncio.run(run()) == [2, {"late": 0}]


def test_a_writer_that_never_lets_go_is_a_line(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)
    launch(path, 1, 100 * SECOND)

    async def run():
        tail = Tail(path)
        await tail.look()
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN EXCLUSIVE")
        tail.source.stop()
        await tail.source.run()
        writer.close()
        return tail.lines

    assert "does not let go" in asyncio.run(run())[-1]


def test_no_lock_stays_behind(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)
    launch(path, 1, 100 * SECOND)
    with GrowingDatabase(path) as growth:
        growth.read()
        growth.texts(np.array([1, 2]))
        writer = sqlite3.connect(path, timeout=0, isolation_level=None)
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DatabaseBusyError):
            growth.read()
        writer.execute("COMMIT")
        writer.close()


def test_what_began_early_and_is_written_late_finds_its_place(tmp_path):
    """A marker around three launches is written when it ends."""
    path = build(tmp_path / "a.rpd", STRINGS)

    async def moves(tail):
        for at in range(3):
            launch(path, at + 1, 100 * SECOND + at * 1000)
            await tail.look(0.5)
        marker = call(2**31 + 1, MARKER, ITERATION, start=100 * SECOND - 5, end=100 * SECOND + 9000)
        insert(path, "rocpd_api", marker)
        await tail.look(0.5)
        for at in range(3, 6):
            launch(path, at + 1, 110 * SECOND + at * 1000)
        await tail.look(20)

    rank = play(path, moves).ranks[0]
    assert rank.rows("annotations")["name"].to_list() == ["iteration 1"]
    assert rank.rows("device_events").height == 6
    assert rank.log[0] == 7  # what is older than two seconds, before the rest
    assert rank.log[-1] == {"late": 0}


def test_what_comes_too_late_is_counted(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)

    async def moves(tail):
        launch(path, 10, 100 * SECOND)
        launch(path, 20, 200 * SECOND)
        await tail.look()
        await tail.look(20)
        insert(path, "rocpd_op", op(50 * SECOND, KERNEL, GEMM, id=1))
        await tail.look()

    rank = play(path, moves).ranks[0]
    assert rank.log[-1] == {"late": 1}
    assert rank.records == 4


def test_names_that_are_written_after_their_rows_are_waited_for(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS[:-1])

    async def moves(tail):
        launch(path, 1, 100 * SECOND, name=COPY)
        launch(path, 2, 120 * SECOND, name=GEMM)
        await tail.look()
        await tail.look(11)
        assert tail.ranks == []
        insert(path, "rocpd_string", {"id": COPY, "string": "late name"})
        await tail.look(1)
        assert tail.ranks[0].rows("device_events")["name"].to_list() == ["late name"]

    play(path, moves)


def test_names_that_never_come_are_given_up(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)

    async def moves(tail):
        launch(path, 1, 100 * SECOND, name=77)
        launch(path, 2, 120 * SECOND)
        await tail.look()
        await tail.look(11)
        await tail.look(TEXT_S + 1)
        assert tail.ranks[0].records == 2
        launch(path, 3, 140 * SECOND, name=77)
        launch(path, 4, 160 * SECOND)
        await tail.look()  # 77 is known to be lost
        assert tail.ranks[0].records == 6

    play(path, moves)


def test_streams_keep_their_numbers(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)
    order = ["0xb", "0xa", "0x0", "0xa", "0xc", "0xb"]

    async def moves(tail):
        for at, stream in enumerate(order):
            launch(path, at + 1, (100 + 20 * at) * SECOND, stream=stream)
            await tail.look(15)

    numbers = play(path, moves).ranks[0].rows("device_events")["stream"].to_list()
    assert numbers == [1, 2, 0, 2, 3, 1]


def test_what_a_stream_is_does_not_change(tmp_path):
    """The first kernels have streams; a piece whose kernels have none would by itself go by queues."""
    held = HeldRows(tmp_path / "a.rpd")
    columns = {"process": 0, "agent": "0", "queue": 5, "activity": "kernel"}
    told = pl.DataFrame({**columns, "stream_id": [1, 2]})
    silent = pl.DataFrame({**columns, "stream_id": [None, None]}, schema_overrides={"stream_id": pl.Int64})
    assert held.fix_streams(told)["queue"].to_list() == [5, 5]
    assert held.by_stream is True
    assert held.fix_streams(silent)["queue"].to_list() == [None, None]
    other = HeldRows(tmp_path / "a.rpd")
    assert other.fix_streams(silent).equals(silent)
    assert other.fix_streams(told)["stream_id"].to_list() == [None, None]
