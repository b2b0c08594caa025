"""Messages that are not durable yet: kept for sending again, in bounded memory. This module uses no network."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from deepprof.v1.ingest_pb2 import SendRequest


@dataclass(frozen=True, slots=True, eq=False)
class WindowEntry:
    """A message with the record numbers that it covers: [first, first + count), sent or reported missing by a gap."""

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
        """Return whether the message is known to be durable when all records below `durable` are.

        A message without records does not change the numbers: only a later durable record shows that it is durable.
        """
        return not self.is_end and (self.end < durable or (self.count > 0 and self.end == durable))

    @property
    def is_watermark(self) -> bool:
        """Whether it is a batch with a watermark only, which a later watermark makes superfluous."""
        batch = self.request.batch if self.request.WhichOneof("message") == "batch" else None
        return batch is not None and not self.count and not batch.names and not batch.tables


@dataclass(slots=True)
class SendWindow:
    """Messages in order, those written on the present connection first.

    `limit_nbytes` is the size from which the window is full. `durable` is the daemon's last count, `ended` whether the
    end is durable too.
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
        """Whether a message was written whose answer is due; a message without records may have no answer."""
        written = min(self.written, len(self.entries))
        return any(self.entries[at].count or self.entries[at].is_end for at in range(written - 1, -1, -1))

    def put(self, entry: WindowEntry) -> None:
        """Append a message; of consecutive watermarks only the latest is kept, since none is ever known durable."""
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
        """Remove the messages that are durable."""
        self.durable, self.ended = max(self.durable, durable), self.ended or ended
        while self.entries and (ended or self.entries[0].is_durable(durable)):
            self.nbytes -= self.entries.popleft().nbytes
            self.written = max(self.written - 1, 0)

    def resume(self, durable: int, *, ended: bool = False) -> bool:
        """Begin a new connection at `durable`; False: messages needed from there were removed and cannot be resent."""
        self.written = 0
        if durable < self.durable:
            return False
        self.acknowledge(durable, ended=ended)
        return True
