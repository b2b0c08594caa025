"""What senders are told, and what they have had acknowledged: a file that processes map, and that outlives them."""

from __future__ import annotations

import mmap
import struct
from enum import IntEnum
from pathlib import Path

__all__ = ["Board", "State"]

HEAD, SLOT = struct.Struct("=dq"), struct.Struct("=qqqq")
PACE, STOPPING = struct.Struct("=d"), struct.Struct("=q")
NUMBER = struct.Struct("=q")


class State(IntEnum):
    """Where a sender is: GONE has given up."""

    UNDER_WAY = 0
    ENDED = 1
    GONE = 2


class Board:
    """The board in the file `path`, made for this many senders where `slots` are given.

    Each number is one aligned word: what a process writes of it is there even if it is killed right after.
    """

    def __init__(self, path: Path, slots: int | None = None) -> None:
        if slots is not None:
            path.write_bytes(bytes(HEAD.size + slots * SLOT.size))
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.slots = (len(self.map) - HEAD.size) // SLOT.size

    def close(self) -> None:
        self.map.close()

    @property
    def pace(self) -> float:
        """Batches a second that every sender is to send; 0: none."""
        return float(PACE.unpack_from(self.map, 0)[0])

    @pace.setter
    def pace(self, pace: float) -> None:
        PACE.pack_into(self.map, 0, pace)

    @property
    def stopping(self) -> bool:
        """Whether senders are to end."""
        return bool(STOPPING.unpack_from(self.map, PACE.size)[0])

    def stop(self) -> None:
        STOPPING.pack_into(self.map, PACE.size, 1)

    def note(
        self, slot: int, *, given: int | None = None, durable: int | None = None, state: State | None = None
    ) -> None:
        """Take note of records given to the client, or acknowledged to it, or how the sender is."""
        for place, value in enumerate((given, durable, state)):
            if value is not None:
                NUMBER.pack_into(self.map, HEAD.size + slot * SLOT.size + place * NUMBER.size, value)

    def look(self, slot: int) -> tuple[int, int, State]:
        """Return what a sender has given, what was acknowledged, and how it is."""
        given, durable, state, _ = SLOT.unpack_from(self.map, HEAD.size + slot * SLOT.size)
        return given, durable, State(state)
