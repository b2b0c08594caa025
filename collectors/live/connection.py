"""One connection to the agent, used by a thread next to the job: no call waits longer than its timeout."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepprof.collectors.live.packets import HEAD, MAGIC, VERSION, CollectionLevel, Kind
from deepprof.ownership import is_trusted

CONNECT_S, WELCOME_S, HEARD_NBYTES = 0.5, 10.0, 64
ENDING_S = 1.0  # how long a job that ends waits for an agent that never answered
SEND_NBYTES = 1 << 20
QUIETLY = getattr(socket, "MSG_NOSIGNAL", 0)  # a job may have set SIGPIPE to its default, which kills it


class AgentLostError(Exception):  # it is a state of the connection, not a mistake
    """The agent is gone, or does not follow the protocol."""


def connect(path: Path) -> Connection | None:
    """Return a connection to the socket at `path`, or None if no trusted process listens or no descriptor is free."""
    try:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        door.settimeout(CONNECT_S)
        door.connect(str(path))
        if not is_trusted(door, path):
            raise PermissionError(f"{path} is another user's")
        door.setblocking(False)
        return Connection(door)
    except (OSError, ValueError):  # ValueError: a path with a NUL in it
        door.close()
        return None


def _identify(end: socket.socket) -> tuple[int, int] | None:
    """Return which file the descriptor of `end` is now: a job may close our descriptors and reuse their numbers."""
    try:
        found = os.fstat(end.fileno())
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Connection:
    """Sends the pieces of packets in order, and receives the agent's level. Other threads may call `wake` only."""

    def __init__(self, door: socket.socket) -> None:
        self.door, self.pieces = door, deque[memoryview]()
        self.level, self.welcome, self.heard = CollectionLevel.ON, False, bytearray()
        self.ear, self.bell = socket.socketpair()
        self.ear.setblocking(False)
        self.bell.setblocking(False)
        self.ends = [(end, _identify(end)) for end in (self.door, self.ear, self.bell)]

    def close(self) -> None:
        """Close each descriptor that is still ours."""
        for end, known in self.ends:
            if _identify(end) == known:
                end.close()
            else:
                end.detach()

    @property
    def is_whole(self) -> bool:
        """Whether the descriptors are still ours: nothing may be written into a file of the job."""
        return all(_identify(end) == known for end, known in self.ends)

    def wake(self) -> None:
        """End the wait of the thread that is in `step`."""
        with contextlib.suppress(OSError):  # full: the thread wakes anyway; closed: no thread is left
            if self.is_whole:
                self.bell.send(b"\0", QUIETLY)

    def queue(self, packet: Sequence[bytes | memoryview]) -> None:
        """Queue a packet's pieces."""
        self.pieces.extend(memoryview(piece) for piece in packet)

    def step(self, timeout_s: float) -> None:
        """Send and receive what is possible now, waiting at most `timeout_s`; raises `AgentLostError` or OSError."""
        if not self.is_whole:
            raise AgentLostError("the job has closed its descriptors")
        poll = select.poll()
        poll.register(self.ear, select.POLLIN)
        poll.register(self.door, select.POLLIN | (select.POLLOUT if self.pieces else 0))
        ready = dict(poll.poll(timeout_s * 1000))
        if self.ear.fileno() in ready:
            self.ear.recv(4096)
        happened = ready.get(self.door.fileno(), 0)
        if happened & select.POLLOUT:
            self.send()
        if happened & ~select.POLLOUT:
            self.receive()

    def send(self) -> None:
        """Send as much as the kernel needs."""
        with contextlib.suppress(BlockingIOError):
            while self.pieces:
                sent = self.door.send(self.pieces[0][:SEND_NBYTES], QUIETLY)
                if sent == len(self.pieces[0]):
                    self.pieces.popleft()
                else:
                    self.pieces[0] = self.pieces[0][sent:]

    def receive(self) -> None:
        """Read what the agent has sent, and follow each complete packet."""
        said = self.door.recv(4096)
        if not said:
            raise AgentLostError("it closed the connection")
        self.heard += said
        while len(self.heard) >= HEAD.itemsize:
            head = np.frombuffer(bytes(self.heard[: HEAD.itemsize]), HEAD)[0]
            nbytes = int(head["nbytes"])
            if head["magic"] != MAGIC or nbytes > HEARD_NBYTES:
                raise AgentLostError("what it says is no packet")
            end = HEAD.itemsize + nbytes
            if len(self.heard) < end:
                return
            self.follow(int(head["kind"]), bytes(self.heard[HEAD.itemsize : end]))
            del self.heard[:end]

    def follow(self, kind: int, payload: bytes) -> None:
        """Apply one packet of the agent."""
        values = np.frombuffer(payload[: len(payload) // 4 * 4], "<u4").tolist()
        if kind == Kind.WELCOME and len(values) >= 2:
            if values[0] != VERSION:
                raise AgentLostError(f"it speaks version {values[0]}")
            self.welcome, self.level = True, CollectionLevel(min(values[1], 1))
        elif kind == Kind.LEVEL and values:
            self.level = CollectionLevel(min(values[0], 1))

    def wait_welcome(self, ending: threading.Event) -> None:
        """Send what is queued until the agent has answered; raises `AgentLostError` when it does not in ten seconds."""
        patience_s = time.monotonic() + WELCOME_S
        while not self.welcome:
            if time.monotonic() > patience_s:
                raise AgentLostError("it does not answer")
            if ending.is_set():
                patience_s = min(patience_s, time.monotonic() + ENDING_S)
            self.step(0.1)

    def flush(self, timeout_s: float) -> None:
        """Send all that is queued; raises `AgentLostError` after `timeout_s`."""
        patience_s = time.monotonic() + timeout_s
        while self.pieces:
            if time.monotonic() > patience_s:
                raise AgentLostError("it does not read")
            self.step(0.1)
