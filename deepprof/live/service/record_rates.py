"""The rate of each sender: a limit in records per second, kept by delaying messages and not by refusing them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepprof.live.service.clock import DaemonClock

__all__ = ["RecordRates"]

BURST_NS = 10**9  # that a sender may be ahead of its rate


class RecordRates:
    """Knows for each sender how far it is ahead of its rate; for the event loop only.

    A message is admitted while its sender is not more than a second ahead, whatever its size: in any time `t` a sender
    brings at most `rate * (t + 1 s)` records and one message per stream.
    """

    def __init__(self, clock: DaemonClock) -> None:
        self.clock = clock
        self.records, self.held_ns = Counter[str](), Counter[str]()  # since the start, by sender
        self._ahead: dict[str, tuple[int, int]] = {}  # records * 10**9 beyond the rate, and when that was so

    def count(self, sender: str, records: int, per_s: int) -> None:
        """Count records that a sender has brought; `per_s` is its rate, 0: any."""
        self.records[sender] += records
        if per_s:
            ahead = self._look(sender, per_s) + records * 10**9
            self._ahead[sender] = ahead, self.clock.monotonic_ns()
        else:
            self._ahead.pop(sender, None)

    def wait_ns(self, sender: str, per_s: int) -> int:
        """Return for how long a sender's next message has to wait, in ns, as far as is known now."""
        return max(0, -(-self._look(sender, per_s) // per_s) - BURST_NS) if per_s else 0

    def _look(self, sender: str, per_s: int) -> int:
        """Return how far a sender is ahead now, in records times 10**9, so that a new rate takes effect at once."""
        ahead, at_ns = self._ahead.get(sender, (0, 0))
        return max(0, ahead - (self.clock.monotonic_ns() - at_ns) * per_s)
