"""Requests to stop: none is lost behind what wakes the loop up, and what was there before is there again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from deepprof.live.process.stopping import stop_on_signals
from tests.deepprof.live.service.daemons import DEADLINE_S

WANTED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
TWICE = """
import asyncio, os, signal
from deepprof.live.process.stopping import stop_on_signals

async def serve():
    with stop_on_signals() as stopping:
        os.kill(os.getpid(), signal.{name})
        await stopping.wait()
        print("stopping", flush=True)
        os.kill(os.getpid(), signal.{name})
        await asyncio.sleep(1000)

asyncio.run(serve())
"""


def fill_pipe(loop: asyncio.AbstractEventLoop) -> None:
    """Wake the loop up, as other threads do, until its pipe contains no more; it is not read before we wait."""
    with suppress(BlockingIOError):
        while True:
            loop._csock.send(b"\0" * 4096)  # type: ignore[attr-defined]


@contextmanager
def handled(number: int, handler: object) -> Iterator[None]:
    before = signal.signal(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.signal(number, before)


async def hear(number: int) -> bool:
    """Return whether a signal is heard that comes while the pipe is full."""
    with stop_on_signals() as stopping:
        fill_pipe(asyncio.get_running_loop())
        os.kill(os.getpid(), number)
        async with asyncio.timeout(DEADLINE_S):
            return await stopping.wait()


@pytest.mark.parametrize("number", WANTED)
def test_one_that_comes_while_the_pipe_is_full_is_heard(number: int) -> None:
    assert asyncio.run(hear(number))


def test_what_was_there_before_is_there_again() -> None:
    def theirs(*_: object) -> None:
        raise AssertionError

    with handled(signal.SIGTERM, theirs):
        before = [signal.getsignal(number) for number in WANTED]
        assert asyncio.run(hear(signal.SIGHUP))
        assert [signal.getsignal(number) for number in WANTED] == before


def test_what_is_ignored_stays_so() -> None:
    async def ignore() -> bool:
        with stop_on_signals() as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            return stopping.is_set()

    with handled(signal.SIGHUP, signal.SIG_IGN):
        assert not asyncio.run(ignore())


@pytest.mark.parametrize("number", WANTED)
def test_a_second_one_ends_the_process(number: signal.Signals) -> None:
    code = TWICE.format(name=number.name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert (done.stdout, done.returncode) == ("stopping\n", -number)
