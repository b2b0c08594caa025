"""The uplink against a daemon that fails in every way: everything arrives once and in order, or a gap says what not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.live.agent.spool import Spool, SpoolBudget, SpoolIntake, find_spools
from deepprof.live.agent.uplink import POLICY, Uplink
from deepprof.live.client.endpoint import Endpoint, find_endpoint
from deepprof.live.wire.figures import CollectorStatus
from deepprof.v1.records_pb2 import End
from tests.chance import examples
from tests.deepprof.live.client.fake_daemon import ALLOWED, FakeDaemon, Script, listen, short_folder
from tests.deepprof.live.service.inside import until
from tests.patience import PATIENCE_S

from .spooling import find_segments, hello, kernels

SMALL = 20_000  # bytes of a segment: a few batches
QUICK = replace(POLICY, window_nbytes=1 << 16, silence_s=PATIENCE_S)


class FastClock:
    """Time that passes at once."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    def now_s(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0.001)


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
def folder() -> Iterator[str]:
    with short_folder() as path:
        yield path


@pytest.fixture
def endpoint(daemon: FakeDaemon, folder: str) -> Iterator[Endpoint]:
    with listen(daemon, folder) as address:
        yield find_endpoint(address, environ={})


@pytest.fixture
def intake(tmp_path: Path) -> SpoolIntake:
    return SpoolIntake(Spool.open(tmp_path, hello(job="job"), segment_nbytes=SMALL))


def fill(intake: SpoolIntake, batches: int = 20, size: int = 50) -> None:
    """Append batches, each with its own name."""
    for _ in range(batches):
        name = intake.names_count
        assert intake.put(kernels(intake.next, size, [f"n{name}"], name), size)


def send(
    endpoint: Endpoint, spool: Spool, *, is_left: bool = False, notice: Callable[[str], None] | None = None
) -> Uplink:
    """Send a spool to its end."""
    uplink = Uplink(endpoint, spool, policy=QUICK, clock=FastClock(), notice=notice, is_left=is_left)
    asyncio.run(asyncio.wait_for(uplink.run(), PATIENCE_S))
    assert uplink.state.ended
    return uplink


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def test_a_spool_arrives_and_is_trimmed(daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake) -> None:
    fill(intake)
    intake.end(End())
    uplink = send(endpoint, intake.spool)
    rank = daemon.rank(3)
    assert (rank.durable, rank.duplicate, rank.ended, rank.names) == (1000, 0, True, names(20))
    assert rank.gaps == []
    assert uplink.state.durable == 1000
    assert intake.spool.first > 800


def test_an_end_alone_arrives(daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake) -> None:
    intake.end(End())
    send(endpoint, intake.spool)
    assert daemon.rank(3).ended


def test_what_is_appended_while_it_runs_is_sent_when_it_is_woken(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake
) -> None:
    async def run() -> None:
        uplink = Uplink(endpoint, intake.spool, policy=QUICK)
        task = asyncio.create_task(uplink.run())
        await until(lambda: uplink.state.connected, "it is connected")
        for number in range(1, 6):
            await asyncio.to_thread(fill, intake, 1)
            await asyncio.to_thread(uplink.wake)
            await until(lambda want=50 * number: uplink.state.durable == want, "it has arrived")
        uplink.tell(CollectorStatus(level="duty", reason="overhead"))
        intake.end(End())
        uplink.wake()
        await asyncio.wait_for(task, PATIENCE_S)

    asyncio.run(run())
    assert daemon.rank(3).durable == 250


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("after", [-1, 0, 1, 7, 19, 20])
def test_a_connection_that_breaks_loses_nothing(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake, after: int, taken: bool
) -> None:
    fill(intake)
    intake.end(End())
    daemon.scripts = [Script(after=after, taken=taken), Script(after=after // 2, taken=taken)]
    send(endpoint, intake.spool)
    rank = daemon.rank(3)
    assert (rank.durable, rank.ended, rank.names) == (1000, True, names(20))
    assert [batch.first for batch in rank.batches] == list(range(0, 1000, 50))


def test_a_daemon_that_is_away_is_waited_for(daemon: FakeDaemon, folder: str, intake: SpoolIntake) -> None:
    fill(intake)
    intake.end(End())
    told: list[str] = []

    async def run() -> None:
        endpoint = find_endpoint(f"unix:{folder}/d.sock", environ={})
        uplink = Uplink(endpoint, intake.spool, policy=QUICK, clock=FastClock(), notice=told.append)
        task = asyncio.create_task(uplink.run())
        await until(lambda: len(told) >= 5, "it has tried")
        assert not uplink.state.connected
        assert "no such socket" in uplink.state.problem
        with listen(daemon, folder):
            await asyncio.wait_for(task, PATIENCE_S)
        assert uplink.state.problem == ""

    asyncio.run(run())
    assert daemon.rank(3).durable == 1000


@pytest.mark.parametrize("kept", [0, 400])
def test_a_store_that_was_replaced_gets_what_is_kept_and_all_names(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake, kept: int
) -> None:
    """A daemon that has lost everything, or was restored from a copy that had 400 records."""
    fill(intake, 16)
    first = send(endpoint, intake.spool, is_left=True)
    assert first.state.durable == 800
    rank = daemon.rank(3)
    rank.durable, rank.names = kept, rank.names[: kept // 50]
    del rank.messages[kept // 50 :]
    fill(intake, 4)
    intake.end(End())
    uplink = send(endpoint, intake.spool)
    rank = daemon.rank(3)
    (gap,) = rank.gaps
    assert (gap.first, gap.reason) == (kept, "not-kept")
    assert gap.lost == intake.spool.first - kept or gap.first + gap.lost <= 800
    assert uplink.left_out == {"not-kept": {"unknown": gap.lost}}
    assert (rank.durable, rank.names, rank.ended) == (1000, names(20), True)


def test_a_store_that_is_replaced_between_two_connections(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake
) -> None:
    fill(intake)
    intake.end(End())
    daemon.scripts = [Script(after=15), Script(forget=True)]
    send(endpoint, intake.spool)
    rank = daemon.rank(3)
    assert (rank.durable, rank.names, rank.ended) == (1000, names(20), True)
    assert sum(gap.lost for gap in rank.gaps) + 50 * len([b for b in rank.batches if b.tables]) == 1000


def test_a_message_that_is_refused_for_ever_becomes_a_gap(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake
) -> None:
    fill(intake, 4)
    intake.end(End())
    refusal = Script(after=0, code=grpc.StatusCode.INVALID_ARGUMENT, details="tables[0]: no")
    daemon.scripts = [Script(after=1, code=grpc.StatusCode.INVALID_ARGUMENT, taken=True), refusal, refusal, refusal]
    told: list[str] = []
    uplink = send(endpoint, intake.spool, notice=told.append)
    rank = daemon.rank(3)
    assert [(gap.first, gap.lost, gap.reason) for gap in rank.gaps] == [(100, 50, "refused")]
    assert (rank.durable, rank.names, rank.ended) == (200, names(4), True)
    assert all("refused" in problem for problem in told)
    assert uplink.left_out == {"refused": {"kernel": 50}}
    assert uplink.refusal == "tables[0]: no"
    assert uplink.account is not None
    assert uplink.account.accepted == 150


def test_what_was_refused_and_taken_later_is_not_called_refused(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake
) -> None:
    """The gap in its place was refused too, and then whoever minds the daemon mended it."""
    fill(intake, 4)
    intake.end(End())
    refusal = Script(after=0, code=grpc.StatusCode.INVALID_ARGUMENT, details="no")
    daemon.scripts = [refusal, refusal, refusal, refusal]
    uplink = send(endpoint, intake.spool)
    assert (daemon.rank(3).durable, daemon.rank(3).gaps, uplink.left_out) == (200, [], {})


def test_it_is_over_once_the_daemon_has_said_what_became_of_all(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake
) -> None:
    fill(intake, 2)
    intake.end(End(await_account=True))
    daemon.counting = threading.Event()

    async def run() -> Uplink:
        uplink = Uplink(endpoint, intake.spool, policy=QUICK, clock=FastClock())
        task = asyncio.create_task(uplink.run())
        await until(lambda: uplink.state.durable == 100, "all is durable")
        assert (uplink.account.accepted if uplink.account else 0, uplink.counted) == (0, 0)
        assert not uplink.state.ended
        daemon.counting.set()
        await asyncio.wait_for(task, PATIENCE_S)
        return uplink

    uplink = asyncio.run(run())
    assert uplink.account is not None
    assert (uplink.account.accepted, uplink.counted) == (100, 100)


def test_a_daemon_that_does_not_say_what_it_kept(daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake) -> None:
    daemon.says_account = False
    fill(intake, 2)
    intake.end(End(await_account=True))
    uplink = send(endpoint, intake.spool)
    assert (uplink.state.durable, uplink.account) == (100, None)


def test_what_went_bad_on_the_disk_is_counted_as_missing(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake, tmp_path: Path
) -> None:
    fill(intake, 4)
    intake.end(End())
    segment, *_ = find_segments(tmp_path)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0x40
    segment.write_bytes(content)
    uplink = send(endpoint, intake.spool)
    assert uplink.left_out == {"damaged": {"unknown": 50}}
    assert [(gap.lost, gap.reason) for gap in daemon.rank(3).gaps] == [(50, "damaged")]


def test_an_end_that_is_refused_for_ever_is_sent_bare(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake
) -> None:
    fill(intake, 2)
    intake.end(End(dropped={"any": 1}))
    refusal = Script(after=0, code=grpc.StatusCode.INVALID_ARGUMENT, details="dropped: no")
    daemon.scripts = [Script(after=1, code=grpc.StatusCode.INVALID_ARGUMENT, taken=True), refusal, refusal, refusal]
    send(endpoint, intake.spool)
    rank = daemon.rank(3)
    assert (rank.durable, rank.ended, rank.gaps, rank.messages[-1]) == (100, True, [], End(await_account=True))


def test_the_status_is_told_on_every_connection(daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake) -> None:
    daemon.scripts = [Script(after=1)]

    async def run() -> None:
        uplink = Uplink(endpoint, intake.spool, policy=QUICK)
        uplink.tell(CollectorStatus(level="duty", reason="overhead"))
        task = asyncio.create_task(uplink.run())
        await until(lambda: uplink.state.connected, "it is connected")
        fill(intake, 2)
        intake.end(End())
        uplink.wake()
        await asyncio.wait_for(task, PATIENCE_S)

    asyncio.run(run())
    assert [status.reason for status in daemon.rank(3).statuses] == ["overhead", "overhead"]
    assert daemon.rank(3).durable == 100


def test_a_token_that_is_refused_is_tried_again(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake, tmp_path: Path
) -> None:
    fill(intake, 2)
    intake.end(End())
    daemon.token = ALLOWED

    async def run() -> None:
        uplink = Uplink(endpoint, intake.spool, policy=QUICK, clock=FastClock())
        task = asyncio.create_task(uplink.run())
        await until(lambda: "token" in uplink.state.problem, "it says why")
        daemon.token = None
        await asyncio.wait_for(task, PATIENCE_S)

    asyncio.run(run())
    assert daemon.rank(3).durable == 100
    assert daemon.rank(3).gaps == []


def test_a_spool_that_was_left_is_found_sent_and_over(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake, tmp_path: Path
) -> None:
    fill(intake, 3)
    intake.spool.close()
    (left,) = find_spools(tmp_path, SpoolBudget())
    send(endpoint, left, is_left=True)
    assert daemon.rank(3).durable == 150
    left.remove()
    assert find_spools(tmp_path, SpoolBudget()) == []


def test_a_daemon_that_has_more_than_the_spool(daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake) -> None:
    """The spool's end was damaged: what the process sends next gets numbers that the daemon does not have."""
    fill(intake, 4)
    send(endpoint, intake.spool, is_left=True)
    daemon.rank(3).durable = 260
    send(endpoint, intake.spool, is_left=True)
    assert intake.next == 260
    fill(intake, 1)
    intake.end(End())
    send(endpoint, intake.spool)
    assert (daemon.rank(3).durable, daemon.rank(3).duplicate) == (310, 0)


def test_a_daemon_that_stopped_within_a_message(daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake) -> None:
    fill(intake, 4)
    send(endpoint, intake.spool, is_left=True)
    daemon.rank(3).durable = 130
    fill(intake, 1)
    intake.end(End())
    send(endpoint, intake.spool)
    assert daemon.rank(3).durable == 250
    assert sum(gap.lost for gap in daemon.rank(3).gaps) in {20, 70}
    assert daemon.rank(3).names == names(5)


def test_much_is_sent_in_little_memory(daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake) -> None:
    fill(intake, 200)
    intake.end(End())
    most: list[int] = []

    async def run() -> None:
        uplink = Uplink(endpoint, intake.spool, policy=QUICK)
        task = asyncio.create_task(uplink.run())
        while not task.done():
            if uplink._sender is not None:
                most.append(uplink._sender.window.nbytes)
            await asyncio.sleep(0)

    asyncio.run(run())
    assert daemon.rank(3).durable == 10_000
    assert max(most) < 2 * QUICK.window_nbytes


@settings(max_examples=examples(15), deadline=None)
@given(
    breaks=st.lists(st.tuples(st.integers(-1, 12), st.booleans()), max_size=4),
    rounds=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=4),
)
def test_agents_come_and_go_and_connections_too(breaks: list[tuple[int, bool]], rounds: list[tuple[int, int]]) -> None:
    """Each round is an agent that finds the spool, appends this many batches, sends some, and is gone."""
    daemon = FakeDaemon()
    daemon.scripts = [Script(after=after, taken=taken) for after, taken in breaks]
    with short_folder() as folder, listen(daemon, folder) as address:
        endpoint = find_endpoint(address, environ={})
        for number, (batches, sent) in enumerate(rounds):
            asyncio.run(live(endpoint, Path(folder) / "spool", batches, None if number == len(rounds) - 1 else sent))
    rank = daemon.rank(3)
    total = sum(batches for batches, _ in rounds)
    assert (rank.durable, rank.ended, rank.names, rank.gaps) == (50 * total, True, names(total), [])
    assert [batch.first for batch in rank.batches] == list(range(0, 50 * total, 50))


async def live(endpoint: Endpoint, root: Path, batches: int, sent: int | None) -> None:
    """Be an agent until `sent` more batches are durable, as far as there are any; None: until all is, with the End."""
    spool = Spool.open(root, hello(job="job"), segment_nbytes=SMALL)
    intake = SpoolIntake(spool)
    fill(intake, batches)
    if sent is None:
        intake.end(End())
    uplink = Uplink(endpoint, spool, policy=QUICK, clock=FastClock())
    task = asyncio.create_task(uplink.run())
    if sent is None:
        await asyncio.wait_for(task, PATIENCE_S)
    else:
        await until(lambda: uplink.state.durable >= min(spool.first + 50 * sent, spool.next), "some is durable")
    task.cancel()
    await asyncio.wait([task])
    spool.close()
