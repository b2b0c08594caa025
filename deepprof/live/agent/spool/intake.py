"""Appends messages to a spool; those that do not fit are reported by a gap, before the next one that fits."""

from __future__ import annotations

from collections import deque

from deepprof.live.agent.spool.fillers import make_gap, make_names
from deepprof.live.agent.spool.spool import Spool
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, End

FULL = "spool-full"
MOST_DUE = 64  # separate gaps, while the disk uses nothing; further ones are merged
MOST_LOST = 1 << 48  # years of records: a process that reports more does not know the number


class SpoolIntake:
    """Appends one rank's messages to its spool; the numbers in `Batch.first` and `Gap.first` are set on the way.

    Without space whole batches are dropped, and one gap `spool-full` reports them before the next that fits. Their
    names, which later batches refer to, are kept and sent before it. `lost` counts the records dropped so far.
    """

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.lost = 0
        self._missing = 0  # dropped records that no gap has reported
        self._lossy = False  # something was dropped: also a batch of names only
        self._first_name = 0
        self._names: list[str] = []
        self._due: deque[tuple[SendRequest, int]] = deque()  # fillers that go before the next message

    @property
    def next(self) -> int:
        """The number that the next record gets if it fits."""
        return self.spool.next + sum(count for _, count in self._due) + self._missing

    @property
    def names_count(self) -> int:
        """How many names were given to it: the id of the next one."""
        return self._first_name + len(self._names) if self._names else self.spool.names_count

    def put(self, batch: Batch, count: int, source_next: int = 0) -> bool:
        """Append a batch of `count` records; False: it was dropped."""
        if not count and batch.names and batch.tables:
            return self._put_apart(batch, source_next)
        request = SendRequest(batch=batch)
        if self._lossy and not self._make_room(request.ByteSize()):
            return self._let_go(batch, count)
        return self.spool.append(request, count, source_next) or self._let_go(batch, count)

    def _put_apart(self, batch: Batch, source_next: int) -> bool:
        """Append the names of a batch without records, then its tables.

        A daemon has by the names that a batch without records arrived before, but not if it has tables too.
        """
        names = Batch(names=batch.names, first_name=batch.first_name, complete_until_ns=batch.complete_until_ns)
        batch.ClearField("names")
        return all([self.put(names, 0, source_next), self.put(batch, 0, source_next)])

    def gap(self, reason: str, lost: int = 0, source_next: int = 0) -> None:
        """Report that `lost` records are missing here; 0: unknown how many."""
        self._catch_up()
        lost = lost if lost < MOST_LOST else 0
        self._say(reason, lost)
        self._flush(source_next)

    def end(self, end: End) -> bool:
        """Append the End, after which nothing may follow; False: the disk uses nothing, try again."""
        self._catch_up()
        return self._flush() and self.spool.append(SendRequest(end=end), 0, forced=True)

    def _let_go(self, batch: Batch, count: int) -> bool:
        if batch.names and not self._names:
            self._first_name = batch.first_name
        self._names.extend(batch.names)
        self._missing += count
        self.lost += count
        self._lossy = True
        return False

    def _make_room(self, nbytes: int) -> bool:
        """Report what is missing if a message of `nbytes` fits again; False: it does not."""
        if not self.spool.budget.fits(nbytes):
            return False
        self._catch_up()
        return self._flush()

    def _catch_up(self) -> None:
        """Queue a gap for dropped records, and their names, before the next message; none raises the watermark."""
        if self._missing:
            self._say(FULL, self._missing)
        self._due.extend((request, 0) for request in make_names(0, self._first_name, self._names))
        self._missing, self._names = 0, []

    def _say(self, reason: str, lost: int) -> None:
        """Queue a gap; if `MOST_DUE` are due already it is merged into the last, for no record is between."""
        before, count = self._due[-1] if len(self._due) >= MOST_DUE else (None, 0)
        if before is not None and before.WhichOneof("message") == "gap":
            before.gap.lost, self._due[-1] = count + lost, (before, count + lost)
        else:
            self._due.append((make_gap(0, lost, reason), lost))

    def _flush(self, source_next: int = 0) -> bool:
        """Append what is due, even beyond the budget; False: the disk uses nothing now."""
        while self._due:
            request, count = self._due[0]
            if not self.spool.append(request, count, source_next, forced=True):
                self._lossy = True
                return False
            self._due.popleft()
        self._lossy = False
        return True
