"""The journal's only writer: a thread that appends the messages of all streams, and syncs once for many of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepprof.live.service.fair_queue import FairQueue
from deepprof.live.service.folder import StoreError
from deepprof.live.service.journal import Journal, JournalFrame, JournalPlace
from deepprof.live.service.refusal import RefusedError

if TYPE_CHECKING:
    from deepprof.live.process.supervision import FirstFailure
    from deepprof.live.service.daemon_rank import DaemonRank, QueuedMessage

log = logging.getLogger(__name__)

GROUP_NBYTES = 64 << 20  # appended before a sync at most


@dataclass(frozen=True, slots=True)
class WriteResult:
    """An item that is durable at `place`; without a place it is not durable, and `why` is the reason."""

    rank: DaemonRank
    item: QueuedMessage
    place: JournalPlace | None
    why: RefusedError | None = None


class JournalWriter:
    """Appends items of callers and jobs in turn, and those of one job in the order of their submission.

    `tell` is called from its thread with the results.

    While one group is being synced the next one gathers, so that all streams share a sync. When the disk refuses, every
    item of the group is reported as not durable, and so are all later items of the same ranks until `DaemonRank.mend`
    is called. An item that the journal cannot take fails only its own rank.
    """

    def __init__(self, journal: Journal, tell: Callable[[Sequence[WriteResult]], None], vitals: FirstFailure) -> None:
        self.journal, self._tell = journal, tell
        self._waiting = FairQueue[tuple["DaemonRank", "QueuedMessage"]]()
        self._wake = threading.Condition()
        self._release: JournalPlace | None = None
        self._closing = False
        self.problem = ""  # of the last group: why the disk refused
        run = vitals.guard("the thread that writes the journal", self._run)
        self._thread = threading.Thread(target=run, name="journal", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def submit(self, rank: DaemonRank, item: QueuedMessage) -> None:
        """Queue an item; the caller bounds their number."""
        with self._wake:
            self._waiting.add(rank.owner, rank.hello.job, (rank, item))
            self._wake.notify()

    def release(self, before: JournalPlace) -> None:
        """Have the segments removed that hold only items before a place."""
        with self._wake:
            self._release = before
            self._wake.notify()

    def close(self) -> None:
        """Write the queued items, and end."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not (self._is_idle() and self._closing):
            self.work()

    def _is_idle(self) -> bool:
        """Wait for something to do; return whether there is nothing, because the thread is to end."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closing or self._release)
            return not self._waiting and self._release is None

    def work(self) -> None:
        """Remove unneeded segments, then write the waiting items, and report the results."""
        group, release = self._gather()
        if release is not None:
            self._let_go(release)
        if group:
            self._tell(self._write(group))

    def _gather(self) -> tuple[list[tuple[DaemonRank, QueuedMessage]], JournalPlace | None]:
        """Return a group of waiting items, and the place before which segments may go; either may be missing."""
        group: list[tuple[DaemonRank, QueuedMessage]] = []
        size = 0
        with self._wake:
            while size < GROUP_NBYTES and (first := self._waiting.take()) is not None:
                group.append(first)
                size += len(first[1].payload)
            release, self._release = self._release, None
        return group, release

    def _let_go(self, before: JournalPlace) -> None:
        try:
            self.journal.release(before)
        except (OSError, StoreError) as error:
            self.problem = f"the journal's old segments cannot be removed: {error}"

    def _write(self, group: Sequence[tuple[DaemonRank, QueuedMessage]]) -> list[WriteResult]:
        whole = [(rank, item) for rank, item in group if not rank.broken]
        try:
            places = self._append(whole)
        except Exception:  # a bug with one message, or of the journal itself
            log.exception("journal-failed")
            places = self._append_by_rank(whole)
        return [WriteResult(rank, item, places.get(id(item)), rank.broken) for rank, item in group]

    def _append_by_rank(self, whole: Sequence[tuple[DaemonRank, QueuedMessage]]) -> dict[int, JournalPlace]:
        """Append each rank's items alone, where possible. Raises the error of a journal that fails without items."""
        places: dict[int, JournalPlace] = {}
        for rank in dict.fromkeys(rank for rank, _ in whole):
            self.journal.append([])
            self.journal.sync()
            try:
                places |= self._append([(of, item) for of, item in whole if of is rank])
            except Exception as error:
                why = f"the journal cannot bear it ({type(error).__name__}: {error})"
                rank.broken = RefusedError("INVALID_ARGUMENT", why)
        return places

    def _append(self, whole: Sequence[tuple[DaemonRank, QueuedMessage]]) -> dict[int, JournalPlace]:
        """Append items, and return their places by `id`; if the disk refuses, their ranks are marked as broken."""
        frames = [JournalFrame(rank.number, item.kind, item.first, item.count, item.payload) for rank, item in whole]
        try:
            places = self.journal.append(frames)
            self.journal.sync()
        except (OSError, StoreError, MemoryError) as error:
            self.problem = f"the journal cannot be written: {getattr(error, 'strerror', None) or error}"
            for rank, _ in whole:
                rank.broken = RefusedError("RESOURCE_EXHAUSTED", f"{self.problem}; make room, then send again")
            return {}
        self.problem = "" if frames else self.problem
        return {id(item): place for (_, item), place in zip(whole, places, strict=True)}
