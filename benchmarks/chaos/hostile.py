"""Clients that are, flood, stop halfway or do not read, as processes next to the honest senders."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from benchmarks.chaos.sender import die_with_parent
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.query_pb2 import ReadWindowRequest, WatchRequest
from deepprof.v1.records_pb2 import CLOCK_SESSION, TABLE_KIND_DEVICE_EVENTS, Batch, End, Gap, Hello, Table

__all__ = ["ATTACKS", "CONTROL", "Target", "attack"]

SEND = "/deepprof.v1.Ingest/Send"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ANSWER_S = 5.0  # that an answer is waited for
HELD = 200  # connections or streams at a time
CONTROL = "the control: busy processors"
BURST = 100_000  # loops of the control at a time, some milliseconds
GAPS = (1, 2**31, 2**32 - 1, 2**32, 2**62, 2**64 - 1)
Request = bytes | SendRequest


@dataclass(frozen=True, slots=True)
class Target:
    """Where the daemon is: its socket's path, its addresses, and a token that may send and read."""

    path: str
    tcp: str
    metrics: str
    token: str


@dataclass
class Attacker:
    """A hostile client: what it holds open, and its dice."""

    target: Target
    chance: random.Random
    held: deque[Callable[[], object]] = field(default_factory=deque)
    number: int = 0
    channel: Any = None

    def hold(self, close: Callable[[], object]) -> None:
        """Keep something open, until it is the oldest of too many."""
        self.held.append(close)
        while len(self.held) > HELD:
            self.held.popleft()()

    def call(self, method: str, requests: Iterator[Request], timeout_s: float = ANSWER_S) -> Any:
        """Open a stream of any messages, or of bytes that are none; the answers are bytes."""
        if self.channel is None:
            options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))
            address = self.chance.choice((f"unix:{self.target.path}", self.target.tcp))
            self.channel = grpc.insecure_channel(address, options)
        metadata = (("authorization", f"Bearer {self.target.token}"),)
        return self.channel.stream_stream(method, serialize)(requests, metadata=metadata, timeout=timeout_s)

    def say(self, *requests: Request) -> None:
        """Send messages, and hear what comes until the end."""
        for _ in self.call(SEND, iter(requests)):
            pass

    def hang(self, *requests: Request) -> None:
        """Send messages, and then nothing: the stream stays open."""
        words: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        for request in requests:
            words.put(request)
        call = self.call(SEND, iter(words.get, None), timeout_s=3600)

        def close() -> None:
            words.put(None)
            call.cancel()

        self.hold(close)

    def connect(self, address: str = "") -> socket.socket:
        """Return a connection of bytes to the daemon's socket, or to one of its TCP addresses."""
        if address:
            host, _, port = address.rpartition(":")
            return socket.create_connection((host, int(port)), timeout=ANSWER_S)
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(ANSWER_S)
        found.connect(self.target.path)
        return found

    def hello(self, job: str = "") -> SendRequest:
        """Return a Hello of a job that no one has had, or of `job`."""
        self.number += 1
        name = job or f"hostile-{os.getpid()}-{self.number}"
        return SendRequest(hello=Hello(job=name, rank=0, collector="hostile", clock=CLOCK_SESSION))


def serialize(request: Any) -> bytes:
    return request if isinstance(request, bytes) else bytes(request.SerializeToString())


def flood_hellos(attacker: Attacker) -> None:
    """Say Hello for ever new jobs, and go."""
    attacker.say(attacker.hello())


def tell_gaps(attacker: Attacker) -> None:
    """Tell of more lost records than there can be."""
    lost = attacker.chance.choice(GAPS)
    first = attacker.chance.choice((0, 1, 2**62))
    gap = SendRequest(gap=Gap(first=first, lost=lost, reason="r" * attacker.chance.choice((1, 64, 65))))
    attacker.say(attacker.hello("hostile-gaps"), gap, SendRequest(end=End()))


def break_limits(attacker: Attacker) -> None:
    """Send messages that are too large, have too many names, or tables that are none."""
    size = attacker.chance.choice((1 << 16, 1 << 19, 1 << 21))
    batch = attacker.chance.choice(
        (
            Batch(names=["n" * size]),
            Batch(names=["n"] * 70_000),
            Batch(tables=[Table(kind=TABLE_KIND_DEVICE_EVENTS, arrow=attacker.chance.randbytes(size))]),
            Batch(first=2**63, tables=[Table(kind=TABLE_KIND_DEVICE_EVENTS, arrow=b"")] * 1000),
        )
    )
    attacker.say(attacker.hello("hostile-limits"), SendRequest(batch=batch))


def send_noise(attacker: Attacker) -> None:
    """Send random bytes: as a message, and on bare connections to every address."""
    with contextlib.suppress(grpc.RpcError):
        attacker.say(attacker.chance.randbytes(attacker.chance.randint(1, 4096)))
    for address in ("", attacker.target.tcp, attacker.target.metrics):
        with attacker.connect(address) as connection, contextlib.suppress(OSError):
            connection.sendall(attacker.chance.choice((b"", PREFACE)) + attacker.chance.randbytes(4096))


def open_and_close(attacker: Attacker) -> None:
    """Open a stream, and break it off at once, or right after a Hello."""
    call = attacker.call(SEND, iter(attacker.chance.choice(((), (attacker.hello("hostile-closing"),)))))
    call.cancel()


def name_hugely(attacker: Attacker) -> None:
    """Say Hello with names that are too long, or are no names."""
    size = attacker.chance.choice((129, 10_000, 400_000))
    job = attacker.chance.choice(("j" * size, "\0" * size, "../" * size, "\U0001f4a5" * size))
    hello = Hello(job=job, rank=attacker.chance.choice((0, 2**32 - 1)), collector="c" * size, host="h" * size)
    attacker.say(SendRequest(hello=hello))


def say_nothing(attacker: Attacker) -> None:
    """Open streams and never send Hello."""
    attacker.hang()


def say_only_hello(attacker: Attacker) -> None:
    """Say Hello, and then nothing."""
    attacker.hang(attacker.hello())


def stop_halfway(attacker: Attacker) -> None:
    """Open connections with half a preface, and leave them so."""
    connection = attacker.connect(attacker.chance.choice(("", attacker.target.tcp)))
    connection.sendall(PREFACE[: attacker.chance.randint(0, len(PREFACE))])
    attacker.hold(connection.close)


def never_read(attacker: Attacker) -> None:
    """Ask for much, and read none of it."""
    with contextlib.suppress(OSError):
        connection = attacker.connect(attacker.target.metrics)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        attacker.hold(connection.close)
    asked = (("ReadWindow", ReadWindowRequest(job="honest-0")), ("Watch", WatchRequest(interval_ms=100)))
    name, request = attacker.chance.choice(asked)
    call = attacker.call(f"/deepprof.v1.Query/{name}", iter((request.SerializeToString(),)), timeout_s=3600)
    attacker.hold(call.cancel)


def claim(attacker: Attacker) -> None:
    """Claim an honest sender's rank under another collector's name."""
    attacker.say(attacker.hello(f"honest-{attacker.chance.randrange(6)}"), SendRequest(end=End()))


def take_over(attacker: Attacker) -> None:
    """Say Hello for an honest sender's rank under that very collector's name, as only it should be able to."""
    job = f"honest-{attacker.chance.randrange(6)}"
    attacker.hang(SendRequest(hello=Hello(job=job, rank=0, collector="chaos", clock=CLOCK_SESSION)))


def burn(_: Attacker) -> None:
    """Keep a processor busy, and the daemon not: what that alone does to the honest ones."""
    for _number in range(BURST):
        pass


ATTACKS: dict[str, Callable[[Attacker], None]] = {
    "Hellos of new jobs": flood_hellos,
    "impossible gaps": tell_gaps,
    "messages over the limits": break_limits,
    "random bytes": send_noise,
    "streams opened and closed": open_and_close,
    "huge names": name_hugely,
    "streams without Hello": say_nothing,
    "Hello and then nothing": say_only_hello,
    "half a preface": stop_halfway,
    "readers that do not read": never_read,
    "another's rank": claim,
    "another's name": take_over,
    CONTROL: burn,
}


def attack(name: str, target: Target, seed: int, done: Any) -> None:
    """Be hostile until killed, at the lowest priority: what is measured is the daemon's work, not ours."""
    die_with_parent()
    os.nice(19)
    attacker = Attacker(target, random.Random(seed))
    while True:
        try:
            ATTACKS[name](attacker)
        except (grpc.RpcError, OSError):
            if attacker.channel is not None and attacker.chance.random() < 0.05:
                attacker.channel.close()
                attacker.channel = None
        with done.get_lock():
            done.value += 1
