"""An Arrow IPC stream as a list of messages, each a head and a body, both within the bytes that were sent."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from deepprof.live.wire.errors import MalformedArrowError
from deepprof.live.wire.flatbuffer import FlatTable, read_root

SCHEMA, DICTIONARY, ROWS = 1, 2, 3
VERSION_5 = 4  # Arrow's metadata version V5, since 2020
CONTINUES = 0xFFFFFFFF
END = struct.pack("<II", CONTINUES, 0)
HEAD_NBYTES = 65_536  # a head lists columns and offsets; that of the widest table has some 1,500 bytes
MESSAGES = 80  # most messages of one stream: the schema, dictionaries, and 64 pieces of rows
VERSION, KIND, HEAD, BODY_NBYTES = 0, 1, 2, 3  # fields of a message


@dataclass(frozen=True, slots=True)
class ArrowMessage:
    """One message: `kind` is SCHEMA, DICTIONARY or ROWS; `raw` are the bytes of its head, usable as a cache key."""

    kind: int
    head: FlatTable
    raw: bytes
    body: memoryview


def split_stream(data: bytes) -> Iterator[ArrowMessage]:
    """Yield the messages of a stream; raises `MalformedArrowError` for no Arrow stream, or bytes after its end."""
    at, view = 0, memoryview(data)
    for _ in range(MESSAGES):
        if at == len(data):  # a stream may end without an end mark
            return
        if at + 8 > len(data):
            raise MalformedArrowError("the Arrow stream breaks off")
        mark, length = struct.unpack_from("<II", data, at)
        at += 8
        if mark != CONTINUES:
            raise MalformedArrowError("is no Arrow IPC stream")
        if length == 0:
            if at != len(data):
                raise MalformedArrowError(f"{len(data) - at} bytes stand behind the end of the Arrow stream")
            return
        message = _open_message(view, at, length)
        at += length + len(message.body)
        yield message
    raise MalformedArrowError(f"the Arrow stream has more than {MESSAGES} messages")


def _open_message(view: memoryview, at: int, length: int) -> ArrowMessage:
    """Return the message whose head of `length` bytes is at `at`, and whose body follows it."""
    if length > min(HEAD_NBYTES, len(view) - at):
        raise MalformedArrowError(f"a message's head claims {length} bytes")
    raw = bytes(view[at : at + length])
    message = read_root(raw)
    kind, nbytes = message.number(KIND, "B"), message.number(BODY_NBYTES, "q")
    head = message.table(HEAD)
    if message.number(VERSION, "h") != VERSION_5:
        raise MalformedArrowError("a message is not of Arrow's version V5")
    if head is None or kind not in {SCHEMA, DICTIONARY, ROWS}:
        raise MalformedArrowError(f"a message is of the kind {kind}; only tables of rows are taken")
    if not 0 <= nbytes <= len(view) - at - length:
        raise MalformedArrowError(f"a message's body claims {nbytes} bytes, {len(view) - at - length} are there")
    return ArrowMessage(kind, head, raw, view[at + length : at + length + nbytes])


def frame_head(head: bytes) -> bytes:
    """Return `head` as it is written in a stream: after its length, padded to a multiple of eight bytes."""
    padded = head + b"\0" * (-len(head) % 8)
    return struct.pack("<II", CONTINUES, len(padded)) + padded
