"""The journal's one writer: a thread that appends what all streams bring, and syncs it once for many."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepprof.live.service.fair_queue import FairQueue
from deepprof.live.service.folder import StoreError
from deepprof.live.service.journal import JournalFrame
from deepprof.live.service.refusal import RefusedError

if TYPE_CHECKING:
    from deepprof.live.service.daemon_rank import DaemonRank, QueuedMessage
    from deepprof.live.service.journal import Journal, JournalPlace
    from deepprof.live.service.supervision import FirstFailure

__all__ = ["JournalWriter", "WriteResult"]

log = logging.getLogger(__name__)

GROUP_NBYTES = 64 << 20  # appended before a sync at most


@dataclass(frozen=True, slots=True)
class WriteResult:
    """An item that is durable at `place`; without one it is not, and `why` says so."""

    rank: DaemonRank
    item: QueuedMessage
    place: JournalPlace | None
    why: RefusedError | None = None


class JournalWriter:
    """Appends what callers and jobs bring in turn, of a job in the order in which it is submitted.

    `tell` is called from its thread with what is done.

    While one group is being synced the next one gathers, so that the sync is shared by as many streams as there are.
    When the disk refuses, every item of the group is told as not durable, and so is everything behind it of the same
    rank until the rank was mended. What the journal cannot bear of one rank is that rank's alone.
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
        """Queue an item; the caller bounds how many."""
        with self._wake:
            self._waiting.add(rank.owner, rank.hello.job, (rank, item))
            self._wake.notify()

    def release(self, before: JournalPlace) -> None:
        """Let segments go of which nobody needs anything before a place any more."""
        with self._wake:
            self._release = before
            self._wake.notify()

    def close(self) -> None:
        """Write what is queued, and end."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not (self._is_idle() and self._closing):
            self.work()

    def _is_idle(self) -> bool:
        """Wait for something to do; return whether there is nothing, as it is to end."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closing or self._release)
            return not self._waiting and self._release is None

    def work(self) -> None:
        """Let go of what may go, then write what waits, and tell so."""
        group, release = self._gather()
        if release is not None:
            self._let_go(release)
        if group:
            self._tell(self._write(group))

    def _gather(self) -> tuple[list[tuple[DaemonRank, QueuedMessage]], JournalPlace | None]:
        """Return a group of items that wait, and what may go; there can be nothing of either."""
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
        except Exception:  # a bug that one message met, or the journal's own
            log.exception("journal-failed")
            places = self._append_by_rank(whole)
        return [WriteResult(rank, item, places.get(id(item)), rank.broken) for rank, item in group]

    def _append_by_rank(self, whole: Sequence[tuple[DaemonRank, QueuedMessage]]) -> dict[int, JournalPlace]:
        """Append what can be appended, each rank's alone. Raises what the journal raises without any of them."""
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
        """Return where items lie now, by their identity; a disk that refuses breaks their ranks."""
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
