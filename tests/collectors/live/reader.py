"""A stand-in for the node's agent: takes what injected libraries state, as arrays, and shows them the level."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from deepprof.collectors.live import packets
from deepprof.collectors.live.packets import CollectionLevel, Kind, Reason
from tests.patience import PATIENCE_S, UNHURRIED, answer

from .building import Built

TRUTH = np.dtype(
    [("start", "<i8"), ("end", "<i8"), ("nbytes", "<u8"), ("graph_node", "<u8")]
    + [(name, "<u4") for name in ("kind", "device", "context", "stream", "correlation", "graph", "type", "name")]
)


def await_truth(condition: Callable[[], Any], what: str) -> None:
    """Return when `condition` contains; fail the test when it does not for long."""
    until = time.monotonic() + PATIENCE_S
    while not answer(condition):
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.005)


class Connection:
    """What one process stated on one connection."""

    def __init__(self, stream: socket.socket, gate: threading.Event, keep: bool) -> None:
        self.stream, self.gate, self.keep = stream, gate, keep
        self.hello: dict[str, str] = {}
        self.names: dict[int, str] = {}
        self.frames: list[tuple[Kind, int, int, Reason]] = []  # kind, first, count, reason
        self.made: list[Any] = []  # of every frame: the records made before it, by kind
        self.pieces: list[Any] = []
        self.changes: list[Any] = []  # of memory
        self.ticks: list[Any] = []
        self.order: list[Kind] = []
        self.notices: list[tuple[int, str]] = []
        self.threads: set[int] = set()  # of ranges
        self.closed = False
        self.count = self.nbytes = 0
        self.piece_nbytes = 1 << 20
        self.pace: Callable[[Connection], None] = lambda _: None  # called after each piece

    @property
    def events(self) -> Any:
        return np.concatenate([np.zeros(0, packets.EVENT), *self.pieces])

    @property
    def ended(self) -> bool:
        return Kind.END in self.order

    @property
    def lost(self) -> int:
        """Records that are missing: jumps of the numbers."""
        end = next_number = 0
        for _, first, count, _ in self.frames:
            assert first >= next_number
            end += first - next_number
            next_number = first + count
        return end

    def say(self, kind: Kind, *words: int) -> None:
        payload = struct.pack(f"<{len(words)}I", *words)
        self.stream.sendall(struct.pack("<IHHII", packets.MAGIC, kind, 0, len(payload), 0) + payload)

    def run(self, level: CollectionLevel, answer: bytes | None) -> None:
        try:
            if answer is None:
                self.say(Kind.WELCOME, packets.VERSION, level)
            else:
                self.stream.sendall(answer)
            self.read()
        except OSError:
            pass
        self.closed = True

    def read(self) -> None:
        pending = bytearray()
        while data := self.stream.recv(self.piece_nbytes):
            pending += data
            self.nbytes += len(data)
            at = 0
            while len(pending) - at >= packets.HEAD.itemsize:
                magic, kind, _, nbytes, _ = struct.unpack_from("<IHHII", pending, at)
                assert magic == packets.MAGIC
                assert nbytes <= packets.PAYLOAD_NBYTES
                if len(pending) - at < packets.HEAD.itemsize + nbytes:
                    break
                at += packets.HEAD.itemsize
                self.take(Kind(kind), bytes(pending[at : at + nbytes]))
                at += nbytes
            del pending[:at]
            self.gate.wait()
            self.pace(self)

    def take(self, kind: Kind, payload: bytes) -> None:
        if kind in (Kind.EVENTS, Kind.RANGES, Kind.MEMORY_CHANGES, Kind.END):
            self.take_records(kind, payload)
        elif kind is Kind.HELLO:
            self.hello = dict(line.split("=", 1) for line in payload.decode().splitlines())
        elif kind is Kind.NAMES:
            self.take_names(payload)
        elif kind is Kind.TICK:
            self.ticks.append(np.frombuffer(payload, packets.TICK)[0])
        elif kind is Kind.NOTICE:
            code, nbytes = struct.unpack_from("<II", payload)
            assert nbytes == len(payload) - 8
            self.notices.append((code, payload[8:].decode()))
        self.order.append(kind)

    def take_records(self, kind: Kind, payload: bytes) -> None:
        first, count, reason = struct.unpack_from("<QII", payload)
        self.frames.append((kind, first, count, Reason(reason)))
        self.made.append(np.frombuffer(payload, packets.RECORDS_HEAD, 1)[0]["made"])
        if kind is Kind.RANGES:
            rows = np.frombuffer(payload, packets.RANGE, offset=packets.RECORDS_HEAD.itemsize)
            self.threads |= set(rows["thread"].tolist())
        if kind is Kind.MEMORY_CHANGES:
            self.changes += np.frombuffer(payload, packets.MEMORY_CHANGE, offset=packets.RECORDS_HEAD.itemsize).tolist()
        if kind is not Kind.EVENTS:
            return
        rows = np.frombuffer(payload, packets.EVENT, offset=packets.RECORDS_HEAD.itemsize)
        assert len(rows) == count
        assert not count or int(rows["name"].max()) <= len(self.names)
        self.count += count
        if self.keep:
            self.pieces.append(rows)

    def take_names(self, payload: bytes) -> None:
        at = 0
        while at < len(payload):
            number, nbytes = struct.unpack_from("<II", payload, at)
            assert number == len(self.names) + 1
            self.names[number] = payload[at + 8 : at + 8 + nbytes].decode()
            at += 8 + nbytes
        assert at == len(payload)


class Agent:
    """Listens at `path`; a new connection hears `level`. `gate` cleared: nothing more is read."""

    def __init__(self, path: Path, level: CollectionLevel = CollectionLevel.ON, keep: bool = True) -> None:
        self.path, self.level, self.keep = path, level, keep
        self.connections: list[Connection] = []
        self.gate = threading.Event()
        self.gate.set()
        self.threads: list[threading.Thread] = []
        self.answer: bytes | None = None  # in place of a WELCOME
        self.prepare: Callable[[Connection], None] = lambda _: None

    def __enter__(self) -> Self:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(self.path))
        self.socket.listen(64)
        self.start(self.accept)
        return self

    def start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self.threads.append(thread)
        thread.start()

    def accept(self) -> None:
        while True:
            try:
                stream, _ = self.socket.accept()
            except OSError:
                return
            connection = Connection(stream, self.gate, self.keep)
            self.prepare(connection)
            self.connections.append(connection)
            self.start(lambda connection=connection: connection.run(self.level, self.answer))  # type: ignore[misc]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.gate.set()
        self.socket.shutdown(socket.SHUT_RDWR)
        for connection in list(self.connections):
            if not connection.closed:
                connection.stream.shutdown(socket.SHUT_RDWR)
        for thread in list(self.threads):
            thread.join(PATIENCE_S)
        for stream in [self.socket, *(connection.stream for connection in self.connections)]:
            stream.close()
        self.path.unlink()

    def only(self) -> Connection:
        """Return the one connection, when it is over."""
        await_truth(lambda: self.connections and all(c.closed for c in self.connections), "the end of the connection")
        (connection,) = self.connections
        return connection


SANITIZED = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=97",  # what the job contains at its end is no leak
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "die_after_fork=0:exitcode=98:halt_on_error=0",
}


def start_job(
    built: Built, arguments: list[object], settings: Mapping[str, object], program: str = "job"
) -> subprocess.Popen[str]:
    """Start the job, or `training`; what is in `settings` is its environment next to PATH."""
    own = {"PATH": os.environ["PATH"], "JOB_LIBRARY": built.library, "DEEPPROF_CUPTI": built.mock, **SANITIZED}
    own |= UNHURRIED  # a busy machine is no reason to lose a job's first and last records
    environment = {key: str(value) for key, value in {**own, **settings}.items()}
    command = [str(part) for part in (getattr(built, program), *arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish_job(job: subprocess.Popen[str], code: int = 0) -> tuple[int, int, float]:
    """Return the records kept, dropped and the seconds that the job printed; it must not state anything else."""
    out, err = job.communicate(timeout=PATIENCE_S)
    assert (job.returncode, err) == (code, ""), err
    if not out:
        return 0, 0, 0.0
    kept, dropped, seconds = out.split()
    return int(kept), int(dropped), float(seconds)
