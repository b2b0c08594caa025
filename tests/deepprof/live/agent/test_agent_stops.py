"""Agents that are instructed to stop while a job sends, that end by themselves, and that cannot begin."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from deepprof.collectors.live.packets import Reason
from deepprof.live.agent import server
from deepprof.live.agent.asking import is_there
from deepprof.live.agent.hello import read_hello
from deepprof.live.agent.member import Peer
from deepprof.live.agent.members import RETURN_S
from deepprof.live.agent.node_agent import IDLE_S, AgentSettings, NodeAgent
from deepprof.live.client.endpoint import find_endpoint
from tests.chance import examples
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.agents import DEADLINE_S, AgentProcess, Job, iterations, running_agent
from tests.deepprof.live.agent.test_agent import NAMES, folder, wait_ended
from tests.deepprof.live.service.daemons import running

__all__ = ["folder"]

SECOND = 10**9


def try_to_listen(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deepprof", "agent", "--to", "unix:/nowhere/at/all", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)


def test_stop_while_a_job_sends_loses_nothing_that_was_taken(folder: Path) -> None:
    stops = max(2, examples(3))  # the second one ends what was continued
    with running() as daemon:
        agent = AgentProcess(folder, daemon.address).start()
        job = Job(agent)
        job.name(*NAMES)
        now = time.monotonic_ns()
        taken = 0
        for _ in range(stops):
            job.tick(now)
            for _ in range(20):
                job.records(iterations(10, now))
                now += SECOND // 10
            job.tick(now)
            agent.wait(lambda answer: answer.processes[0].records == job.next, "it has come")
            taken = job.next
            agent.process.terminate()  # most of the last second is kept for its turn
            job.socket.close()
            agent.process.wait(DEADLINE_S)
            assert agent.process.returncode == 0
            assert not agent.socket.exists()
            agent.start()
            job.connect(continues=True)
            job.reason = Reason.DISCONNECTED
            now += SECOND
        job.end()  # this agent has never seen a record of it
        rank = wait_ended(daemon)
        agent.kill()
    assert rank.account.accepted == taken == stops * 20 * 400
    assert rank.account.lost == 0


@dataclass
class Hand:
    """A clock that is set by hand."""

    now: float = 1000.0

    def now_s(self) -> float:
        return self.now


@pytest.mark.parametrize(("until_idle", "expected_s"), [(True, IDLE_S), (False, None)])
def test_one_that_was_started_for_a_run_ends_when_nothing_is_left(
    folder: Path, until_idle: bool, expected_s: float | None
) -> None:
    hand = Hand()
    settings = AgentSettings(socket=folder / "s", spool=folder / "spool", until_idle=until_idle)
    agent = NodeAgent(settings, find_endpoint(f"unix:{folder}/nobody"), hand)  # type: ignore[arg-type]
    member = agent.members.join(read_hello(made.hello()), Peer(os.getpid(), os.getuid()), 0.0)
    for _ in range(100):
        hand.now += 10.0
        assert not agent.is_done()
    agent.members.leave(member, hand.now)
    agent.members.sweep(hand.now + 1)
    assert not agent.is_done()  # the process lives, and may come back
    agent.members.sweep(hand.now + RETURN_S)
    last = hand.now
    while not agent.is_done() and hand.now < last + 1000:
        hand.now += 0.5
    assert hand.now == last + (expected_s or 1000)


def test_one_place_has_one_agent(folder: Path) -> None:
    with running_agent(folder, "unix:/nowhere/at/all") as agent:
        found = try_to_listen("--socket", str(agent.socket), "--spool", str(folder / "other"))
        assert found.returncode == 2
        assert "an agent listens there already" in found.stderr
        assert is_there(agent.socket)
        assert stat.S_IMODE(os.stat(agent.socket).st_mode) == 0o600


def test_who_looks_whether_one_listens_is_alone_until_it_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def look(path: Path) -> bool:
        with path.with_suffix(".lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(path)
        return False

    monkeypatch.setattr(server, "is_there", look)
    with server.bind(folder / "agent.sock") as endpoint:
        assert held == [folder / "agent.sock"]
        assert is_there(folder / "agent.sock")
        with (folder / "agent.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert endpoint.getsockname() == str(folder / "agent.sock")


def test_one_at_whose_door_many_wait_is_there(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as endpoint, ExitStack() as waiting:
        endpoint.bind(str(folder / "s"))
        endpoint.listen(0)
        for _ in range(3):
            one = waiting.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            one.connect_ex(str(folder / "s"))
        assert is_there(folder / "s")


def test_a_socket_that_nobody_listens_at_is_replaced(folder: Path) -> None:
    (folder / "a").mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "a" / "agent.sock"))
    with running_agent(folder, "unix:/nowhere/at/all") as agent:
        assert is_there(agent.socket)


@pytest.mark.parametrize(
    "where",
    ["x" * 120, "file/agent.sock", ""],
)
def test_where_it_cannot_listen_one_line_says_so(folder: Path, where: str) -> None:
    (folder / "file").write_text("")
    found = try_to_listen("--socket", str(folder / where), "--spool", str(folder / "spool"))
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    assert str(folder) in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_where_it_cannot_keep_records_one_line_says_so(folder: Path) -> None:
    (folder / "file").write_text("")
    found = try_to_listen("--socket", str(folder / "s"), "--spool", str(folder / "file"))
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "options", [["--overhead", "nan"], ["--overhead", "0"], ["--spool-limit", "-1"], ["--spool-limit", "x"]]
)
def test_wrong_options_are_told(folder: Path, options: list[str]) -> None:
    found = try_to_listen("--socket", str(folder / "s"), "--spool", str(folder / "spool"), *options)
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
