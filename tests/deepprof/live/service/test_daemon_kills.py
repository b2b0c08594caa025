"""kill -9 at any moment loses nothing that was acknowledged: many kills later the daemon has what a calm one does."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.client.repetition import cut_repeated, end_repeated
from deepprof.live.client.sender import Sender, SendPolicy
from deepprof.live.wire.figures import Account
from deepprof.live.wire.heads import make_hello
from tests.chance import draw_seed
from tests.deepprof.live.service.daemons import Daemon, launch, running
from tests.deepprof.live.service.sending import check_accounts, open_client, wait_settled
from tests.deepprof.live.service.traces import gpu_only_trace
from tests.patience import PATIENCE_S

SMALL = ("--set", "journal.segment_nbytes=1MiB", "--set", "limits.message_nbytes=512KiB")  # many segments
JOB = "killed"


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=20, kernels=150)


class Client(threading.Thread):
    """Sends batches, a few at a time between two kills, and the end when it is instructed to."""

    def __init__(self, daemon: Daemon, trace: deepprof.Trace, repeat: int) -> None:
        super().__init__(daemon=True)
        self.address, self.trace, self.repeat = daemon.address, trace, repeat
        self.batches = list(cut_repeated(trace, repeat, 500))
        self.allowed = threading.Semaphore(0)
        self.durable = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self.send())
        except BaseException as error:  # shown by the test
            self.error = error

    async def send(self) -> None:
        hello = make_hello(self.trace, JOB, collector="test")
        policy = SendPolicy(window_nbytes=1 << 20, patience_s=None, reach_s=None)
        async with Sender(find_endpoint(self.address, environ={}), hello, policy) as sender:
            for batch, count in self.batches:
                while not self.allowed.acquire(blocking=False):
                    self.durable = sender.window.durable
                    await asyncio.sleep(0.002)
                await sender.send(batch, count)
            await sender.end(end_repeated(self.trace, self.repeat))


@pytest.fixture
def folder() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="dp-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


def undisturbed(disturbed: Client) -> tuple[pl.DataFrame, Account]:
    """Return the iterations and the account of a daemon that no one kills, of the same sending."""
    with running() as daemon, open_client(daemon) as client:
        sender = Client(daemon, disturbed.trace, disturbed.repeat)
        sender.allowed.release(len(sender.batches))
        sender.start()
        sender.join(PATIENCE_S)
        assert sender.error is None
        wait_settled(client, JOB)
        return client.iterations(JOB), client.ranks(JOB)[0].account


@pytest.mark.parametrize(("kills", "repeat"), [(2, 20), pytest.param(50, 60, marks=pytest.mark.slow)])
def test_kills_lose_nothing_acknowledged(kills: int, repeat: int, trace: deepprof.Trace, folder: Path) -> None:
    chance = random.Random(draw_seed("kills of the daemon"))
    daemon = launch(folder, *SMALL).wait_ready()
    sender = Client(daemon, trace, repeat)
    sender.start()
    share = len(sender.batches) // kills
    for _ in range(kills):
        sender.allowed.release(share)
        time.sleep(chance.uniform(0, 0.15))
        acknowledged = sender.durable
        daemon.kill()
        daemon = launch(folder, *SMALL).wait_ready()
        with open_client(daemon) as client:
            ranks = client.ranks(JOB) if client.jobs() else ()
            assert sum(rank.account.accepted for rank in ranks) >= acknowledged
    sender.allowed.release(len(sender.batches))
    sender.join(PATIENCE_S)
    assert sender.error is None
    with open_client(daemon) as client:
        wait_settled(client, JOB)
        check_accounts(client)
        rows, account = client.iterations(JOB), client.ranks(JOB)[0].account
    assert daemon.stop() == 0
    expected, calm = undisturbed(sender)
    assert rows.equals(expected)
    assert account.accepted == calm.accepted == sum(count for _, count in sender.batches)
    assert account.gaps == 0
    assert account.lost == 0
