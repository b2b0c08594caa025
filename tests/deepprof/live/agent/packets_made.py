"""Packets as a collector writes them, made by hand."""

from __future__ import annotations

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
    NO_COPY,
    NO_TIME,
    NOTICE_HEAD,
    RANGE,
    RECORD_KINDS,
    RECORDS_HEAD,
    TICK,
    VERSION,
    Kind,
    Reason,
)

__all__ = [
    "allocations",
    "changes",
    "contexts",
    "counts",
    "end",
    "events",
    "head",
    "hello",
    "kernels",
    "launches",
    "names",
    "notice",
    "packet",
    "ranges",
    "sums",
    "tick",
    "window",
]

SESSION = "0123456789abcdef0123456789abcdef"
NEVER = 2**63 - 1


def packet(kind: int, payload: bytes) -> bytes:
    return np.array((MAGIC, kind, 0, len(payload), 0), HEAD).tobytes() + payload


def hello(session: str = SESSION, collector: str = "cupti", **more: object) -> bytes:
    words = {
        "version": VERSION,
        "pid": 1,
        "session": session,
        "collector": collector,
        "command": "python train.py",
        **more,
    }
    return "\n".join(f"{key.replace('__', ':')}={value}" for key, value in words.items()).encode()


def names(texts: list[str], first: int = 1) -> bytes:
    parts = []
    for number, text in enumerate(texts, first):
        raw = text.encode()
        parts += [np.array((number, len(raw)), NAME_HEAD).tobytes(), raw]
    return b"".join(parts)


def kernels(starts: list[int] | np.ndarray, length: int = 1000, *, name: int | np.ndarray = 1) -> np.ndarray:
    rows = np.zeros(len(starts), EVENT)
    rows["start_ns"] = starts
    rows["end_ns"] = rows["start_ns"] + length
    rows["name"], rows["stream"], rows["context"] = name, 7, 1
    rows["copy_kind"], rows["flags"] = NO_COPY, 1
    rows["correlation"] = np.arange(len(starts))
    return rows


def counts(**made: int) -> list[int]:
    """Records of every kind, as heads and ticks show them."""
    assert made.keys() <= set(RECORD_KINDS)
    return [made.get(kind, 0) for kind in RECORD_KINDS]


def head(first: int, count: int, reason: int, made: dict[str, int] | None = None) -> bytes:
    return np.array((first, count, reason, counts(**(made or {}))), RECORDS_HEAD).tobytes()


def events(first: int, rows: np.ndarray, reason: int = Reason.NONE, **made: int) -> bytes:
    """Events from `first` on; `made` are the records before them, by kind, as far as the process shows."""
    assert rows.dtype == EVENT
    return head(first, len(rows), reason, made) + rows.tobytes()


def ranges(first: int, rows: np.ndarray, reason: int = Reason.NONE, **made: int) -> bytes:
    assert rows.dtype == RANGE
    return head(first, len(rows), reason, made) + rows.tobytes()


def allocations(times: list[int], nbytes: int = 64, *, device: int = -1) -> np.ndarray:
    """Allocations of different addresses, with totals that grow."""
    rows = np.zeros(len(times), MEMORY_CHANGE)
    rows["time_ns"], rows["nbytes"], rows["device"], rows["thread"] = times, nbytes, device, 9
    rows["address"] = 4096 + np.arange(len(times)) * abs(nbytes)
    rows["allocated_nbytes"] = np.cumsum(rows["nbytes"])
    return rows


def changes(first: int, rows: np.ndarray, reason: int = Reason.NONE, **made: int) -> bytes:
    assert rows.dtype == MEMORY_CHANGE
    return head(first, len(rows), reason, made) + rows.tobytes()


def tick(now_ns: int, *, next: int = 0, offset_ns: int = 0, device: bool = True, **more: object) -> bytes:
    """A tick at `now_ns` of one clock for device and host; Unix time is `offset_ns` ahead of it."""
    values = {
        "device_ns": now_ns if device else NO_TIME,
        "mono_ns": now_ns,
        "unix_ns": now_ns + offset_ns,
        "events_until_ns": now_ns if device else NO_TIME,
        "ranges_until_ns": now_ns,
        "open_since_ns": NEVER,
        "next": next,
        "level": 1,
        **more,
    }
    row = np.zeros(1, TICK)
    for key, value in values.items():
        row[key] = value
    return row.tobytes()


def notice(code: int, text: str) -> bytes:
    return np.array((code, len(text.encode())), NOTICE_HEAD).tobytes() + text.encode()


def end(first: int, reason: int = Reason.NONE, **made: int) -> bytes:
    return head(first, 0, reason, made)


def whole(kind: Kind, payload: bytes) -> tuple[int, memoryview]:
    return kind, memoryview(payload)


def contexts(rows: list[tuple[int, int, int, int]], first: int = 1) -> bytes:
    """Contexts as (parent, name, line, kind), numbered from `first` on."""
    return np.array([(number, *row) for number, row in enumerate(rows, first)], CONTEXT).tobytes()


def sums(first: int, rows: np.ndarray, reason: int = Reason.NONE, **made: int) -> bytes:
    assert rows.dtype == CONTEXT_SUM
    return head(first, len(rows), reason, made) + rows.tobytes()


def window(start_ns: int, amounts: dict[int, tuple[int, int]], length_ns: int = 10**9) -> np.ndarray:
    """Sums of a window: count and time on the host by context."""
    rows = [(start_ns, start_ns + length_ns, host_ns, count, number, 0) for number, (count, host_ns) in amounts.items()]
    return np.array(rows, CONTEXT_SUM)


def launches(contexts_by_correlation: dict[int, int]) -> bytes:
    return np.array(list(contexts_by_correlation.items()), LAUNCH).tobytes()
