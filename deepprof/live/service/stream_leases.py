"""Places for those who stay for long: so many, and of one caller never more than are left for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from deepprof.live.service.rank_eviction import name_most
from deepprof.live.service.refusal import RefusedError

__all__ = ["StreamLeases"]


class StreamLeases:
    """Counts who holds one, by the caller's name; belongs to the event loop.

    `limit` is one word for logs and metrics, `what` says for people who has a place. A caller who is alone gets half
    of them, so that one who has none gets one until almost all callers' halves are taken.
    """

    def __init__(self, limit: str, what: str, most: int) -> None:
        self.limit, self.what, self.most = limit, what, most
        self._held = Counter[str]()

    def __len__(self) -> int:
        return self._held.total()

    @contextmanager
    def hold(self, caller: str, count: int = 1) -> Iterator[None]:
        """Hold places until the block ends. Raises `RefusedError` where there are none for this caller."""
        self._check(caller, count)
        self._held[caller] += count
        try:
            yield
        finally:
            self._held[caller] -= count
            if not self._held[caller]:
                del self._held[caller]

    def _check(self, caller: str, count: int) -> None:
        if self._held[caller] + count <= self.most - len(self):
            return
        held = name_most(Counter({name or "nobody known": count for name, count in self._held.items()}))
        rule = f"{self.limit}: {self.most:,} {self.what} at a time, and one caller as many as are left for others"
        raise RefusedError("RESOURCE_EXHAUSTED", f"{rule}; held by {held}; try again in a minute", self.limit)
