"""What was sent and is not durable yet: kept to be sent again, and bounded. Knows messages and numbers, no network."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from deepprof.v1.ingest_pb2 import SendRequest

__all__ = ["SendWindow", "WindowEntry"]


@dataclass(frozen=True, slots=True, eq=False)
class WindowEntry:
    """A message with the numbers it covers: records [first, first + count), or those that a gap says are missing."""

    request: SendRequest
    first: int
    count: int
    nbytes: int
    is_end: bool = False

    @property
    def end(self) -> int:
        """The number after its last record."""
        return self.first + self.count

    def is_durable(self, durable: int) -> bool:
        """Return whether it is known to be durable when all records below `durable` are.

        One without records leaves no mark in the numbers: only what comes after it tells.
        """
        return not self.is_end and (self.end < durable or (self.count > 0 and self.end == durable))

    @property
    def is_watermark(self) -> bool:
        """Whether it is a batch that says nothing but what is complete by now: a later one says as much and more."""
        batch = self.request.batch if self.request.WhichOneof("message") == "batch" else None
        return batch is not None and not self.count and not batch.names and not batch.tables


@dataclass(slots=True)
class SendWindow:
    """Messages in order, those written on the present connection first; at most `limit_nbytes`, or one message.

    `durable` is what the daemon last said, `ended` that the end is durable too.
    """

    limit_nbytes: int
    entries: deque[WindowEntry] = field(default_factory=deque)
    written: int = 0
    nbytes: int = 0
    durable: int = 0
    ended: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the next message must wait."""
        return self.nbytes >= self.limit_nbytes

    @property
    def awaits_answer(self) -> bool:
        """Whether something was written whose answer is due; a message without records may go without one."""
        written = min(self.written, len(self.entries))
        return any(self.entries[at].count or self.entries[at].is_end for at in range(written - 1, -1, -1))

    def put(self, entry: WindowEntry) -> None:
        """Keep a message that follows the others; of promises in a row the latest, for none is ever known durable."""
        if self.entries and entry.is_watermark and self.entries[-1].is_watermark:
            self.nbytes -= self.entries.pop().nbytes
            self.written = min(self.written, len(self.entries))
        self.entries.append(entry)
        self.nbytes += entry.nbytes

    def take_next(self) -> WindowEntry | None:
        """Return the next message to write on this connection, None where all are written."""
        if self.written >= len(self.entries):
            return None
        self.written += 1
        return self.entries[self.written - 1]

    def acknowledge(self, durable: int, *, ended: bool = False) -> None:
        """Let go of what is durable."""
        self.durable, self.ended = max(self.durable, durable), self.ended or ended
        while self.entries and (ended or self.entries[0].is_durable(durable)):
            self.nbytes -= self.entries.popleft().nbytes
            self.written = max(self.written - 1, 0)

    def resume(self, durable: int, *, ended: bool = False) -> bool:
        """Begin a new connection at `durable`; False: what is missing there was let go, and cannot be sent again."""
        self.written = 0
        if durable < self.durable:
            return False
        self.acknowledge(durable, ended=ended)
        return True
