"""Packets off a socket, whatever pieces they come in."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest

from deepprof.collectors.live.packets import HEAD, MAGIC, PAYLOAD_NBYTES
from deepprof.live.agent.hello import ProtocolError
from deepprof.live.agent.packet_stream import FIRST_NBYTES, GREETING_NBYTES, read_packets
from tests.deepprof.live.agent import packets_made as made


def read(*pieces: bytes) -> list[tuple[int, bytes]]:
    """Return what is read of the pieces, each written when the one before was taken."""

    async def run() -> list[tuple[int, bytes]]:
        ours, theirs = socket.socketpair()
        found: list[tuple[int, bytes]] = []
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            writing = asyncio.ensure_future(write(theirs))
            try:
                async for kind, payload in read_packets(ours):
                    found.append((kind, bytes(payload)))
            finally:
                writing.cancel()
                with suppress(asyncio.CancelledError):
                    await writing
        return found

    async def write(theirs: socket.socket) -> None:
        for piece in pieces:
            await asyncio.get_running_loop().sock_sendall(theirs, piece)
            await asyncio.sleep(0)
        theirs.shutdown(socket.SHUT_WR)

    return asyncio.run(run())


def test_packets_of_every_size_come_whole() -> None:
    sizes = [0, 1, GREETING_NBYTES, FIRST_NBYTES, FIRST_NBYTES + 1, 3 * FIRST_NBYTES, PAYLOAD_NBYTES]
    wanted = [(3, np.random.default_rng(size).bytes(size)) for size in [0, *sizes]]
    assert read(b"".join(made.packet(*each) for each in wanted)) == wanted


def test_bytes_may_come_one_by_one() -> None:
    raw = made.packet(3, b"abc") + made.packet(4, b"")
    assert read(*(raw[at : at + 1] for at in range(len(raw)))) == [(3, b"abc"), (4, b"")]


def test_nothing_is_nothing() -> None:
    assert read(b"") == []


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        made.packet(3, b"abc")[:-1],
        made.packet(3, b"abc")[:5],
        made.packet(3, b"x" * (GREETING_NBYTES + 1)),
        made.packet(3, b"") + made.packet(3, b"x" * (PAYLOAD_NBYTES + 1)),
        np.array((MAGIC, 3, 1, 0, 0), HEAD).tobytes(),
        np.array((MAGIC, 3, 0, 0, 1), HEAD).tobytes(),
    ],
)
def test_what_is_no_packet_ends_it(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(raw)


def test_a_packet_that_never_comes_takes_no_memory() -> None:
    head = np.array((MAGIC, 3, 0, PAYLOAD_NBYTES, 0), HEAD).tobytes()
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="middle"):
            read(made.packet(1, b""), head + b"x" * 100)
        assert tracemalloc.get_traced_memory()[1] < PAYLOAD_NBYTES // 4
    finally:
        tracemalloc.stop()
