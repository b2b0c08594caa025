"""An agent as its own process, and a job that speaks to it: for tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deepprof.collectors.live.packets import EVENT, HEAD, MEMORY_CHANGE, RANGE, Kind, Reason
from deepprof.live.agent.answers import AgentStatus
from deepprof.live.agent.asking import NotAnsweredError, ask
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.service.daemons import wait_for
from tests.patience import PATIENCE_S

__all__ = ["AgentProcess", "Job", "iterations", "running_agent"]

DEADLINE_S = PATIENCE_S
PACKETS = {
    EVENT: (Kind.EVENTS, made.events),
    RANGE: (Kind.RANGES, made.ranges),
    MEMORY_CHANGE: (Kind.MEMORY_CHANGES, made.changes),
}


@dataclass
class AgentProcess:
    """A running agent: its process, where it listens, what it has logged."""

    folder: Path
    to: str
    options: tuple[str, ...] = ()
    process: Any = None
    log: list[dict[str, Any]] = field(default_factory=list)
    reader: threading.Thread | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "a" / "agent.sock"

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def start(self) -> AgentProcess:
        command = [sys.executable, "-m", "deepprof", "agent", "--socket", str(self.socket), "--to", self.to]
        command += ["--spool", str(self.spool), "--log-format", "json", *self.options]
        env = {name: value for name, value in os.environ.items() if not name.startswith("DEEPPROF_")}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self.reader = threading.Thread(target=self._follow, args=(self.process.stderr,), daemon=True)
        self.reader.start()
        wait_for(self.answers, "the agent answers")
        return self

    def _follow(self, lines: Any) -> None:
        with lines:
            for line in lines:
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.log.append({"event": "raw", "text": line})

    def answers(self) -> bool:
        assert self.process.poll() is None, f"the agent ended with {self.process.returncode}: {self.log[-5:]}"
        try:
            self.ask()
        except NotAnsweredError:
            return False
        return True

    def ask(self) -> AgentStatus:
        return ask(self.socket, DEADLINE_S)

    def wait(self, what: Callable[[AgentStatus], bool], words: str) -> AgentStatus:
        """Wait until the agent's answer is as wished."""
        wait_for(lambda: what(self.ask()), words)
        return self.ask()

    def arrived(self, session: str = made.SESSION) -> bool:
        """Whether the process has ended and everything of it has arrived."""
        return any(p.session == session and p.ended and p.durable >= p.next > 0 for p in self.ask().processes)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        if self.reader:
            self.reader.join(DEADLINE_S)

    def stop(self) -> int:
        self.process.terminate()
        code = int(self.process.wait(DEADLINE_S))
        if self.reader:
            self.reader.join(DEADLINE_S)
        return code


@contextmanager
def running_agent(folder: Path, to: str, *options: str) -> Iterator[AgentProcess]:
    """Give an agent that answers; its folder must have a short name."""
    agent = AgentProcess(folder, to, options)
    try:
        yield agent.start()
    finally:
        agent.kill()


class Job:
    """A process that collects, as the agent sees one: it connects, and goes on after a break."""

    def __init__(self, agent: AgentProcess, *, session: str = made.SESSION, **words: object) -> None:
        self.agent, self.session, self.words = agent, session, {"env__DEEPPROF_JOB": "demo", "env__RANK": 0, **words}
        self.texts: list[str] = []
        self.next = 0
        self.reason = Reason.NONE
        self.offset_ns = time.time_ns() - time.monotonic_ns()  # once: a pause between the two looks like a clock set
        self.connect()

    def connect(self, *, continues: bool = False) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(str(self.agent.socket))
        self.write(Kind.HELLO, made.hello(self.session, **self.words, **({"continues": 1} if continues else {})))
        assert self.read()[0] == Kind.WELCOME
        if self.texts:
            self.write(Kind.NAMES, made.names(self.texts))

    def reconnect(self) -> None:
        self.socket.close()
        self.connect(continues=True)
        self.reason = Reason.DISCONNECTED

    def write(self, kind: int, payload: bytes) -> None:
        self.socket.sendall(made.packet(kind, payload))

    def read(self) -> tuple[int, bytes]:
        head = np.frombuffer(self._exactly(HEAD.itemsize), HEAD)[0]
        return int(head["kind"]), self._exactly(int(head["nbytes"]))

    def _exactly(self, nbytes: int) -> bytes:
        got = b""
        while len(got) < nbytes:
            piece = self.socket.recv(nbytes - len(got))
            assert piece, "the agent closed the connection"
            got += piece
        return got

    def name(self, *texts: str) -> None:
        self.write(Kind.NAMES, made.names(list(texts), len(self.texts) + 1))
        self.texts += texts

    def records(self, rows: np.ndarray) -> None:
        kind, make = PACKETS[rows.dtype]
        self.write(kind, make(self.next, rows, self.reason))
        self.next += len(rows)
        self.reason = Reason.NONE

    def tick(self, now_ns: int | None = None, **more: int) -> None:
        now = time.monotonic_ns() if now_ns is None else now_ns
        self.write(Kind.TICK, made.tick(now, offset_ns=self.offset_ns, next=self.next, **more))

    def end(self) -> None:
        self.write(Kind.END, made.end(self.next))
        self.socket.close()


def iterations(count: int, begin_ns: int, *, kernels: int = 40, pause_ns: int = 200_000) -> np.ndarray:
    """Kernels of `count` iterations, all alike, of names 1 to 13, 10 µs apart, with a pause before each iteration."""
    order = np.random.default_rng(5).integers(1, 14, kernels)
    within = np.arange(kernels) * 10_000
    starts = begin_ns + (np.arange(count)[:, None] * (kernels * 10_000 + pause_ns) + within).ravel()
    return made.kernels(starts, 8000, name=np.tile(order, count))
