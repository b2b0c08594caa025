"""Ranks on their way: who may have a place, and what becomes of those that no one comes back for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from deepprof.live.agent import ranks as module
from deepprof.live.agent.identity import CollectorRun, is_run_of, make_hello
from deepprof.live.agent.ranks import AgentRanks, ProcessRefusedError
from deepprof.live.agent.spool import Spool, SpoolBudget
from deepprof.live.agent.spool.fillers import make_gap
from deepprof.live.client.endpoint import find_endpoint
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import End
from tests.deepprof.live.agent.test_agent import folder
from tests.deepprof.live.service.daemons import DEADLINE_S, launch, running

__all__ = ["folder"]

Check = Callable[[AgentRanks], Coroutine[None, None, None]]


def identity(collector: str = "cupti-a", rank: int | None = 0) -> CollectorRun:
    return CollectorRun(job="demo", collector=collector, rank=rank)


def leave(root: Path, *collectors: str) -> None:
    """Let a former agent have left spools."""
    for collector in collectors:
        Spool.open(root, make_hello(identity(collector), 0), SpoolBudget()).close()


def check(root: Path, what: Check, to: str = "") -> None:
    async def run() -> None:
        roster = AgentRanks(find_endpoint(to or f"unix:{root}/nobody"), root)
        try:
            roster.resume()
            await what(roster)
        finally:
            await roster.close()

    asyncio.run(run())


def test_one_that_comes_back_goes_on(tmp_path: Path) -> None:
    async def what(roster: AgentRanks) -> None:
        assert roster.active["demo", 0].rank is None
        assert roster.open(identity()) is roster.active["demo", 0].rank

    leave(tmp_path, "cupti-a")
    check(tmp_path, what)


def test_one_that_is_here_keeps_its_place_however_long_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETURNING_S", 0.01)

    async def what(roster: AgentRanks) -> None:
        roster.awaits = lambda collector: collector == "cupti-a"
        for _ in range(3):
            roster.close_left()
        rank = roster.open(identity())
        rank.gap("duty-cycle")
        assert not rank.spool.ended

    leave(tmp_path, "cupti-a")
    check(tmp_path, what)


def test_one_that_was_ended_is_not_gone_on_with(tmp_path: Path) -> None:
    async def what(roster: AgentRanks) -> None:
        roster.close_left()
        assert roster.active["demo", 0].spool.ended
        rank = roster.open(identity())
        assert rank.spool.hello.collector == "cupti-a-2"
        assert len(roster.all) == 2

    leave(tmp_path, "cupti-a")
    check(tmp_path, what)


def test_one_that_comes_back_under_another_name_has_lost_nothing_of_what_was_sent_under_the_first(
    tmp_path: Path,
) -> None:
    async def what(roster: AgentRanks) -> None:
        first = roster.open(identity())
        first.gap("busy", 30, 30)
        first.end()
        again = roster.open(identity())
        assert (again.spool.hello.collector, again.source_next, again.is_renamed) == ("cupti-a-2", 30, True)
        again.gap("busy", 9, 39)
        again.end()
        third = roster.open(identity())
        assert (third.spool.hello.collector, third.source_next) == ("cupti-a-3", 39)
        other = roster.open(identity("cupti-b", 1))
        assert (other.source_next, other.is_renamed) == (0, False)

    check(tmp_path, what)


def test_one_that_was_ended_and_came_back_keeps_its_second_name(tmp_path: Path) -> None:
    async def what(roster: AgentRanks) -> None:
        roster.awaits = lambda collector: is_run_of(collector, "cupti-a")
        roster.close_left()
        rank = roster.open(identity())
        assert rank.spool.hello.collector == "cupti-a-2"
        assert not rank.spool.ended

    leave(tmp_path, "cupti-a-2")
    check(tmp_path, what)


def test_a_second_name_ends_with_its_process(tmp_path: Path) -> None:
    async def what(roster: AgentRanks) -> None:
        roster.let_go("cupti-a")
        assert roster.active["demo", 0].spool.ended

    leave(tmp_path, "cupti-a-2")
    check(tmp_path, what)


def test_a_place_is_one_collectors(tmp_path: Path) -> None:
    async def what(roster: AgentRanks) -> None:
        with pytest.raises(ProcessRefusedError, match="collected already"):  # its process may come back
            roster.open(identity("cupti-b"))
        roster.open(identity())
        with pytest.raises(ProcessRefusedError, match="collected already"):
            roster.open(identity("cupti-b"))

    leave(tmp_path, "cupti-a")
    check(tmp_path, what)


def test_the_next_process_of_a_rank_need_not_wait_for_a_daemon_that_is_away(folder: Path) -> None:
    async def what(roster: AgentRanks) -> None:
        for number in range(4):
            rank = roster.open(identity(f"cupti-{number}"))
            rank.gap("duty-cycle", number + 1)
            rank.end()
        daemon = launch(folder).wait_ready()
        try:
            async with asyncio.timeout(DEADLINE_S):
                while roster.all:
                    await asyncio.sleep(0.01)
        finally:
            daemon.kill()
        assert [sent.records for sent in roster.sent] == [1, 2, 3, 4]
        assert roster.budget.nbytes == 0

    check(folder, what, f"unix:{folder}/d/s")


def test_what_a_process_has_left_ends_with_it(tmp_path: Path) -> None:
    async def what(roster: AgentRanks) -> None:
        spool = roster.active["demo", 0].spool
        roster.let_go("cupti-b")
        assert not spool.ended
        roster.let_go("cupti-a")
        assert spool.ended

    leave(tmp_path, "cupti-a")
    check(tmp_path, what)


def test_what_was_left_of_one_rank_is_sent_one_after_the_other(tmp_path: Path) -> None:
    async def what(roster: AgentRanks) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while roster.active:
                await asyncio.sleep(0.01)
        assert not list(tmp_path.glob("*/*"))
        assert [sent.records for sent in roster.sent] == [3, 4]
        assert roster.open(identity()).spool.hello.collector == "cupti-a-2"  # nothing follows an end

    for collector, lost in (("cupti-a", 3), ("cupti-b", 4)):
        spool = Spool.open(tmp_path, make_hello(identity(collector), 0), SpoolBudget())
        spool.append(make_gap(0, lost, "spool-full"), lost)
        spool.append(SendRequest(end=End()), 0)
        spool.close()
        os.utime(spool.folder.path, ns=(lost, lost))
    with running() as daemon:
        check(tmp_path, what, daemon.address)
