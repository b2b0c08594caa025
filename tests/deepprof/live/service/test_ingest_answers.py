"""The answers of one stream: the last of them is never left out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from deepprof.live.service import ingest
from deepprof.live.service.account import Accounts
from deepprof.live.service.ingest import IngestConnection, finish
from tests.patience import PATIENCE_S


@dataclass
class Told:
    """A rank with what an answer shows of it."""

    durable: int = 0
    ended: bool = False
    durable_names: int = 0
    submitted: int = 1
    counted: tuple[int, bool] = (0, False)
    broken: None = None
    accounts: Accounts = field(default_factory=Accounts)

    @property
    def is_counted(self) -> bool:
        return self.counted == (self.durable, True)


@dataclass
class Slow:
    """A connection on which the end becomes durable while an earlier answer is being written."""

    rank: Told
    stream: Any = None
    answers: list[tuple[int, bool]] = field(default_factory=list)

    async def write(self, answer: Any) -> None:
        self.answers.append((answer.durable, answer.ended))
        if len(self.answers) == 1:
            self.rank.durable, self.rank.ended, self.rank.submitted = 7, True, 0
            self.stream.done = True


def test_the_end_is_told_though_it_came_while_an_answer_went_out() -> None:
    context = Slow(Told())
    stream: Any = IngestConnection(None, context.rank, context)  # type: ignore[arg-type]
    context.stream, stream.changed = stream, asyncio.Event()
    asyncio.run(asyncio.wait_for(stream.answer(), PATIENCE_S))
    assert context.answers == [(0, False), (7, True)]


def test_who_waits_for_the_account_hears_it_before_the_stream_ends() -> None:
    rank = Told(durable=7, ended=True, submitted=0)
    rank.accounts.arrive(7)
    told: list[Any] = []

    class Client:
        async def write(self, answer: Any) -> None:
            told.append((answer.counted, answer.account.accepted))

    async def run() -> None:
        stream: Any = IngestConnection(None, rank, Client())  # type: ignore[arg-type]
        stream.changed, stream.done, stream.holds = asyncio.Event(), True, True
        answering = asyncio.create_task(stream.answer())
        while not told:
            await asyncio.sleep(0)
        rank.accounts.take({"kernel": 7}, {})
        rank.counted = (7, True)
        stream.changed.set()
        await asyncio.wait_for(answering, PATIENCE_S)

    asyncio.run(run())
    assert told == [(0, 0), (7, 7)]


@pytest.mark.parametrize("counts", [True, False])
def test_the_end_is_told_once_all_is_shown_or_that_takes_too_long(counts: bool) -> None:
    rank = Told(durable=7, ended=True, submitted=0)
    told: list[bool] = []

    class Client:
        async def write(self, answer: Any) -> None:
            told.append(answer.ended)

    async def run() -> None:
        stream: Any = IngestConnection(None, rank, Client())  # type: ignore[arg-type]
        stream.changed, stream.done, stream.shows = asyncio.Event(), True, True
        answering = asyncio.create_task(stream.answer())
        for _ in range(20):
            await asyncio.sleep(0)
        assert told == [False]
        rank.counted = (7, True) if counts else rank.counted
        stream.changed.set() if counts else stream.end_show()
        await asyncio.wait_for(answering, PATIENCE_S)

    asyncio.run(run())
    assert told == [False, True]


async def count_answers(stream: Any, told: list[int]) -> tuple[int, int]:
    """Return how many answers a stream has had while time passes in which nothing happens: at once, and in all."""
    stream.changed = asyncio.Event()
    answering = asyncio.create_task(stream.answer())
    while not told:
        await asyncio.sleep(0)
    first = len(told)
    for _ in range(100):  # each of them as long as a client hears nothing
        await asyncio.sleep(0)
    answering.cancel()
    return first, len(told)


@pytest.mark.parametrize(("waits", "submitted", "hears"), [(True, 0, True), (False, 1, True), (False, 0, False)])
def test_who_is_kept_waiting_hears_that_the_daemon_lives(
    monkeypatch: pytest.MonkeyPatch, waits: bool, submitted: int, hears: bool
) -> None:
    told: list[int] = []

    class Client:
        async def write(self, answer: Any) -> None:
            told.append(answer.durable)

    monkeypatch.setattr(ingest, "ALIVE_S", 0.0)  # the time for which clients may hear nothing is over at once
    stream: Any = IngestConnection(None, Told(durable=7, submitted=submitted), Client())  # type: ignore[arg-type]
    stream.waits = waits
    first, all_of_them = asyncio.run(count_answers(stream, told))
    assert first == 1
    assert (all_of_them > 2) == hears  # again and again
    assert set(told) == {7}


def test_a_client_that_goes_while_the_last_answer_is_due_leaves_nothing_behind() -> None:
    async def run() -> bool:
        answering = asyncio.create_task(asyncio.Event().wait())
        finishing = asyncio.create_task(finish(answering))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        finishing.cancel()
        await asyncio.wait({finishing})
        return answering.cancelled() and finishing.cancelled()

    assert asyncio.run(run())
