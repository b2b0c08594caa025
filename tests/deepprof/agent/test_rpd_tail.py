"""An RPD file read while it is written: every record once, in order, as the importer shows it when all is there."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.agent.notices import Notices
from deepprof.agent.roster import Refused
from deepprof.agent.rpd import growth as module
from deepprof.agent.rpd.growth import Busy, Growth, Stamp, read_stamp
from deepprof.agent.rpd.held import Held
from deepprof.agent.rpd.source import IDLE_S, TEXT_S, RpdSource, find_offset
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import read
from tests.collectors.rpd_database import COLUMNS, build, call, op

from .receiving import FakeRank, Opening, TurningClock

SECOND = 10**9
BOOT_NS, UNIX_NS = 500 * SECOND, 1_700_000_000 * SECOND  # now, as the played clocks say
STRINGS = ("", "gemm", "relu", "KernelExecution", "hipLaunchKernel", "UserMarker", "iteration 1", "CopyHostToDevice")
EMPTY, GEMM, RELU, KERNEL, LAUNCH, MARKER, ITERATION, COPY = range(1, 9)


def insert(path: Path, table: str, *rows: dict[str, Any]) -> None:
    """Write rows as the tracer does, in one transaction."""
    with sqlite3.connect(path) as connection:
        for row in rows:
            names = ", ".join(f'"{name}"' for name in row)
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", (*row.values(),))
    connection.close()


def launch(path: Path, key: int, start: int, name: int = GEMM, stream: str = "0x0") -> None:
    """A call that launches a kernel 1 µs later, `start` in ns."""
    insert(path, "rocpd_api", call(key, LAUNCH, start=start, end=start + 500))
    insert(path, "rocpd_kernelapi", {"api_ptr_id": key, "stream": stream, "kernelName_id": name})
    insert(path, "rocpd_op", op(start + 1000, KERNEL, name, id=key))
    insert(path, "rocpd_api_ops", {"id": key, "api_id": key, "op_id": key})


class Tail:
    """A source with played clocks, of which every look is one call."""

    def __init__(self, path: Path, **changes: Any) -> None:
        self.clock, self.ranks, self.lines = TurningClock(), Opening(), []
        changes = {"clock": self.clock, "unix_ns": lambda: UNIX_NS, "since_boot_ns": lambda: BOOT_NS} | changes
        self.source = RpdSource(path, "job", self.ranks, Notices(self.lines.append), **changes)

    async def look(self, seconds: float = 0.0) -> float:
        self.clock.now += seconds
        return await self.source.attempt()

    async def end(self) -> FakeRank:
        self.source.stop()
        await self.source.run()
        return self.ranks[0]


def play(path: Path, moves: Callable[[Tail], Any], **changes: Any) -> Tail:
    """Return a tail after `moves` and its end."""
    tail = Tail(path, **changes)

    async def run() -> None:
        await moves(tail)
        await tail.end()

    asyncio.run(run())
    return tail


def show(rows: pl.DataFrame, begin: int) -> list[tuple[Any, ...]]:
    """Device events as they compare, times from `begin`."""
    columns = ("start_ns", "end_ns", "device", "stream", "activity", "name", "correlation", "nbytes", "copy_kind")
    moved = rows.with_columns(pl.col("start_ns") - begin, pl.col("end_ns") - begin)
    return sorted(moved.select(columns).rows(), key=str)


def with_names(trace) -> pl.DataFrame:
    return trace.device_events.with_columns(name=trace.names.gather(trace.device_events["name_id"].to_numpy()))


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
@settings(max_examples=10)
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
    """Write a share of the rows of each table."""
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
    with Growth(path) as growth:
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
    with Growth(path) as growth:
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
        async with asyncio.timeout(30):
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
    with Growth(path) as growth:
        growth.read()
        growth.texts(np.array([1, 2]))
        writer = sqlite3.connect(path, timeout=0, isolation_level=None)
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Busy):
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
    held = Held(tmp_path / "a.rpd")
    columns = {"process": 0, "agent": "0", "queue": 5, "activity": "kernel"}
    told = pl.DataFrame({**columns, "stream_id": [1, 2]})
    silent = pl.DataFrame({**columns, "stream_id": [None, None]}, schema_overrides={"stream_id": pl.Int64})
    assert held.fix_streams(told)["queue"].to_list() == [5, 5]
    assert held.by_stream is True
    assert held.fix_streams(silent)["queue"].to_list() == [None, None]
    other = Held(tmp_path / "a.rpd")
    assert other.fix_streams(silent).equals(silent)
    assert other.fix_streams(told)["stream_id"].to_list() == [None, None]


def test_another_file_in_its_place_follows_after_a_gap(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)

    async def moves(tail):
        launch(path, 1, 100 * SECOND)
        await tail.look()
        build(tmp_path / "b.rpd", STRINGS)
        launch(tmp_path / "b.rpd", 1, 200 * SECOND, name=RELU)
        shutil.move(tmp_path / "b.rpd", path)
        await tail.look()

    tail = play(path, moves)
    assert tail.ranks[0].log == [2, "replaced", 2, {"late": 0}]
    assert tail.ranks[0].rows("device_events")["name"].to_list() == ["gemm", "relu"]
    assert "another file" in tail.lines[0]


def test_a_file_that_is_none_is_a_line_and_tried_again(tmp_path):
    path = tmp_path / "a.rpd"

    async def moves(tail):
        assert await tail.look() > 0
        tail.lines.clear()
        path.write_bytes(b"this is no database at all" * 400)
        await tail.look()
        assert len(tail.lines) == 1
        build(path, STRINGS)
        launch(path, 1, 100 * SECOND)
        await tail.look()

    assert play(path, moves).ranks[0].records == 2


def test_a_database_without_tables_is_waited_for(tmp_path):
    path = tmp_path / "a.rpd"
    sqlite3.connect(path).execute("CREATE TABLE other(id)").connection.close()

    async def moves(tail):
        await tail.look()
        build(tmp_path / "b.rpd", STRINGS)
        launch(tmp_path / "b.rpd", 1, 100 * SECOND)
        path.write_bytes((tmp_path / "b.rpd").read_bytes())
        await tail.look()

    assert play(path, moves).ranks[0].records == 2


def test_a_rank_that_is_taken_is_asked_for_again(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)
    for at in range(3):
        launch(path, at + 1, (100 + 20 * at) * SECOND)

    async def moves(tail):
        tail.ranks.error = Refused("rank 0 of job job is collected already")
        await tail.look(0)
        await tail.look(11)
        assert "collected already" in tail.lines[0]
        tail.ranks.error = None
        await tail.look(11)
        await tail.look(11)
        assert tail.ranks[0].records == 4

    assert play(path, moves).ranks[0].records == 6


@pytest.mark.parametrize("missing", [*COLUMNS, "rocpd_op.end", "rocpd_api.start", "rocpd_op.id", "rocpd_api_ops.op_id"])
def test_a_table_or_a_column_that_is_missing(tmp_path, missing):
    path = build(
        tmp_path / "a.rpd",
        STRINGS,
        [missing],
        rocpd_op=[without(op(100 * SECOND, KERNEL, GEMM, id=1), "rocpd_op", missing)],
        rocpd_api=[without(call(1, LAUNCH), "rocpd_api", missing)],
        rocpd_api_ops=[without({"id": 1, "api_id": 1, "op_id": 1}, "rocpd_api_ops", missing)],
    )

    async def run():
        tail = Tail(path)
        await tail.look()
        await tail.look(IDLE_S + 1)
        tail.source.stop()
        await tail.source.run()
        return tail

    tail = asyncio.run(run())
    assert sum(rank.records for rank in tail.ranks) <= 2


def without(row: dict[str, Any], table: str, missing: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if f"{table}.{name}" != missing}


def test_damaged_pages_are_a_line(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS, rocpd_op=[op(at, KERNEL, id=at + 1) for at in range(5000)])
    content = bytearray(path.read_bytes())
    content[8192:40960] = b"\xff" * (40960 - 8192)
    path.write_bytes(content)
    with pytest.raises(TraceError), Growth(path) as growth:
        growth.read()


def test_it_ends_when_its_writers_are_gone(tmp_path):
    path, alive = build(tmp_path / "a.rpd", STRINGS), {7}

    async def run():
        tail = Tail(path, is_alive=alive.__contains__)
        launch(path, 1, 100 * SECOND)
        task = asyncio.create_task(tail.source.run())
        start = tail.clock.now
        while tail.clock.now < start + 2 * IDLE_S:
            await asyncio.sleep(0.001)
        assert not task.done()
        alive.clear()
        await asyncio.wait_for(task, 30)
        return tail.ranks[0].log

    assert asyncio.run(run()) == [2, {"late": 0}]


@pytest.mark.parametrize(
    ("newest", "changed", "offset"),
    [
        (BOOT_NS - SECOND, UNIX_NS, UNIX_NS - BOOT_NS),  # being written
        (BOOT_NS - 100 * SECOND, UNIX_NS - 90 * SECOND, UNIX_NS - BOOT_NS),  # written a while ago
        (BOOT_NS + 10 * SECOND, UNIX_NS, UNIX_NS - BOOT_NS - 10 * SECOND),  # of a machine that runs for longer
        (BOOT_NS - SECOND, UNIX_NS - 50 * SECOND, UNIX_NS - BOOT_NS - 49 * SECOND),  # written before it was made
        (10 * SECOND, UNIX_NS + 7200 * SECOND, UNIX_NS + 7190 * SECOND),  # hours between the last record and the file
    ],
)
def test_times_since_the_start_of_the_machine(newest, changed, offset):
    assert find_offset(newest, changed, UNIX_NS, BOOT_NS) == offset


def test_stamps():
    one = Stamp(1, 2, 100, 5)
    assert Stamp(1, 2, 100, 9).follows(one)
    assert not Stamp(1, 2, 99, 9).follows(one)
    assert not Stamp(1, 3, 100, 9).follows(one)
    assert read_stamp(Path("/nonexistent")) is None
