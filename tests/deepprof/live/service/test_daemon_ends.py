"""How a daemon ends, and begins again: signals at bad moments, a store that goes, no room for the history."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path

import grpc
import pytest

import deepprof
from deepprof.live.client.daemon import Daemon as Client
from deepprof.live.client.errors import DaemonError
from deepprof.live.service.fsck import check_store
from deepprof.live.wire.cutting import cut
from deepprof.live.wire.heads import make_end, make_hello
from tests.deepprof.live.service.daemons import DEADLINE_S, Daemon, launch, running, wait_for
from tests.deepprof.live.service.raw import RawStream
from tests.deepprof.live.service.sending import check_accounts, iterations_of, open_client, wait_settled
from tests.deepprof.live.service.traces import gpu_only_trace


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=60, kernels=200)


@pytest.fixture
def folder() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="dp-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


def send(daemon: Daemon, trace: deepprof.Trace, job: str) -> grpc.StatusCode:
    """Send a whole trace in small messages; return how that ended."""
    with RawStream(daemon) as stream:
        stream.say(hello=make_hello(trace, job, collector="test"))
        for batch in cut(trace, records=1000):
            stream.say(batch=batch)
        stream.say(end=make_end(trace))
        return stream.fate()


def is_taken(daemon: Daemon, client: Client, trace: deepprof.Trace, job: str) -> bool:
    """Send a whole trace and have it saved; return whether there was room for that."""
    fate = send(daemon, trace, job)
    assert fate in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
    with contextlib.suppress(DaemonError):
        client.iterations(job)  # has the history written
    return fate is grpc.StatusCode.OK


def is_mined(client: Client, job: str, trace: deepprof.Trace) -> bool:
    """Return whether all of a trace was taken."""
    return client.ranks(job)[0].account.accepted == trace.accounting.kept


# A daemon that gives calls so long to end that it cannot have stopped by itself when it is asked once more.
PATIENT = f"""
import sys
from deepprof.commands import main
from deepprof.live.service import daemon
daemon.GRACE_S = {DEADLINE_S}
sys.exit(main(sys.argv[1:]))
"""


def test_a_second_sigterm_ends_it_at_once_and_loses_nothing(trace: deepprof.Trace, folder: Path) -> None:
    daemon = launch(folder, program=("-c", PATIENT)).wait_ready()
    with RawStream(daemon) as stream:
        stream.say(hello=make_hello(trace, "a", collector="test"))
        for batch in cut(trace, records=1000):
            stream.say(batch=batch)
        stream.hear_durable(trace.accounting.kept)
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: daemon.event("stopping"), "it stops")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(DEADLINE_S) == -signal.SIGTERM  # one that ends by itself returns 0
    daemon.close()
    assert check_store(daemon.store) == []
    again = launch(folder).wait_ready()
    try:
        with open_client(again) as client:
            assert client.ranks("a")[0].account.accepted == trace.accounting.kept
            check_accounts(client)
    finally:
        again.kill()


def test_sigterm_while_it_recovers_ends_it_soon(folder: Path) -> None:
    trace = gpu_only_trace(iterations=300, kernels=300)
    daemon = launch(folder).wait_ready()
    for number in range(3):  # each below what has a checkpoint written
        with RawStream(daemon) as stream:
            stream.say(hello=make_hello(trace, f"job-{number}", collector="test"))
            for batch in cut(trace, records=5000):
                stream.say(batch=batch)
            stream.hear_durable(trace.accounting.kept)
    daemon.kill()
    stopped = launch(folder)
    wait_for(lambda: stopped.event("listening"), "it listens")
    assert stopped.stop() == 0
    again = launch(folder).wait_ready()
    try:
        with open_client(again) as client:
            check_accounts(client)
            assert len(client.jobs()) == 3
            assert all(client.ranks(job.job)[0].account.accepted == trace.accounting.kept for job in client.jobs())
    finally:
        again.kill()
    assert check_store(daemon.store) == []


def test_a_store_removed_under_it_ends_it_with_one_line(trace: deepprof.Trace) -> None:
    with running() as daemon:
        with open_client(daemon) as client:
            client.send(trace, "a")
        shutil.rmtree(daemon.store)
        assert daemon.process.wait(DEADLINE_S) not in (0, -signal.SIGKILL)
        daemon.close()
        said = " ".join(str(line) for line in daemon.log)
        assert "was removed or replaced" in said
        assert "Traceback" not in said


def test_a_history_without_room_holds_nothing_up() -> None:
    """The journal's segments stay small enough to be written, SQLite's files do not."""
    trace = gpu_only_trace(iterations=1500, kernels=6)
    settings = ["journal.segment_nbytes=1MiB", "limits.message_nbytes=512KiB"]
    with running(settings=settings) as daemon, open_client(daemon) as client:
        pid, (_, hard) = daemon.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
        names = [f"team/run:{number}" for number in range(200)]
        with RawStream(daemon) as running_on:
            running_on.say(hello=make_hello(trace, "running", collector="test"))
            running_on.hear()
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 20, hard))
            sent = list(takewhile(partial(is_taken, daemon, client, trace), names))
            assert len(sent) < len(names)  # a new rank cannot begin: that is written to the history, whose file is full
            for batch in cut(trace, records=1000):
                running_on.say(batch=batch)
            running_on.hear_durable(trace.accounting.kept)  # one that has begun goes on
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        for name in (*sent, "running"):
            wait_for(partial(is_mined, client, name, trace), "it is mined")
        check_accounts(client)
        for name in sent[1:]:
            client.forget(name)  # else each is examined before `room`
        assert send(daemon, trace, "room") is grpc.StatusCode.OK
        wait_settled(client, "room")
        check_accounts(client)
        assert client.iterations("room").equals(iterations_of(trace))
        assert client.iterations(names[0]).height > 0
        wait_for(lambda: daemon.get("/readyz")[0] == 200, "ready again")


def test_the_same_collector_after_its_end_is_told_so(trace: deepprof.Trace) -> None:
    with running() as daemon:
        for _ in range(2):
            assert send(daemon, trace, "once") is grpc.StatusCode.OK
        with open_client(daemon) as client:
            wait_settled(client, "once")
            check_accounts(client)
            assert client.ranks("once")[0].account.accepted == trace.accounting.kept
