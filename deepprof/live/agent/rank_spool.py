"""One rank of one job on its way to the daemon: its names, its batches, its spool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.live.agent.identity import CollectorRun
from deepprof.live.agent.pieces import Tables, count_records, cut_tables
from deepprof.live.agent.rank_names import RankNameTable
from deepprof.live.agent.spool import Spool, SpoolIntake
from deepprof.live.agent.spool.intake import FULL
from deepprof.live.agent.uplink import Uplink
from deepprof.live.wire.decoding import encode_table
from deepprof.live.wire.figures import CollectorStatus
from deepprof.live.wire.kinds import count_kinds
from deepprof.live.wire.records import KINDS
from deepprof.v1 import records_pb2 as pb

NO_WATERMARK = -TIME_LIMIT_NS
BATCH_RECORDS = 32_768  # at most: with fewer messages each record costs less to send


class RankSpool:
    """Takes tables, gaps and finally the end. Records that it has taken survive the agent; no method waits.

    `records` counts the records given to it, `lost` those reported as missing or without space in the spool.
    """

    def __init__(self, identity: CollectorRun, number: int, spool: Spool, uplink: Uplink, former_next: int = 0) -> None:
        """`former_next`: how many of the process's records were sent under a name that has ended."""
        self.identity, self.number = identity, number
        self.spool, self.uplink = spool, uplink
        self.intake = SpoolIntake(spool)
        self.rank_names = RankNameTable(spool.names)
        self.records = self.told_missing = 0
        self.unspooled: Counter[str] = Counter()  # records by kind for which there was no space
        self.former_next, self.is_renamed = former_next, former_next > spool.source_next
        self.overflowed = 0
        self.watermark_ns = NO_WATERMARK
        self.status = CollectorStatus()
        self.ending: pb.End | None = None

    @property
    def source_next(self) -> int:
        """How many of its process's records are spooled or known to be lost: where an earlier agent stopped."""
        return max(self.spool.source_next, self.former_next)

    @property
    def lost(self) -> int:
        """Records that are known to be missing."""
        return self.told_missing + self.intake.lost

    @property
    def missing(self) -> dict[str, Counter[str]]:
        """Records that were given to it and are not on their way, by reason and kind."""
        return {FULL: self.unspooled} | dict(self.uplink.left_out)

    @property
    def durable(self) -> int:
        """All records below this number have arrived for good."""
        return self.uplink.state.durable

    def has_overflowed(self) -> bool:
        """Whether records found no space since the last call."""
        lost, self.overflowed = self.overflowed, self.intake.lost
        return self.intake.lost > lost

    def name_ids(self, texts: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Return this rank's ids of `texts`; new ones are sent with the next batch."""
        return self.rank_names.find(texts)

    def send(self, tables: Tables, until_ns: int, source_next: int = 0) -> bool:
        """Send records with this rank's name ids, sorted, on the Unix clock; no later one begins before `until_ns`.

        `source_next` counts the process's own records up to here. Returns whether the spool had space for all.
        """
        left = count_records(tables)
        self.records += left
        fits = True
        for piece, border_ns in cut_tables(tables, until_ns, BATCH_RECORDS):
            count = count_records(piece)
            left -= count
            fits &= self._put(piece, count, border_ns, max(source_next - left, 0))
        self.uplink.wake()
        return fits

    def _put(self, piece: Tables, count: int, until_ns: int, source_next: int) -> bool:
        first_name, texts = self.rank_names.sent, list[str]()
        for first, names in self.rank_names.take():
            if texts:  # the watermark of before: records of this piece follow
                self.intake.put(pb.Batch(complete_until_ns=self.watermark_ns, first_name=first_name, names=texts), 0)
            first_name, texts = first, names
        packed = [pb.Table(kind=KINDS[name], arrow=encode_table(rows)) for name, rows in piece.items() if rows.height]
        self.watermark_ns = max(self.watermark_ns, until_ns)
        batch = pb.Batch(complete_until_ns=self.watermark_ns, first_name=first_name, names=texts, tables=packed)
        if self.intake.put(batch, count, source_next):
            return True
        self.unspooled.update(count_kinds(piece))
        return False

    def gap(self, reason: str, lost: int = 0, source_next: int = 0) -> None:
        """Report that `lost` records (0: unknown how many) are missing here, and the reason, as a word."""
        self.told_missing += lost
        self.intake.gap(reason, lost, source_next)
        self.uplink.wake()

    def tell(self, status: CollectorStatus) -> None:
        """Report the collector's status; only the latest one counts, and none is kept on disk."""
        self.status = replace(status, spool_nbytes=self.spool.nbytes, lost=self.lost)
        self.uplink.tell(self.status)

    def end(self, dropped: Mapping[str, int] | None = None, flagged: Mapping[str, int] | None = None) -> None:
        """Report that nothing follows; `dropped` and `flagged` count records by reason."""
        self.ending = pb.End(dropped=_positive(dropped), flagged=_positive(flagged), await_account=True)
        self.rank_names = RankNameTable()  # no record needs a name any more, and an ended rank is shown for long
        self.settle()

    def settle(self) -> None:
        """Write the end if it is still to be written: a disk that was full then may have space again."""
        if self.ending is not None and (self.spool.ended or self.intake.end(self.ending)):
            self.ending = None
            self.uplink.wake()


def _positive(counts: Mapping[str, int] | None) -> dict[str, int]:
    return {reason: count for reason, count in (counts or {}).items() if count}
