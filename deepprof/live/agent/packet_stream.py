"""Reads packets from a socket: whole, bounded, each in its own buffer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import numpy as np

from deepprof.collectors.live.packets import HEAD, MAGIC, PAYLOAD_NBYTES, Kind
from deepprof.live.agent.hello import ProtocolError

HEAD_NBYTES = HEAD.itemsize
GREETING_NBYTES = 16 << 10  # what may come before the sender is known
FIRST_NBYTES = 64 << 10


async def read_packets(connection: socket.socket) -> AsyncIterator[tuple[int, memoryview]]:
    """Yield kind and payload of every packet until the other side closes. Raises `ProtocolError`, `OSError`.

    One packet is in memory at a time; nothing is read ahead, so that a sender that writes too fast has to wait.
    """
    loop = asyncio.get_running_loop()
    head, limit, at_once = bytearray(HEAD_NBYTES), GREETING_NBYTES, FIRST_NBYTES
    while await _fill(loop, connection, memoryview(head), may_end=True):
        magic, kind, zero, nbytes, more = np.frombuffer(head, HEAD)[0].item()
        if magic != MAGIC or zero or more or nbytes > limit:
            raise ProtocolError("what it writes are no packets")
        yield kind, await _receive(loop, connection, nbytes, at_once)
        limit, at_once = PAYLOAD_NBYTES, max(at_once, nbytes)  # a sender that has sent this much once is trusted


async def _receive(loop: asyncio.AbstractEventLoop, connection: socket.socket, nbytes: int, at_once: int) -> memoryview:
    """Return `nbytes` bytes. A packet that never comes whole uses at most twice the memory of the part that arrived.

    Memory for the first `at_once` bytes is taken in one piece.
    """
    pieces: list[bytearray] = []
    at = 0
    while at < nbytes:
        piece = bytearray(min(nbytes - at, max(at, at_once)))
        await _fill(loop, connection, memoryview(piece))
        pieces.append(piece)
        at += len(piece)
    return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


async def _fill(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, place: memoryview, *, may_end: bool = False
) -> bool:
    """Fill `place`; returns False at the socket's end if `may_end`. Raises `ProtocolError` at any other end."""
    at = 0
    while at < len(place):
        got = await loop.sock_recv_into(connection, place[at:])
        if not got:
            if may_end and not at:
                return False
            raise ProtocolError("it ended in the middle of a packet")
        at += got
    return True


def make_packet(kind: Kind, payload: bytes) -> bytes:
    """Return a packet of the agent."""
    return np.array((MAGIC, kind, 0, len(payload), 0), HEAD).tobytes() + payload
