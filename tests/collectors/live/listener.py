"""An agent that only listens: every packet of every connection, kept as numpy arrays."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deepprof.collectors.live.packets import (
    CONTEXT,
    CONTEXT_SUM,
    EVENT,
    HEAD,
    LAUNCH,
    MAGIC,
    MEMORY_CHANGE,
    NAME_HEAD,
    PAYLOAD_NBYTES,
    RANGE,
    RECORDS_HEAD,
    TICK,
    VERSION,
    CollectionLevel,
    Kind,
    Reason,
)
from tests.patience import PATIENCE_S, answer


@dataclass
class Heard:
    """What one connection brought."""

    hello: dict[str, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    heads: list[tuple[Kind, int, int, Reason]] = field(default_factory=list)  # kind, first, count, reason
    made: list[list[int]] = field(default_factory=list)  # of every head: records made before it, by kind
    event_pieces: list[Any] = field(default_factory=list)
    range_pieces: list[Any] = field(default_factory=list)
    change_pieces: list[Any] = field(default_factory=list)
    context_pieces: list[Any] = field(default_factory=list)
    sum_pieces: list[Any] = field(default_factory=list)
    launch_pieces: list[Any] = field(default_factory=list)
    ticks: list[Any] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    order: list[Kind] = field(default_factory=list)
    ended: bool = False
    gone: bool = False

    @property
    def events(self) -> Any:
        return np.concatenate([np.zeros(0, EVENT), *self.event_pieces])

    @property
    def ranges(self) -> Any:
        return np.concatenate([np.zeros(0, RANGE), *self.range_pieces])

    @property
    def changes(self) -> Any:
        return np.concatenate([np.zeros(0, MEMORY_CHANGE), *self.change_pieces])

    @property
    def contexts(self) -> Any:
        return np.concatenate([np.zeros(0, CONTEXT), *self.context_pieces])

    @property
    def sums(self) -> Any:
        return np.concatenate([np.zeros(0, CONTEXT_SUM), *self.sum_pieces])

    @property
    def launches(self) -> Any:
        return np.concatenate([np.zeros(0, LAUNCH), *self.launch_pieces])

    def texts(self, records: Any) -> list[str]:
        return [self.names[name] for name in records["name"].tolist()]

    def take(self, kind: Kind, payload: bytes) -> None:
        self.order.append(kind)
        getattr(self, f"take_{kind.name.lower()}")(payload)

    def take_hello(self, payload: bytes) -> None:
        self.hello = dict(line.split("=", 1) for line in payload.decode().splitlines())

    def take_names(self, payload: bytes) -> None:
        while payload:
            head = np.frombuffer(payload[:8], NAME_HEAD)[0]
            end = 8 + int(head["nbytes"])
            assert head["id"] == len(self.names) + 1
            self.names[int(head["id"])] = payload[8:end].decode()
            payload = payload[end:]

    def take_records(self, kind: Kind, payload: bytes, dtype: Any) -> Any:
        head = np.frombuffer(payload[: RECORDS_HEAD.itemsize], RECORDS_HEAD)[0]
        self.heads.append((kind, int(head["first"]), int(head["count"]), Reason(int(head["reason"]))))
        self.made.append(head["made"].tolist())
        records = np.frombuffer(payload[RECORDS_HEAD.itemsize :], dtype)
        assert len(records) == head["count"]
        assert "name" not in (dtype.names or ()) or records["name"].max(initial=0) <= len(self.names)
        return records

    def take_events(self, payload: bytes) -> None:
        self.event_pieces.append(self.take_records(Kind.EVENTS, payload, EVENT))

    def take_ranges(self, payload: bytes) -> None:
        self.range_pieces.append(self.take_records(Kind.RANGES, payload, RANGE))

    def take_memory_changes(self, payload: bytes) -> None:
        self.change_pieces.append(self.take_records(Kind.MEMORY_CHANGES, payload, MEMORY_CHANGE))

    def take_contexts(self, payload: bytes) -> None:
        rows = np.frombuffer(payload, CONTEXT)
        first = len(self.contexts) + 1
        assert rows["id"].tolist() == list(range(first, first + len(rows)))
        assert (rows["parent"] < rows["id"]).all()
        assert rows["name"].max(initial=0) <= len(self.names)
        self.context_pieces.append(rows)

    def take_context_sums(self, payload: bytes) -> None:
        rows = self.take_records(Kind.CONTEXT_SUMS, payload, CONTEXT_SUM)
        assert rows["context"].max(initial=0) <= len(self.contexts)
        self.sum_pieces.append(rows)

    def take_launches(self, payload: bytes) -> None:
        self.launch_pieces.append(np.frombuffer(payload, LAUNCH))

    def take_tick(self, payload: bytes) -> None:
        self.ticks.append(np.frombuffer(payload, TICK)[0])

    def take_notice(self, payload: bytes) -> None:
        self.notices.append(payload[8:].decode())

    def take_end(self, payload: bytes) -> None:
        self.take_records(Kind.END, payload, np.dtype("u1"))
        self.ended = True


def packet(kind: Kind, *values: int) -> bytes:
    payload = np.array(values, "<u4").tobytes()
    return np.array([(MAGIC, kind, 0, len(payload), 0)], HEAD).tobytes() + payload


class Listener:
    """Listens at `path` from `start` on; `reading` cleared, it uses nothing more in."""

    def __init__(self, path: Path, level: CollectionLevel = CollectionLevel.ON) -> None:
        self.path, self.level = path, level
        self.connections: list[Heard] = []
        self.doors: list[socket.socket] = []
        self.news = threading.Condition()
        self.reading = threading.Event()
        self.reading.set()
        self.threads: list[threading.Thread] = []

    def start(self) -> Listener:
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(str(self.path))
        self.server.listen(8)
        self.spawn(self.accept)
        return self

    def spawn(self, task: Callable[..., None], *arguments: Any) -> None:
        self.threads.append(threading.Thread(target=task, args=arguments, daemon=True))
        self.threads[-1].start()

    def accept(self) -> None:
        while True:
            try:
                door, _ = self.server.accept()
            except OSError:
                return
            heard = Heard()
            with self.news:
                self.doors.append(door)
                self.connections.append(heard)
            with suppress(OSError):  # it may have gone meanwhile
                door.sendall(packet(Kind.WELCOME, VERSION, self.level))
            self.spawn(self.read, door, heard)

    def read(self, door: socket.socket, heard: Heard) -> None:
        with door, door.makefile("rb") as stream:
            while head := self.read_bytes(stream, HEAD.itemsize):
                found = np.frombuffer(head, HEAD)[0]
                assert found["magic"] == MAGIC
                assert found["nbytes"] <= PAYLOAD_NBYTES
                payload = self.read_bytes(stream, int(found["nbytes"]))
                if len(payload) < found["nbytes"]:
                    break  # the connection ended in the middle of a packet
                with self.news:
                    heard.take(Kind(int(found["kind"])), payload)
                    self.news.notify_all()
        with self.news:
            heard.gone = True
            self.news.notify_all()

    def read_bytes(self, stream: Any, nbytes: int) -> bytes:
        self.reading.wait(PATIENCE_S)
        try:
            return bytes(stream.read(nbytes))
        except OSError:
            return b""

    def say(self, level: CollectionLevel) -> None:
        self.doors[-1].sendall(packet(Kind.LEVEL, level))

    def wait(self, until: Callable[[Listener], Any]) -> Any:
        with self.news:
            assert self.news.wait_for(lambda: answer(lambda: until(self)), PATIENCE_S), "nothing came"
            return until(self)

    @property
    def last(self) -> Heard:
        return self.connections[-1]

    def stop(self) -> None:
        self.reading.set()
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for door in self.doors:
            with_shutdown(door)
        for thread in self.threads:
            thread.join(PATIENCE_S)
        self.path.unlink()


def with_shutdown(door: socket.socket) -> None:
    try:
        door.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # its reader has closed it
