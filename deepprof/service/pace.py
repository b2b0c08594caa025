"""How fast each sender may go: records per second, held by waiting and not by refusing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepprof.service.clock import Clock

__all__ = ["Pace"]

BURST_NS = 10**9  # that a sender may be ahead of its rate


class Pace:
    """Knows for each sender how far it is ahead of its rate; belongs to the event loop.

    A message is let in while its sender is not more than a second ahead, whatever its size: in any time `t` a sender
    brings at most `rate * (t + 1 s)` records and one message per stream.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.records, self.held_ns = Counter[str](), Counter[str]()  # since the start, by sender
        self._due_ns: dict[str, int] = {}  # when what has come so far would have come at the rate

    def count(self, sender: str, records: int, per_s: int) -> None:
        """Count records that a sender has brought; `per_s` is its rate, 0: any."""
        self.records[sender] += records
        if per_s:
            now = self.clock.monotonic_ns()
            self._due_ns[sender] = max(self._due_ns.get(sender, now), now) + records * 10**9 // per_s
        else:
            self._due_ns.pop(sender, None)

    def wait_ns(self, sender: str) -> int:
        """Return for how long a sender's next message has to wait, as far as is known now."""
        if sender not in self._due_ns:
            return 0
        return max(0, self._due_ns[sender] - self.clock.monotonic_ns() - BURST_NS)
