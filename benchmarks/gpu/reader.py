"""An agent that only counts: it takes in what a job sends as fast as it comes, and lays it on the Unix clock.

Device times become Unix times as in the real agent: by the ticks, in the order in which ticks and records come, with
the agent's own `ClockFollower`. So a clock that is not what it states shows here as it would there.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from deepprof.collectors.live.packets import (
    CONTEXT,
    CONTEXT_SUM,
    EVENT,
    HEAD,
    LAUNCH,
    MAGIC,
    NO_TIME,
    NOTICE_HEAD,
    RECORDS_HEAD,
    TICK,
    VERSION,
    CollectionLevel,
    Kind,
    Reason,
)
from deepprof.live.agent.clocks import ClockFollower

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["EventLog", "Reader", "Session", "TimeCheck", "demangle", "plain"]

ACTIVITIES = ("kernel", "memcpy", "memset", "graph", "sync")
KERNEL = ACTIVITIES.index("kernel")
WORK = tuple(ACTIVITIES.index(each) for each in ("kernel", "memcpy", "memset"))
SLACK_NS = 50_000_000  # between two clocks, at the worst
NO_EVENTS = np.zeros(0, EVENT)


class Consumer(Protocol):
    """Takes events whose times are Unix times."""

    def take(self, events: Any) -> None: ...


@dataclass
class EventLog:
    """Keeps all events."""

    pieces: list[Any] = field(default_factory=list)

    def take(self, events: Any) -> None:
        self.pieces.append(events)

    @property
    def events(self) -> Any:
        """All of them by start."""
        found = np.concatenate([NO_EVENTS, *self.pieces])
        return found[np.argsort(found["start_ns"], kind="stable")]


@dataclass
class TimeCheck:
    """Keeps no event: counts kernels, and those whose times cannot be true; `since_ns` is before all of them."""

    since_ns: int = field(default_factory=time.time_ns)
    kernels: int = 0
    impossible: int = 0
    busy_ns: int = 0

    def take(self, events: Any) -> None:
        start, end = events["start_ns"], events["end_ns"]
        good = (end >= start) & (start >= self.since_ns - SLACK_NS) & (end <= time.time_ns() + SLACK_NS)
        self.impossible += len(events) - int(good.sum())
        kernels = good & (events["activity"] == KERNEL)
        self.kernels += int(kernels.sum())
        self.busy_ns += int((end - start)[kernels].sum())


@dataclass
class Session:
    """What one process sent; `level` is what its last tick stated, at `tick_ns` of CLOCK_MONOTONIC.

    `contexts`, `sums` and `launches` are the rows of its packets, as they arrived.
    """

    consumer: Consumer | None = None
    hello: str = ""
    names: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    clock: ClockFollower = field(default_factory=ClockFollower)
    waiting: list[Any] = field(default_factory=list)  # events whose next tick has not come
    contexts: list[Any] = field(default_factory=list)
    sums: list[Any] = field(default_factory=list)
    launches: list[Any] = field(default_factory=list)
    events: int = 0
    records: int = 0
    next: int = 0
    level: int = CollectionLevel.OFF
    tick_ns: int = 0
    ended: bool = False

    @property
    def pid(self) -> int:
        return next((int(line[4:]) for line in self.hello.splitlines() if line.startswith("pid=")), 0)

    @property
    def lost(self) -> int:
        return self.next - self.records

    def take(self, kind: Kind, payload: bytes) -> None:
        if kind is Kind.HELLO:
            self.hello = payload.decode()
        elif kind is Kind.NAMES:
            self.take_names(payload)
        elif kind in (Kind.EVENTS, Kind.RANGES, Kind.MEMORY_CHANGES, Kind.CONTEXT_SUMS, Kind.END):
            self.take_records(kind, payload)
        elif kind is Kind.CONTEXTS:
            self.contexts.append(np.frombuffer(payload, CONTEXT))
        elif kind is Kind.LAUNCHES:
            self.launches.append(np.frombuffer(payload, LAUNCH))
        elif kind is Kind.TICK:
            self.take_tick(np.frombuffer(payload, TICK)[0])
        elif kind is Kind.NOTICE:
            self.notices.append(payload[NOTICE_HEAD.itemsize :].decode())

    def take_names(self, payload: bytes) -> None:
        at = 0
        while at < len(payload):
            end = at + 8 + int.from_bytes(payload[at + 4 : at + 8], "little")
            self.names.append(payload[at + 8 : end].decode())
            at = end

    def take_records(self, kind: Kind, payload: bytes) -> None:
        head = np.frombuffer(payload[: RECORDS_HEAD.itemsize], RECORDS_HEAD)[0]
        self.next = int(head["first"]) + int(head["count"])
        self.records += int(head["count"])
        self.reasons[Reason(int(head["reason"])).name] += 1
        self.ended |= kind is Kind.END
        if kind is Kind.CONTEXT_SUMS:
            self.sums.append(np.frombuffer(payload, CONTEXT_SUM, offset=RECORDS_HEAD.itemsize))
        if kind is Kind.EVENTS:
            self.events += int(head["count"])
            if self.consumer is not None:
                self.waiting.append(np.frombuffer(payload, EVENT, offset=RECORDS_HEAD.itemsize))

    def take_tick(self, tick: Any) -> None:
        if tick["device_ns"] != NO_TIME:
            self.clock.tick(int(tick["device_ns"]), int(tick["unix_ns"]))
            self.convert()
        self.level, self.tick_ns = int(tick["level"]), int(tick["mono_ns"])  # last: who waits for it finds all else

    def convert(self) -> None:
        """Give on what waits, on the Unix clock; without any tick, as it is."""
        for events in self.waiting:
            moved = events.copy()
            for name in ("start_ns", "end_ns") if self.clock.is_set else ():
                moved[name] = self.clock.to_unix(events[name])
            if self.consumer is not None:
                self.consumer.take(moved)
        self.waiting = []

    def count(self, events: Any) -> Counter[tuple[str, str]]:
        """Return how often each (activity, name) is among `events`."""
        keys, counts = np.unique(events[["activity", "name"]], return_counts=True)
        found: Counter[tuple[str, str]] = Counter()
        for (activity, name), count in zip(keys.tolist(), counts.tolist(), strict=True):
            found[ACTIVITIES[activity], plain(self.names[name - 1] if name else "")] += count
        return found


class Reader:
    """Listens at `path` and states at which level to collect; `make_consumer` makes what takes a session's events."""

    def __init__(
        self,
        path: Path,
        level: CollectionLevel = CollectionLevel.ON,
        make_consumer: Callable[[], Consumer] | None = None,
    ) -> None:
        path.unlink(missing_ok=True)
        self.path, self.level, self.make_consumer = path, level, make_consumer
        self.sessions: list[Session] = []
        self.connections: list[socket.socket] = []
        self.lock = threading.Lock()  # one that connects hears the level once, before or after it is switched
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(str(path))
        self.server.listen(8)
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for thread in self.threads:
            thread.join(10)

    @property
    def is_on(self) -> bool:
        return self.level == CollectionLevel.ON

    @property
    def main(self) -> Session:
        """The session with the most records: jobs may have children."""
        return max(self.sessions, key=lambda session: session.records, default=Session())

    def of(self, pid: int) -> Session:
        """Return the session of one process, an empty one before it has stated hello."""
        return next((session for session in self.sessions if session.pid == pid), Session())

    def switch(self, level: CollectionLevel) -> None:
        """Tell all that are connected at which level to collect from now on."""
        with self.lock:
            self.level = level
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.sendall(packet(Kind.LEVEL, np.array([level], "<u4").tobytes()))

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            session = Session(self.make_consumer() if self.make_consumer else None)
            self.sessions.append(session)
            self.threads.append(threading.Thread(target=self.read, args=(connection, session), daemon=True))
            self.threads[-1].start()

    def read(self, connection: socket.socket, session: Session) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb", 1 << 22) as stream:
            with self.lock:
                connection.sendall(packet(Kind.WELCOME, np.array([VERSION, self.level], "<u4").tobytes()))
                self.connections.append(connection)
            while len(head := stream.read(HEAD.itemsize)) == HEAD.itemsize:
                found = np.frombuffer(head, HEAD)[0]
                session.take(Kind(int(found["kind"])), stream.read(int(found["nbytes"])))
        session.convert()


def packet(kind: Kind, payload: bytes) -> bytes:
    """Return a packet as the agent writes it."""
    return np.array([(MAGIC, kind, 0, len(payload), 0)], HEAD).tobytes() + payload


def plain(name: str) -> str:
    """Return a name as both sides write it: demangled, and copies without their kinds of memory."""
    words = name.split(" ")
    if words[0] == "Memcpy":
        return " ".join(words[:2])
    return "Memset" if words[0] == "Memset" else demangle(name)


def demangle(name: str) -> str:
    """Return a C++ name as Kineto spells it; both ask the C++ library."""
    if not name.startswith("_Z"):
        return name
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name
    runtime.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    found = runtime.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not found:
        return name
    text = ctypes.cast(found, ctypes.c_char_p).value or b""
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text.decode()
