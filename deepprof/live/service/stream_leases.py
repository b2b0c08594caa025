"""Leases for long calls: their number is limited, and a caller never contains more than are left for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from deepprof.live.service.rank_eviction import name_most
from deepprof.live.service.refusal import RefusedError


class StreamLeases:
    """Counts the leases by the caller's name; for the event loop only.

    `limit` is one word for logs and metrics, `what` describes for people what the leases are for. A caller gets at most
    half of the leases that the others leave, so that a caller without one gets one until almost all are taken.
    """

    def __init__(self, limit: str, what: str, most: int) -> None:
        self.limit, self.what, self.most = limit, what, most
        self._held = Counter[str]()

    def __len__(self) -> int:
        return self._held.total()

    @contextmanager
    def hold(self, caller: str, count: int = 1) -> Iterator[None]:
        """Hold `count` leases until the block ends. Raises `RefusedError` where this caller may not have them."""
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
