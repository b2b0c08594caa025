"""An agent that only answers, in a thread: what it states is what the test wants, or raw bytes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from deepprof.collectors.live.packets import HEAD, MAGIC, Kind

Reply = Callable[[], dict[str, object] | bytes]


def answer(**fields: object) -> dict[str, object]:
    """What an agent states that is well and has nothing to do."""
    well = {"schema": "deepprof.agent/1", "pid": 1, "began_unix_ns": 1, "socket": "/s", "to": "unix:/d"}
    return {**well, "connected": True, "problem": None, "spool": {"nbytes": 0, "limit_nbytes": 1 << 30}, **fields}


def process(**fields: object) -> dict[str, object]:
    """One process of the answer, that ended well."""
    of = {"pid": 2**22 + 1, "session": "a" * 32, "job": "demo", "rank": 0, "collector": "cupti", "command": "python x"}
    done = {"records": 1000, "lost": 0, "durable": 1000, "next": 1000, "ended": True, "overhead_ratio": 0.01}
    return {**of, "level": 1, "reason": 0, **done, "notices": [], **fields}


def account(kept: int | None = 1000, waiting: int = 0, uncounted: int = 0, **missing: int) -> dict[str, object]:
    """What became of the records of a process that made kernels; `missing` by reason, `_` for a dash."""
    lost = {reason.replace("_", "-"): {"kernel": count} for reason, count in missing.items()}
    made = {"kernel": (kept or 0) + waiting + sum(missing.values())}
    of = {"made": made, "kept": None if kept is None else {"kernel": kept}, "missing": lost}
    return {**of, "waiting": waiting, "uncounted": uncounted}


def pack(kind: int, payload: bytes, *, magic: int = MAGIC, nbytes: int | None = None) -> bytes:
    size = len(payload) if nbytes is None else nbytes
    return np.array((magic, kind, 0, size, 0), HEAD).tobytes() + payload


@contextmanager
def answering(path: Path, reply: Reply) -> Iterator[list[bytes]]:
    """Answer at `path` until the block ends; gives the heads that were heard."""
    heard: list[bytes] = []
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as endpoint:
        endpoint.bind(str(path))
        endpoint.listen()
        thread = threading.Thread(target=serve, args=(endpoint, reply, heard))
        thread.start()
        try:
            yield heard
        finally:
            endpoint.shutdown(socket.SHUT_RDWR)
            thread.join()


def serve(endpoint: socket.socket, reply: Reply, heard: list[bytes]) -> None:
    while True:
        try:
            connection, _ = endpoint.accept()
        except OSError:
            return
        with connection:
            head = connection.recv(HEAD.itemsize)
            heard.append(head)
            said = reply() if head else b""
            packet = said if isinstance(said, bytes) else pack(Kind.ANSWER, json.dumps(said).encode())
            try:
                connection.sendall(packet)
            except OSError:
                continue
