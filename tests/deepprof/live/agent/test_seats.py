"""A run's seat: the connection by which an agent has that it is needed, and how long it stays without one."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from deepprof.collectors.live.packets import HEAD, Kind
from deepprof.live.agent import launching
from deepprof.live.agent import node_agent as agents
from deepprof.live.agent.asking import is_held, sit
from deepprof.live.agent.launching import LOOK_S, AgentSupervisor
from deepprof.live.agent.node_agent import IDLE_S, ORPHANED_IDLE_S, STUCK_S, AgentSettings, NodeAgent
from deepprof.live.client.endpoint import find_endpoint
from tests.deepprof.live.agent.agents import running_agent
from tests.deepprof.live.agent.test_agent import folder
from tests.patience import PATIENCE_S

from .fake_agent import answer, pack

__all__ = ["folder"]


@dataclass(slots=True)
class Hand:
    """A clock that is set by hand."""

    now: float = 1000.0

    def now_s(self) -> float:
        return self.now


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def agent(tmp_path, hand):
    """One that was started for a run and has nothing to do."""
    settings = AgentSettings(socket=tmp_path / "s", spool=tmp_path / "spool", until_idle=True)
    return NodeAgent(settings, find_endpoint(f"unix:{tmp_path}/nobody"), hand)


def lasts(agent, hand) -> float:
    """Return for how many seconds it stays."""
    began_s = hand.now
    while not agent.is_done():
        hand.now += 0.5
        assert hand.now < began_s + 10_000
    return hand.now - began_s


def test_who_sits_is_seated_until_the_other_end_goes(tmp_path):
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(tmp_path / "s"))
        endpoint.listen()
        with socket.socket(socket.AF_UNIX) as early:  # its place in the queue is ours: the answer is there before us
            early.connect(str(tmp_path / "s"))
            other, _ = endpoint.accept()
            other.close()
            assert not is_held(early)
        one, two = socket.socketpair()
        with one, two:
            assert is_held(one)
            assert is_held(one)  # looking uses nothing
            two.send(b"x")
            assert is_held(one)
            one.recv(1)
            two.close()
            assert not is_held(one)
        one, two = socket.socketpair()
        one.close()
        assert not is_held(one)
        two.close()


def test_an_agent_counts_who_sits(folder):
    with running_agent(folder, f"unix:{folder}/nobody") as real:
        lease, said = sit(real.socket, PATIENCE_S)
        assert said.pid == real.process.pid
        with lease:
            assert is_held(lease)
            lease.setblocking(True)
            lease.sendall(pack(Kind.ASK, b""))  # it may ask again, over the same connection
            head = lease.recv(HEAD.itemsize, socket.MSG_WAITALL)
            assert head[:4] == pack(Kind.ANSWER, b"")[:4]
            nbytes = np.frombuffer(head, HEAD)[0].item()[3]
            assert len(lease.recv(nbytes, socket.MSG_WAITALL)) == nbytes
            real.kill()
            lease.setblocking(False)
            assert not is_held(lease)


def test_it_stays_while_somebody_is_connected(agent, hand):
    agent.server = SimpleNamespace(connections={"a run"})
    for _ in range(100):
        hand.now += 100.0
        assert not agent.is_done()
    agent.server.connections.clear()
    assert lasts(agent, hand) == IDLE_S


def test_it_goes_soon_after_the_run_that_started_it(agent, hand, monkeypatch):
    monkeypatch.setattr(agents.os, "getppid", lambda: agent.starter + 1)
    assert lasts(agent, hand) == ORPHANED_IDLE_S


def test_two_runs_one_after_the_other_have_one_agent(agent, hand, monkeypatch):
    agent.server = SimpleNamespace(connections=set())
    monkeypatch.setattr(agents.os, "getppid", lambda: agent.starter + 1)
    hand.now += ORPHANED_IDLE_S - 0.5
    assert not agent.is_done()
    agent.server.connections.add("the second")
    hand.now += 3600.0
    assert not agent.is_done()
    agent.server.connections.clear()
    assert lasts(agent, hand) == ORPHANED_IDLE_S


def test_with_spools_and_without_a_daemon_it_gives_up_later(agent, hand, monkeypatch):
    monkeypatch.setattr(agent, "roster", SimpleNamespace(is_idle=False, is_sending=False))
    assert lasts(agent, hand) == STUCK_S
    monkeypatch.setattr(agent, "roster", SimpleNamespace(is_idle=False, is_sending=True))
    hand.now += STUCK_S * 10
    assert not agent.is_done()


def test_a_run_takes_a_seat_at_an_agent_that_another_has_started_again(tmp_path, monkeypatch):
    """Its own is gone, someone listens: it sits down there, and starts nothing."""
    monkeypatch.setattr(launching, "GLANCE_S", PATIENCE_S)
    path, now = tmp_path / "s", [100.0]
    supervisor = AgentSupervisor(path, clock=lambda: now[0])
    gone, other = socket.socketpair()
    other.close()
    supervisor.lease = gone
    replies = msgspec.json.encode(answer())
    with socket.socket(socket.AF_UNIX) as endpoint, gone:
        endpoint.bind(str(path))
        endpoint.listen()
        endpoint.settimeout(PATIENCE_S)

        kept: list[socket.socket] = []

        def serve() -> None:
            while len(kept) < 2:  # who only looks, then who sits
                connection, _ = endpoint.accept()
                kept.append(connection)
            kept[1].sendall(pack(Kind.ANSWER, replies))

        server = threading.Thread(target=serve)
        server.start()
        supervisor.check({})
        server.join(PATIENCE_S)
        assert supervisor.pid is None
        assert supervisor.lease is not None
        assert is_held(supervisor.lease)
        supervisor.check({})
        assert supervisor.next_s == now[0] + LOOK_S
        for connection in kept:
            connection.close()
