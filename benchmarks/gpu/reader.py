"""An agent that only counts: it takes in what a job sends as fast as it comes, and keeps what a check asks for."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from deepprof.collectors.live.packets import (
    EVENT,
    HEAD,
    MAGIC,
    NO_TIME,
    NOTICE_HEAD,
    RECORDS_HEAD,
    TICK,
    VERSION,
    Kind,
    Level,
    Reason,
)

if TYPE_CHECKING:
    from pathlib import Path

ACTIVITIES = ("kernel", "memcpy", "memset", "graph", "sync")


@dataclass
class Session:
    """What one process sent."""

    hello: str = ""
    names: list[str] = field(default_factory=list)
    pieces: list[Any] = field(default_factory=list)
    ticks: list[Any] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    records: int = 0
    next: int = 0
    ended: bool = False

    @property
    def lost(self) -> int:
        return self.next - self.records

    def take(self, kind: Kind, payload: bytes, keep: bool) -> None:
        if kind is Kind.HELLO:
            self.hello = payload.decode()
        elif kind is Kind.NAMES:
            self.take_names(payload)
        elif kind in (Kind.EVENTS, Kind.RANGES, Kind.END):
            self.take_records(kind, payload, keep)
        elif kind is Kind.TICK:
            self.ticks.append(np.frombuffer(payload, TICK)[0])
        elif kind is Kind.NOTICE:
            self.notices.append(payload[NOTICE_HEAD.itemsize :].decode())

    def take_names(self, payload: bytes) -> None:
        at = 0
        while at < len(payload):
            end = at + 8 + int.from_bytes(payload[at + 4 : at + 8], "little")
            self.names.append(payload[at + 8 : end].decode())
            at = end

    def take_records(self, kind: Kind, payload: bytes, keep: bool) -> None:
        head = np.frombuffer(payload[: RECORDS_HEAD.itemsize], RECORDS_HEAD)[0]
        self.next = int(head["first"]) + int(head["count"])
        self.records += int(head["count"])
        self.reasons[Reason(int(head["reason"])).name] += 1
        self.ended |= kind is Kind.END
        if keep and kind is Kind.EVENTS:
            self.pieces.append(np.frombuffer(payload[RECORDS_HEAD.itemsize :], EVENT))

    def count(self, began_ns: int, ended_ns: int) -> Counter[tuple[str, str]]:
        """Return how often each (activity, name) began between two moments of the Unix clock."""
        events = np.concatenate([np.zeros(0, EVENT), *self.pieces])
        starts = self.to_unix(events["start_ns"])
        inside = events[(starts >= began_ns) & (starts <= ended_ns)]
        keys, counts = np.unique(inside[["activity", "name"]], return_counts=True)
        found: Counter[tuple[str, str]] = Counter()
        for (activity, name), count in zip(keys.tolist(), counts.tolist(), strict=True):
            found[ACTIVITIES[activity], plain(self.names[name - 1] if name else "")] += count
        return found

    def to_unix(self, times: Any) -> Any:
        """Return device times on the Unix clock, by the ticks around them."""
        ticks = np.array([tick for tick in self.ticks if tick["device_ns"] != NO_TIME], TICK)
        if not len(ticks):
            return times
        offsets = ticks["unix_ns"] - ticks["device_ns"]
        apart = np.interp(times, ticks["device_ns"], (offsets - offsets[0]).astype(np.float64))
        return times + offsets[0] + apart.astype(np.int64)


class Reader:
    """Listens at `path`; `level` is what jobs hear, and with `keep` their events are kept for `Session.count`."""

    def __init__(self, path: Path, level: Level = Level.ON, *, keep: bool = False) -> None:
        self.level, self.keep = level, keep
        self.sessions: list[Session] = []
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
    def main(self) -> Session:
        """The session with the most records: jobs may have children."""
        return max(self.sessions, key=lambda session: session.records, default=Session())

    def accept(self) -> None:
        while True:
            try:
                door, _ = self.server.accept()
            except OSError:
                return
            session = Session()
            self.sessions.append(session)
            self.threads.append(threading.Thread(target=self.read, args=(door, session), daemon=True))
            self.threads[-1].start()

    def read(self, door: socket.socket, session: Session) -> None:
        words = np.array([VERSION, self.level], "<u4").tobytes()
        with contextlib.suppress(OSError), door, door.makefile("rb", 1 << 22) as stream:
            door.sendall(np.array([(MAGIC, Kind.WELCOME, 0, len(words), 0)], HEAD).tobytes() + words)
            while len(head := stream.read(HEAD.itemsize)) == HEAD.itemsize:
                found = np.frombuffer(head, HEAD)[0]
                session.take(Kind(int(found["kind"])), stream.read(int(found["nbytes"])), self.keep)


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
