"""The disk space that all spools of an agent share."""

from __future__ import annotations

import threading

__all__ = ["LIMIT_NBYTES", "SpoolBudget"]

LIMIT_NBYTES = 1 << 30  # some 15 million records: a quarter of an hour of a busy GPU, on any node's disk


class SpoolBudget:
    """At most `limit_nbytes` on disk for records; messages that must be kept in any case (gaps, ends) go beyond it.

    Threads that append at the same moment may go beyond it by a message each.
    """

    def __init__(self, limit_nbytes: int = LIMIT_NBYTES) -> None:
        self.limit_nbytes, self.nbytes = limit_nbytes, 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> None:
        """Count `nbytes` more, or less where they are negative."""
        with self._lock:
            self.nbytes += nbytes

    def fits(self, nbytes: int) -> bool:
        """Return whether there is space for `nbytes` more."""
        return self.nbytes + nbytes <= self.limit_nbytes
