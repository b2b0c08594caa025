"""Files that may be open: the daemon takes as many as it can get, and connections use none that the rest needs."""

from __future__ import annotations

import resource
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from deepprof.live.service.access.options import RESERVED_FILES, most_connections
from deepprof.v1.records_pb2 import Batch, End
from tests.deepprof.live.service.access.servers import configure
from tests.deepprof.live.service.daemons import Daemon, launch, wait_for
from tests.deepprof.live.service.engines import hello
from tests.deepprof.live.service.raw import RawStream

MOST = RESERVED_FILES + 32
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # then nothing for ever


@pytest.mark.parametrize(
    ("addresses", "files", "most"),
    [
        ("unix:/a/b", MOST, 32),
        ("unix:/a/b,127.0.0.1:1", MOST, 10),
        ("unix:/a/b", 65_536, 4096),
        ("unix:/a/b", resource.RLIM_INFINITY, 4096),
        ("unix:/a/b", 16, 1),
    ],
)
def test_connections_leave_files_for_the_rest(
    addresses: str, files: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert most_connections(configure(listen__addresses=addresses)) == most


@contextmanager
def limited(soft: int, hard: int) -> Iterator[Daemon]:
    """Give a daemon that is started with this many files."""
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        shell = f'ulimit -S -n {soft} && ulimit -H -n {hard} && exec "$0" "$@"'
        daemon = launch(Path(folder), before=("sh", "-c", shell))
        try:
            yield daemon.wait_ready()
        finally:
            daemon.kill()


def test_it_takes_as_many_files_as_it_may() -> None:
    with limited(MOST, MOST + 1) as daemon:
        limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert line.split()[3:5] == [str(MOST + 1)] * 2


def test_connections_that_say_nothing_leave_it_its_files() -> None:
    with limited(MOST, MOST) as daemon, RawStream(daemon) as stream, ExitStack() as stack:
        stream.say(hello=hello("train"))
        stream.hear()
        for _ in range(MOST):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(daemon.address.removeprefix("unix:"))
            with suppress(OSError):  # those that are not let in
                silent.send(GREETING)
        wait_for(lambda: count_files(daemon) > 32, "they have come in")
        stream.say(batch=Batch(names=["kernel"]))
        stream.say(end=End())
        assert any(answer.ended for answer in stream.answers())
        assert daemon.get("/healthz")[0] == 200
        assert count_files(daemon) < MOST


def count_files(daemon: Daemon) -> int:
    """Return how many files the daemon has open."""
    return sum(1 for _ in Path(f"/proc/{daemon.process.pid}/fd").iterdir())
