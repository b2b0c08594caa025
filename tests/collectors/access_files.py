"""Recordings of accesses as `deepprof accesses` writes them, made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

BLOCK_NBYTES = 1 << 21
START: Mapping[str, Any] = {
    "kind": "start",
    "format": "deepprof.accesses/1",
    "process": 7,
    "rank": -1,
    "block_nbytes": BLOCK_NBYTES,
    "slots": 16,
    "sees_tensor_copies": True,
}
END: Mapping[str, Any] = {"kind": "end", "problems": 0, "lost": {}}


def launch(number: int, start_ns: int, blocks: Iterable[Sequence[int]], **others: Any) -> dict[str, Any]:
    """A launch of 5 ns; a block is its address, reads, bytes read, writes, bytes written."""
    return {
        "kind": "launch",
        "launch": number,
        "name": "kernel",
        "device": 0,
        "context": 1,
        "stream": 0,
        "grid": 4,
        "block": 256,
        "start_ns": start_ns,
        "end_ns": start_ns + 5,
        "full": [0, 0, 0, 0],
        "tensor_copies": 0,
        "blocks": [number for block in blocks for number in block],
    } | others


def memory(time_ns: int, address: int, nbytes: int) -> dict[str, Any]:
    return {"kind": "memory", "time_ns": time_ns, "device": 0, "address": address, "nbytes": nbytes}


def encode(lines: Iterable[Mapping[str, Any] | bytes]) -> bytes:
    """Return the file; bytes are a line as it is."""
    texts = (
        line if isinstance(line, bytes) else json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines
    )
    return b"".join(texts)
