"""A reader that follows a rank gets each record once, in order of time, whatever comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof.live.client.daemon import JobRecords
from deepprof.live.client.errors import DaemonError
from deepprof.live.service.daemon_rank import DaemonRank, QueuedMessage
from deepprof.live.service.examiner.windows import _is_new, _places_after
from deepprof.live.service.journal import JournalError
from deepprof.live.wire.cutting import cut
from deepprof.live.wire.heads import make_end
from deepprof.v1 import query_pb2
from deepprof.v1.records_pb2 import Gap
from tests.chance import examples
from tests.deepprof.live.service.inside import Inside, inside, until
from tests.deepprof.live.service.test_examiner_faults import damage_frame
from tests.deepprof.live.service.test_readers import asked
from tests.deepprof.live.service.traces import gpu_only_trace

Body = Callable[[Inside], Coroutine[Any, Any, None]]
MINUTE_NS = 60 * 10**9


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=12, kernels=40)


@dataclass
class Asked:
    """What `JobRecords` needs of a client, answered by the daemon in this process; `asked` are the requests."""

    daemon: Inside
    loop: asyncio.AbstractEventLoop
    query: Any = field(default_factory=lambda: SimpleNamespace(ReadWindow=None))
    endpoint: Any = field(default_factory=lambda: SimpleNamespace(address="inside"))

    def ranks(self, job: str) -> list[DaemonRank]:
        return [
            SimpleNamespace(
                rank=number,
                ended=rank.ended,
                world_size=rank.hello.world_size,
                last_record_unix_ns=rank.last_record_unix_ns,
            )
            for number, rank in self.known(job)
        ]

    def known(self, job: str) -> list[tuple[int, DaemonRank]]:
        return sorted(self.daemon.engine.roster.jobs[job].items())

    def stream(self, _: Any, request: query_pb2.ReadWindowRequest) -> Iterator[query_pb2.ReadWindowResponse]:
        positions = {each.rank: each for each in request.after}

        async def collect() -> list[query_pb2.ReadWindowResponse]:
            chosen = [(number, rank) for number, rank in self.known(request.job) if number in request.ranks]
            read = self.daemon.examiner.read_window
            return [message for number, rank in chosen async for message in read(rank, positions.get(number))]

        yield from asyncio.run_coroutine_threadsafe(collect(), self.loop).result()


@dataclass
class Follower:
    """`JobRecords` of a job, and the start times that it has given."""

    records: JobRecords
    starts: list[int]

    async def read(self) -> None:
        for piece in await asyncio.to_thread(lambda: list(self.records.read())):
            self.starts += piece.device_events["start_ns"].to_list()


@asynccontextmanager
async def following(daemon: Inside, **more: int) -> AsyncIterator[Follower]:
    """Give a reader on the daemon's clock, which only a test moves."""
    clock = daemon.clock
    times = SimpleNamespace(time_ns=clock.unix_ns, monotonic=lambda: clock.monotonic_ns() / 1e9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deepprof.live.client.daemon.time", times)
        yield Follower(JobRecords(Asked(daemon, asyncio.get_running_loop()), "j", **more), [])


def run(folder: Path, body: Body) -> None:
    async def main() -> None:
        async with inside(folder) as daemon:
            await body(daemon)

    asyncio.run(main())


async def end(daemon: Inside, rank: DaemonRank, trace: deepprof.Trace) -> None:
    await daemon.put(rank, QueuedMessage("end", make_end(trace).SerializeToString(), rank.next, 0))
    await settle(rank)


async def settle(rank: DaemonRank) -> None:
    await until(lambda: not rank.submitted and not rank.queue, "it is durable and mined")


@settings(max_examples=examples(20))
@given(
    batch=st.integers(7, 200),
    reads=st.lists(st.integers(1, 9), max_size=12),
    piece=st.sampled_from([1, 50, 1 << 19]),
)
def test_each_record_comes_once_and_in_order(tmp_path_factory, trace, batch, reads, piece) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.attach(trace, "j", object())
        async with following(daemon, piece_records=piece) as follower:
            due = list(reads)
            for number, message in enumerate(cut(trace, records=batch)):
                await daemon.submit(rank, message)
                if due and number % 3 == 0:
                    await settle(rank)
                    for _ in range(due.pop() % 3):
                        await follower.read()
            await settle(rank)
            await follower.read()
            assert not follower.records.ended
            await end(daemon, rank, trace)
            while not follower.records.ended:
                await follower.read()
            assert follower.starts == trace.device_events["start_ns"].to_list()
            assert follower.records.notes() == []
            assert follower.records.missed == 0

    run(tmp_path_factory.mktemp("d"), body)


def test_records_wait_for_earlier_ones_that_can_still_come(tmp_path, trace) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.attach(trace, "j", object())
        messages = list(cut(trace, records=60))
        earlier, later = messages[2], messages[3]
        assert [*earlier.names, *later.names] == []
        later.first, later.complete_until_ns = earlier.first, messages[1].complete_until_ns
        earlier.first, earlier.complete_until_ns = later.first + 60, messages[4].complete_until_ns
        messages[2:4] = [later, earlier]
        async with following(daemon) as follower:
            for number, message in enumerate(messages):
                await daemon.submit(rank, message)
                await settle(rank)
                await follower.read()
                if number == 2:
                    assert len(follower.starts) == 120  # of 180 that arrived
            await end(daemon, rank, trace)
            await follower.read()
        assert follower.starts == trace.device_events["start_ns"].to_list()

    run(tmp_path, body)


def test_few_records_wait_where_the_sender_promises_nothing(tmp_path, trace, monkeypatch) -> None:
    monkeypatch.setattr("deepprof.live.client.daemon.MOST_WAITING", 100)

    async def body(daemon: Inside) -> None:
        rank = await daemon.attach(trace, "j", object())
        async with following(daemon) as follower:
            for message in cut(trace, records=60):
                message.complete_until_ns = 0
                await daemon.submit(rank, message)
                await settle(rank)
                await follower.read()
                assert sum(rows.height for rows in follower.records.ranks[0].waiting.values()) <= 100
            await end(daemon, rank, trace)
            await follower.read()
        assert follower.starts == trace.device_events["start_ns"].to_list()

    run(tmp_path, body)


def test_what_left_the_window_before_it_was_read_is_counted(tmp_path, trace, monkeypatch) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.attach(trace, "j", object())
        messages = list(cut(trace, records=50))
        async with following(daemon) as follower:
            for message in messages[:4]:
                await daemon.submit(rank, message)
            await settle(rank)
            await follower.read()
            for message in messages[4:]:
                await daemon.submit(rank, message)
            await end(daemon, rank, trace)
            window = daemon.engine.journal.window
            monkeypatch.setattr(daemon.engine.journal, "window", lambda session: window(session)[6:])
            while not follower.records.ended:
                await follower.read()
        gone = messages[6].first - messages[4].first
        assert gone > 0
        assert follower.records.missed == gone
        assert len(follower.starts) == trace.device_events.height - gone
        assert follower.starts == sorted(follower.starts)
        assert follower.records.notes() == [
            f"{gone} records were missed: they left the daemon's window before they were read"
        ]

    run(tmp_path, body)


def test_all_that_is_left_may_have_gone_too(tmp_path, trace, monkeypatch) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.send(trace, "j")
        monkeypatch.setattr(daemon.engine.journal, "window", lambda _: [])
        async with following(daemon) as follower:
            await follower.read()
        assert follower.records.ended
        assert follower.records.missed == rank.durable == trace.accounting.kept
        assert follower.starts == []

    run(tmp_path, body)


@pytest.mark.parametrize("first", [3, 5])  # right after what is available, and later
def test_damaged_messages_are_named(tmp_path, trace, first) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.attach(trace, "j", object())
        messages = list(cut(trace, records=50))
        async with following(daemon) as follower:
            for number, message in enumerate(messages):
                await daemon.submit(rank, message)
                if number == 2:
                    await settle(rank)
                    await follower.read()
            await end(daemon, rank, trace)
            damage_frame(daemon, rank.number, first)
            damage_frame(daemon, rank.number, len(messages) - 2)  # one at which the search for the position looks
            while not follower.records.ended:
                await follower.read()
        lost = sum(messages[at + 1].first - messages[at].first for at in (first, len(messages) - 2))
        assert len(follower.starts) == trace.device_events.height - lost
        assert follower.records.notes() == [f"rank 0: {lost} records in between are lost (damaged)"]

    run(tmp_path, body)


def test_a_gap_of_unknown_size_is_said_once(tmp_path, trace) -> None:
    async def body(daemon: Inside) -> None:
        rank = await daemon.attach(trace, "j", object())
        messages = list(cut(trace, records=100))
        async with following(daemon) as follower:
            for message in messages[:2]:
                await daemon.submit(rank, message)
            gap = Gap(first=rank.next, reason="buffer-full")
            await daemon.put(rank, QueuedMessage("gap", gap.SerializeToString(), rank.next, 0))
            await settle(rank)
            for _ in range(3):
                await follower.read()
        assert follower.records.notes() == ["rank 0: records in between are lost, how many is not known (gaps: 1)"]

    run(tmp_path, body)


def test_a_collector_that_replaces_another_begins_anew(tmp_path, trace) -> None:
    async def body(daemon: Inside) -> None:
        async with following(daemon) as follower:
            await daemon.send(trace, "j", end=False, collector="a")
            await follower.read()
            await daemon.send(trace, "j", collector="b")
            while not follower.records.ended:
                await follower.read()
        assert follower.starts == 2 * trace.device_events["start_ns"].to_list()
        assert [part.assembly.names for part in follower.records.former] == [[]]  # a rank may be started again for ever
        assert follower.records.notes() == [
            "rank 0 was started again; the last records of its former run may be missing"
        ]

    run(tmp_path, body)


def test_a_rank_that_begins_when_all_others_have_ended_is_followed(tmp_path, trace) -> None:
    ranks = [replace(trace, rank=number, world_size=2) for number in range(2)]

    async def body(daemon: Inside) -> None:
        async with following(daemon) as follower:
            await daemon.send(ranks[0], "j")
            for _ in range(2):
                await follower.read()
            assert not follower.records.ended
            await daemon.send(ranks[1], "j")
            await follower.read()
            assert follower.records.ended
        assert follower.starts == 2 * trace.device_events["start_ns"].to_list()
        assert follower.records.notes() == []

    run(tmp_path, body)


@pytest.mark.parametrize("old", ["its last record", "the look at it"])
def test_for_a_rank_that_never_begins_nobody_waits_for_ever(tmp_path, trace, old) -> None:
    async def body(daemon: Inside) -> None:
        async with following(daemon) as follower:
            rank = await daemon.send(replace(trace, rank=0, world_size=3), "j")
            await follower.read()
            assert not follower.records.ended
            if old == "its last record":
                daemon.clock.unix += MINUTE_NS
            else:
                rank.last_record_unix_ns += 10**18  # of a clock that is ahead
                daemon.clock.pass_by(MINUTE_NS - 1)
                await follower.read()
                assert not follower.records.ended
                daemon.clock.pass_by(1)
            await follower.read()
            assert follower.records.ended
        assert follower.starts == trace.device_events["start_ns"].to_list()
        assert follower.records.notes() == ["2 of 3 ranks have sent nothing"]

    run(tmp_path, body)


def test_answers_that_break_the_contract_are_an_error_of_the_daemon(tmp_path, trace) -> None:
    async def body(daemon: Inside) -> None:
        await daemon.send(trace, "j")
        client = Asked(daemon, asyncio.get_running_loop())
        answers = [query_pb2.ReadWindowResponse(rank=0, gap=Gap(first=3, lost=4, reason="x"))]
        client.stream = lambda *_: (answer for answer in answers)
        with pytest.raises(DaemonError, match="sent records that cannot be read"):
            await asyncio.to_thread(lambda: list(JobRecords(client, "j").read()))

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([query_pb2.ReadPosition(rank=0)] * 2, "after: 2 positions of 1 ranks; give each rank once, 65536 at most"),
        (
            [query_pb2.ReadPosition(rank=at) for at in range(65_537)],
            "after: 65537 positions of 65537 ranks; give each rank once, 65536 at most",
        ),
    ],
)
def test_positions_that_make_no_sense_are_refused(tmp_path, trace, after, said) -> None:
    async def body(daemon: Inside) -> None:
        await daemon.send(trace, "j")
        async with asked(daemon) as (_, stub):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                _ = [message async for message in stub.ReadWindow(query_pb2.ReadWindowRequest(job="j", after=after))]
            assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert failed.value.details() == said

    run(tmp_path, body)


@dataclass
class Frames:
    """A journal whose places are the numbers of its frames; those in `damaged` cannot be read."""

    frames: list[Any]
    damaged: frozenset[int]
    read_count: int = 0

    def read(self, place: int) -> Any:
        self.read_count += 1
        if place in self.damaged:
            raise JournalError(Path("segment"), "is damaged")
        return self.frames[place]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 130), st.sets(st.integers(0, 39)))
def test_places_after_a_position_are_those_that_a_walk_finds(counts, number, damaged) -> None:
    firsts = [0, *pl.Series(counts, dtype=pl.Int64).cum_sum()]
    frames = [SimpleNamespace(first=first, count=count) for first, count in zip(firsts, counts, strict=False)]
    journal, known = Frames(frames, frozenset(damaged)), SimpleNamespace(next=number)
    found = _places_after(journal, list(range(len(frames))), number)
    wanted = [at for at, frame in enumerate(frames) if _is_new(frame, known)]
    assert [at for at in found if _is_new(frames[at], known)] == wanted
    if not damaged and number >= firsts[-1]:
        assert journal.read_count <= 12  # at the end of a long window few frames are read
