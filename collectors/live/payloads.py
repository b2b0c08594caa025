"""Packets as bytes: heads, names, notices, and records cut to what an agent accepts and holds at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepprof.collectors.live.packets import (
    EVENT,
    HEAD,
    MAGIC,
    NAME_HEAD,
    NO_TIME,
    NOTICE_HEAD,
    PAYLOAD_NBYTES,
    RECORDS_HEAD,
    Kind,
)

Array = npt.NDArray[Any]

NAMES_NBYTES = 1 << 20
PART = 8192  # records: some tens of milliseconds of a busy job
MAX_EVENTS_PER_PACKET = (PAYLOAD_NBYTES - RECORDS_HEAD.itemsize) // EVENT.itemsize
NOTICE_NBYTES = 512


def pack(kind: Kind, *parts: bytes | memoryview) -> list[bytes | memoryview]:
    """Return a packet as pieces; the parts are not copied."""
    head = np.array([(MAGIC, kind, 0, sum(map(len, parts)), 0)], HEAD).tobytes()
    return [head, *parts]


@dataclass(frozen=True, slots=True, eq=False)
class _PacketPart:
    """Records of one span of time; later parts begin at `until_ns` (CLOCK_MONOTONIC) or later. None: the last part."""

    events: Array
    ranges: Array
    changes: Array
    until_ns: int | None = None


def cut(events: Array, ranges: Array, changes: Array, offset_ns: int) -> Iterator[_PacketPart]:
    """Yield `events`, `ranges` and `changes` of memory, each in order of start, as parts by time that fit into packets.

    A reader that merges them into one order holds at most a part. `offset_ns` is how far the clock of events is
    ahead."""
    records = events, ranges, changes
    starts = events["start_ns"] - offset_ns, ranges["start_ns"], changes["time_ns"]
    bounds = np.unique(np.sort(np.concatenate(starts))[PART::PART])
    cuts = [[0, *np.searchsorted(times, bounds).tolist(), len(times)] for times in starts]
    for at, until_ns in enumerate([*bounds.tolist(), None]):
        mine = [rows[ends[at] : ends[at + 1]] for rows, ends in zip(records, cuts, strict=True)]
        yield from _fit(_PacketPart(mine[0], mine[1], mine[2], until_ns))


def _fit(part: _PacketPart) -> Iterator[_PacketPart]:
    """Yield `part`, or pieces of it if too many records begin at one moment; only the last has a watermark."""
    count = max(len(part.events), len(part.ranges), len(part.changes))
    for begin in range(0, max(count, 1), MAX_EVENTS_PER_PACKET):
        end = begin + MAX_EVENTS_PER_PACKET
        until_ns = part.until_ns if end >= count else NO_TIME
        mine = slice(begin, end)
        yield _PacketPart(part.events[mine], part.ranges[mine], part.changes[mine], until_ns)


def as_bytes(records: Array) -> memoryview:
    """Return the bytes of `records`."""
    return np.ascontiguousarray(records).view(np.uint8).data


def name_payloads(first: int, texts: Sequence[str]) -> Iterator[bytes]:
    """Yield the payloads that contain `texts`, whose ids count from `first`."""
    payload = bytearray()
    for at, text in enumerate(texts, first):
        encoded = text.encode("utf-8", "replace")
        payload += np.array([(at, len(encoded))], NAME_HEAD).tobytes() + encoded
        if len(payload) > NAMES_NBYTES:
            yield bytes(payload)
            payload = bytearray()
    if payload:
        yield bytes(payload)


def notice_payload(code: int, text: str) -> bytes:
    """Return a notice's payload."""
    encoded = text.replace("\n", " ").encode("utf-8", "replace")[:NOTICE_NBYTES]
    return np.array([(code, len(encoded))], NOTICE_HEAD).tobytes() + encoded
