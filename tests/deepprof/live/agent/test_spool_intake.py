"""What does not fit is counted, stated once, and its names arrive all the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepprof.live.agent.spool import Spool, SpoolBudget, SpoolIntake
from deepprof.live.agent.spool.intake import MOST_DUE
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import End

from .spooling import batch, hello, numbers


def make(root: Path, limit: int = 2000) -> SpoolIntake:
    return SpoolIntake(Spool.open(root, hello(), SpoolBudget(limit), segment_nbytes=1))


def texts(spool: Spool) -> list[str]:
    """Return the names in the order in which the daemon is told them, each with its id."""
    found: list[str] = []
    for message in spool.read():
        inner = SendRequest.FromString(message.payload).batch
        assert not inner.names or inner.first_name == len(found)
        found += inner.names
    return found


def test_batches_are_numbered_and_gaps_said(tmp_path: Path) -> None:
    intake = make(tmp_path)
    assert intake.put(batch(5), 5, 5)
    intake.gap("buffer-full", 4)
    assert intake.put(batch(2), 2, 11)
    intake.gap("nonsense", (1 << 64) - 1)
    assert intake.end(End())
    assert numbers(intake.spool) == [(0, 5), (5, 4), (9, 2), (11, 0), (11, 0)]
    assert (intake.next, intake.lost, intake.spool.source_next) == (11, 0, 11)


def test_what_does_not_fit_is_one_gap_and_no_name_is_lost(tmp_path: Path) -> None:
    intake, given = make(tmp_path), 0
    while intake.put(batch(5, [f"n{given}"], given, 100), 5):
        given += 1
    for more in range(given + 1, given + 4):
        assert not intake.put(batch(5, [f"n{more}"], more, 100), 5)
    assert (intake.lost, intake.next, intake.names_count) == (20, 5 * (given + 4), given + 4)
    intake.spool.trim(intake.spool.next)
    assert intake.put(batch(1, ["last"], given + 4), 1, 77)
    assert numbers(intake.spool)[-3:] == [(5 * given, 20), (5 * given + 20, 0), (5 * given + 20, 1)]
    assert intake.spool.names == [*(f"n{number}" for number in range(given + 4)), "last"]
    assert intake.spool.source_next == 77
    names, _ = [SendRequest.FromString(message.payload).batch for message in intake.spool.read()][-2:]
    assert names.complete_until_ns == 0  # the batch behind it begins before its own promise


def test_the_end_and_gaps_go_beyond_the_limit(tmp_path: Path) -> None:
    intake = make(tmp_path, 300)
    for name in range(6):
        intake.put(batch(5, [f"n{name}"], name, 100), 5)
    lost = intake.lost
    intake.gap("buffer-full")
    assert intake.end(End())
    kept = 30 - lost
    assert numbers(intake.spool)[-4:] == [(kept, lost), (30, 0), (30, 0), (30, 0)]
    assert texts(intake.spool) == [f"n{name}" for name in range(6)]
    assert intake.spool.ended


def test_names_come_apart_from_tables_that_have_no_records(tmp_path: Path) -> None:
    intake = make(tmp_path)
    assert intake.put(batch(0, ["a"]), 0)
    first, second = (SendRequest.FromString(message.payload).batch for message in intake.spool.read())
    assert (list(first.names), len(first.tables)) == (["a"], 0)
    assert (list(second.names), len(second.tables)) == ([], 1)


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    intake = make(tmp_path, 1 << 20)
    assert intake.put(batch(5, ["a"], 0), 5)

    def refuse(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr("deepprof.live.segments.segment_files.write_all", refuse)
        assert not intake.put(batch(5, ["b"], 1), 5)
        intake.gap("buffer-full", 3)
        assert not intake.put(batch(5, ["c"], 2), 5)
        assert not intake.end(End())
        assert intake.next == 18
    assert intake.put(batch(1, ["d"], 3), 1)
    assert intake.end(End())
    assert [found for found in numbers(intake.spool) if found[1]] == [(0, 5), (5, 5), (10, 3), (13, 5), (18, 1)]
    assert texts(intake.spool) == ["a", "b", "c", "d"]


def test_a_disk_that_takes_nothing_for_days_costs_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    intake = make(tmp_path, 1 << 20)
    with monkeypatch.context() as full:
        full.setattr(intake.spool, "_write", refuse)
        for number in range(1000):
            assert not intake.put(batch(5, [f"n{number}"] if number < 3 else [], number), 5)
            intake.gap("duty-cycle", number % 2)
        assert len(intake._due) <= MOST_DUE + 6
        assert (intake.next, intake.lost) == (5500, 5000)
    assert intake.put(batch(1, ["last"], 3), 1)
    assert sum(count for _, count in numbers(intake.spool)[:-1]) == 5500
    assert texts(intake.spool) == ["n0", "n1", "n2", "last"]


def refuse(*_: object) -> None:
    raise OSError(28, os.strerror(28))
