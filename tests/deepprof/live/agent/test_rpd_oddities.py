"""RPD files that are replaced, damaged, of others, or over; and clocks that only the file has."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.sqlite.sqlite_database import VALUE_NBYTES
from deepprof.live.agent.ranks import ProcessRefusedError
from deepprof.live.agent.rpd.growing_database import FileStamp, GrowingDatabase, read_stamp
from deepprof.live.agent.rpd.rpd_source import IDLE_S, find_offset
from tests.collectors.rpd_database import COLUMNS, build, call, op
from tests.patience import PATIENCE_S

from .rpd_tails import (
    BOOT_NS,
    GEMM,
    KERNEL,
    LAUNCH,
    RELU,
    SECOND,
    STRINGS,
    UNIX_NS,
    Tail,
    launch,
    play,
)


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
        tail.ranks.error = ProcessRefusedError("rank 0 of job job is collected already")
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
    with pytest.raises(TraceError), GrowingDatabase(path) as growth:
        growth.read()


def test_a_text_larger_than_any_that_a_tracer_writes_is_not_read(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE rocpd_string SET string = zeroblob(?) WHERE id = 1", (VALUE_NBYTES + 1,))
    connection.close()
    with GrowingDatabase(path) as growth, pytest.raises(TraceError, match="holds a text or blob of more than 64 MiB"):
        growth.texts(np.array([1]))


def test_texts_that_a_file_gets_later_may_be_long(tmp_path):
    """What its first pages have room for bounds nothing."""
    path = build(tmp_path / "a.rpd", STRINGS)
    with GrowingDatabase(path) as growth, sqlite3.connect(path) as connection:
        connection.execute("UPDATE rocpd_string SET string = ? WHERE id = 1", ("x" * 1_000_000,))
        connection.commit()
        assert growth.texts(np.array([1]))["rocpd_string"]["string"].str.len_bytes().to_list() == [1_000_000]
    connection.close()


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
        await asyncio.wait_for(task, PATIENCE_S)
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
    one = FileStamp(1, 2, 100, 5)
    assert FileStamp(1, 2, 100, 9).follows(one)
    assert not FileStamp(1, 2, 99, 9).follows(one)
    assert not FileStamp(1, 3, 100, 9).follows(one)
    assert read_stamp(Path("/nonexistent")) is None
