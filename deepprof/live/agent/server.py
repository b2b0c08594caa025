"""The agent's socket: which processes may connect, and every connection's packets."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from deepprof.collectors.errors import UsageError, escaped
from deepprof.collectors.live.packets import VERSION, CollectionLevel, Kind
from deepprof.live.agent.answers import AgentStatus
from deepprof.live.agent.asking import is_there
from deepprof.live.agent.hello import ProtocolError, read_hello
from deepprof.live.agent.member import Peer, ProcessMember
from deepprof.live.agent.members import SessionMembers
from deepprof.live.agent.packet_stream import make_packet, read_packets
from deepprof.live.client.retrying import Clock
from deepprof.ownership import find_fault, find_peer

log = logging.getLogger(__name__)

GREETING_S = 10.0  # for a new connection to identify itself
MOST_CONNECTIONS = 4096
WAITING = 1024  # connections not yet accepted: all processes of a node begin at once
RECEIVE_NBYTES = 4 << 20


def bind(path: Path, *, for_all: bool = False) -> socket.socket:
    """Return a socket that listens at `path`, for this user alone unless `for_all`. Raises `UsageError`, `OSError`."""
    path.parent.mkdir(mode=0o755 if for_all else 0o700, parents=True, exist_ok=True)
    if fault := find_fault(path.parent.stat(), path.parent, "socket"):
        raise UsageError(escaped(f"{path.parent}: {fault[0]}; {fault[1]}"))
    with alone(path):
        if is_there(path):
            raise UsageError(f"{path}: an agent listens there already; use it, or give another --socket")
        if path.is_socket():
            path.unlink()
        return _listen(path, for_all=for_all)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Let no other agent check `path` between our check and our listening: both would then take it."""
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _listen(path: Path, *, for_all: bool) -> socket.socket:
    """Return a socket that listens at `path`, where no file is. Raises `UsageError`."""
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        endpoint.bind(str(path))
        path.chmod(0o666 if for_all else 0o600)
        endpoint.listen(WAITING)
        endpoint.setblocking(False)
    except OSError as error:
        endpoint.close()
        raise UsageError(f"{path}: cannot listen there: {error.strerror or error}; give a short --socket") from error
    return endpoint


@dataclass(slots=True)
class AgentServer:
    """Serves one socket; `answer` returns the agent's status."""

    endpoint: socket.socket
    members: SessionMembers
    answer: Callable[[], AgentStatus]
    clock: Clock
    for_all: bool = False
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self.endpoint)
            except OSError as error:  # no descriptors left: open connections are still served
                log.warning("not-accepted", extra={"why": str(error)})
                await self.clock.sleep(1.0)
                continue
            if len(self.connections) >= MOST_CONNECTIONS:
                connection.close()
                continue
            task = loop.create_task(self.serve(connection))
            self.connections.add(task)
            task.add_done_callback(self.connections.discard)

    async def serve(self, connection: socket.socket) -> None:
        """Serve one connection; an error in it ends only that connection."""
        with contextlib.closing(connection):
            connection.setblocking(False)
            peer = Peer(*find_peer(connection))
            if peer.uid not in (os.geteuid(), 0) and not self.for_all:
                log.warning("not-admitted", extra={"pid": peer.pid, "uid": peer.uid, "why": "it is another user's"})
                return
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_NBYTES)
            conversation = _ProcessConnection(self, connection, peer)
            try:
                await conversation.hold()
            except ProtocolError as error:
                log.warning("not-understood", extra={"pid": peer.pid, "why": str(error)})
            except OSError as error:
                log.debug("connection-lost", extra={"pid": peer.pid, "why": str(error)})
            except Exception:
                log.exception("connection-failed", extra={"pid": peer.pid})
            finally:
                conversation.close()

    async def close(self) -> None:
        """End all connections, and listen no longer; a second call does nothing more."""
        if self.endpoint.fileno() >= 0:
            _unlink_own(self.endpoint)
            self.endpoint.close()
        for task in self.connections:
            task.cancel()
        await asyncio.gather(*self.connections, return_exceptions=True)


@dataclass(slots=True)
class _ProcessConnection:
    """The packets of one connection."""

    server: AgentServer
    connection: socket.socket
    peer: Peer
    member: ProcessMember | None = None
    level: CollectionLevel = CollectionLevel.OFF
    has_asked: bool = False  # a client that has asked may stay, and the agent stays as long

    async def hold(self) -> None:
        """Read packets until the other side closes. Raises `ProtocolError`, `OSError`, `TimeoutError`."""
        packets = read_packets(self.connection)
        while True:
            try:
                is_known = self.member is not None or self.has_asked
                async with asyncio.timeout(None if is_known else GREETING_S):
                    kind, payload = await anext(packets)
            except StopAsyncIteration:
                return
            await self.heed(kind, payload)

    async def heed(self, kind: int, payload: memoryview) -> None:
        """Handle a packet."""
        if kind == Kind.ASK:
            self.has_asked = True
            await self.say(Kind.ANSWER, msgspec.json.encode(self.server.answer()))
        elif self.member is None:
            if kind != Kind.HELLO:
                raise ProtocolError("it does not say who it is")
            await self.welcome(payload)
        else:
            self.member.take(kind, payload)
            if self.member.level != self.level:
                self.level = self.member.level
                with contextlib.suppress(OSError):  # it may be gone; what it has sent before is still to be read
                    await self.say(Kind.LEVEL, np.array([self.level], "<u4").tobytes())

    async def welcome(self, payload: memoryview) -> None:
        """Admit a process, and send WELCOME."""
        hello = read_hello(payload)
        self.member = self.server.members.join(hello, self.peer, time.time())
        self.level = self.member.level
        log.info("joined", extra={"pid": self.peer.pid, "job": self.member.job, "collector": hello.collector})
        await self.say(Kind.WELCOME, np.array([VERSION, self.level], "<u4").tobytes())

    async def say(self, kind: Kind, payload: bytes) -> None:
        """Send a packet; a peer that does not read loses the connection."""
        async with asyncio.timeout(GREETING_S):
            await asyncio.get_running_loop().sock_sendall(self.connection, make_packet(kind, payload))

    def close(self) -> None:
        """Note that the connection is over."""
        if self.member is not None:
            self.server.members.leave(self.member, self.server.clock.now_s())


def _unlink_own(endpoint: socket.socket) -> None:
    """Remove a listening socket's file, while it listens: until then no other agent can take its place."""
    with contextlib.suppress(OSError):
        os.unlink(endpoint.getsockname())
