"""A real daemon, killed -9 and started again while an uplink sends: all arrives once, and nothing acknowledged goes."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors.trace import DEVICES
from deepprof.live.agent.spool import Spool, SpoolIntake
from deepprof.live.agent.uplink import Uplink
from deepprof.live.client.daemon import Daemon as Client
from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.wire.decoding import encode_table
from deepprof.live.wire.figures import RankState
from deepprof.v1.records_pb2 import Batch, End, Table
from tests.chance import draw_seed, examples
from tests.deepprof.live.service.daemons import launch, wait_for
from tests.deepprof.live.service.inside import until
from tests.deepprof.live.service.sending import check_accounts, open_client
from tests.patience import PATIENCE_S

from .spooling import hello, kernels

KILLS, BATCHES, SIZE, JOB = 4, 40, 100, "killed"


def count_kills() -> int:
    """Return how many: the second hits a daemon that has found something in its store."""
    return max(2, examples(KILLS))


@pytest.fixture
def folder() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="dp-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


def fill(intake: SpoolIntake, batches: int) -> None:
    for _ in range(batches):
        known = intake.names_count
        intake.put(kernels(intake.next, SIZE, [f"kernel {known}"], known), SIZE)
        intake.put(kernels(intake.next, 0, [f"kernel {known + 1}"], known + 1), 0)


def find_rank(client: Client) -> RankState | None:
    """Return the rank, None where the daemon has nothing of it."""
    return client.ranks(JOB)[0] if client.jobs() else None


def wait_mined(client: Client) -> RankState:
    """Return the rank once all that is durable was worked on, too: its figures are shown then."""
    wait_for(lambda: client.ranks(JOB)[0].settled, "all was worked on")
    return client.ranks(JOB)[0]


def test_kills_of_the_daemon_lose_nothing(folder: Path) -> None:
    asyncio.run(send_while_killed(folder, random.Random(draw_seed("uplink kills"))))


async def send_while_killed(folder: Path, chance: random.Random) -> None:
    spool = Spool.open(folder / "spool", hello(job=JOB), segment_nbytes=1 << 16)
    intake = SpoolIntake(spool)
    daemon = launch(folder)
    uplink = Uplink(find_endpoint(daemon.address, environ={}), spool)
    task = asyncio.create_task(uplink.run())  # the daemon is not there yet
    try:
        for _ in range(count_kills()):
            await asyncio.to_thread(daemon.wait_ready)
            before = uplink.state.durable
            fill(intake, BATCHES)
            uplink.wake()
            some = before + chance.randrange(BATCHES) * SIZE
            await until(lambda some=some: uplink.state.durable >= some, "some is durable")
            acknowledged = uplink.state.durable
            daemon.kill()
            daemon = launch(folder)
            await asyncio.to_thread(daemon.wait_ready)
            with open_client(daemon) as client:
                rank = await asyncio.to_thread(find_rank, client)
                assert (rank.account.accepted if rank else 0) >= acknowledged
        intake.end(End())
        uplink.wake()
        await asyncio.wait_for(task, PATIENCE_S)
        with open_client(daemon) as client:
            rank = await asyncio.to_thread(wait_mined, client)
            check_accounts(client)
            assert (rank.account.accepted, rank.account.gaps) == (count_kills() * BATCHES * SIZE, 0)
            assert rank.ended
    finally:
        task.cancel()
        daemon.kill()


def test_devices_and_names_alone_may_come_twice(folder: Path) -> None:
    asyncio.run(send_devices_twice(folder))


async def send_a_little(uplink: Uplink) -> int:
    """Run an uplink until what there is was written; returns how many names the daemon had before."""
    task = asyncio.create_task(uplink.run())
    await until(lambda: uplink._sender is not None and uplink._sender.window.written == 2, "all is written")
    assert uplink._sender is not None
    names = uplink._sender.names
    task.cancel()
    await asyncio.wait([task])
    return names


async def send_devices_twice(folder: Path) -> None:
    """An agent that is killed before anything that has a number sends them again."""
    intake = SpoolIntake(Spool.open(folder / "spool", hello(job=JOB)))
    tables = [Table(kind="TABLE_KIND_DEVICES", arrow=encode_table(pl.DataFrame(schema=DEVICES)))]
    intake.put(Batch(names=["a"], tables=tables), 0)
    daemon = launch(folder).wait_ready()
    try:
        endpoint = find_endpoint(daemon.address, environ={})
        async with asyncio.timeout(PATIENCE_S):
            while not await send_a_little(Uplink(endpoint, intake.spool)):
                pass
        intake.put(kernels(0, SIZE), SIZE)
        intake.end(End())
        uplink = Uplink(endpoint, intake.spool)
        await asyncio.wait_for(uplink.run(), PATIENCE_S)
        with open_client(daemon) as client:
            account = (await asyncio.to_thread(wait_mined, client)).account
            assert (account.accepted, account.invalid, account.gaps) == (SIZE, 0, 0)
    finally:
        daemon.kill()


@pytest.mark.slow  # `test_uplink` replaces the store of a daemon in memory
def test_a_daemon_whose_store_was_removed_is_sent_the_rest(folder: Path) -> None:
    asyncio.run(send_to_a_new_store(folder))


async def send_to_a_new_store(folder: Path) -> None:
    spool = Spool.open(folder / "spool", hello(job=JOB), segment_nbytes=1 << 14)
    intake = SpoolIntake(spool)
    daemon = launch(folder).wait_ready()
    uplink = Uplink(find_endpoint(daemon.address, environ={}), spool)
    task = asyncio.create_task(uplink.run())
    try:
        fill(intake, BATCHES)
        uplink.wake()
        await until(lambda: uplink.state.durable == BATCHES * SIZE, "all is durable")
        daemon.kill()
        shutil.rmtree(daemon.store)
        daemon = launch(folder)
        await asyncio.to_thread(daemon.wait_ready)
        fill(intake, BATCHES)
        intake.end(End())
        uplink.wake()
        await asyncio.wait_for(task, PATIENCE_S)
        with open_client(daemon) as client:
            account = (await asyncio.to_thread(wait_mined, client)).account
            assert account.accepted + account.lost == 2 * BATCHES * SIZE
            assert (account.gaps, account.invalid) == (1, 0)
            assert account.accepted >= BATCHES * SIZE
            (trace,) = client.window(JOB)
            assert trace.names.to_list() == [f"kernel {number}" for number in range(4 * BATCHES)]
    finally:
        task.cancel()
        daemon.kill()
