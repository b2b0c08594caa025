"""Records that a live collector's sender dropped while the daemon was away: counted, and reported when it is back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from deepprof.live.client.window import WindowEntry
from deepprof.live.wire.limits import LIMITS, MESSAGE_RECORDS
from deepprof.live.wire.naming import NewNames
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, Gap

__all__ = ["DroppedBatches"]

REASON = "buffer-full"


@dataclass(slots=True)
class DroppedBatches:
    """Consecutive batches that were dropped: the number of their records, and their names, which later batches need."""

    first: int = 0
    lost: int = 0
    first_name: int = 0
    names: list[str] = field(default_factory=list)
    open: bool = False

    def add(self, batch: Batch, count: int) -> None:
        """Count a batch of `count` records that is dropped."""
        if not self.open:
            self.first, self.lost, self.names, self.open = batch.first, 0, [], True
        if batch.names and not self.names:
            self.first_name = batch.first_name
        self.lost += count
        self.names.extend(batch.names)

    def close(self, complete_until_ns: int | None = None) -> Iterator[WindowEntry]:
        """Yield the messages to send before the next batch: the gap, and then batches that contain only names.

        `complete_until_ns` None: no batch follows, and the names are not needed.
        """
        end = self.first + self.lost
        for first in range(self.first, end, MESSAGE_RECORDS) if self.open else ():
            gap = Gap(first=first, lost=min(end - first, MESSAGE_RECORDS), reason=REASON)
            yield WindowEntry(SendRequest(gap=gap), first, gap.lost, gap.ByteSize())
        names = NewNames(pl.Series(self.names, dtype=pl.String), LIMITS)
        for at, texts in names.take(0 if complete_until_ns is None else len(self.names)):
            name = self.first_name + at
            batch = Batch(first=end, names=texts, first_name=name, complete_until_ns=complete_until_ns)
            yield WindowEntry(SendRequest(batch=batch), end, 0, batch.ByteSize())
        self.names, self.open = [], False
