"""The daemon's clocks, which tests can replace."""

from __future__ import annotations

import time
from typing import Protocol


class DaemonClock(Protocol):
    """Both clocks that the daemon reads."""

    def unix_ns(self) -> int:
        """Return nanoseconds since 1970; may jump."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds since some time; never falls."""
        ...


class DaemonSystemClock:
    """The machine's clocks."""

    def unix_ns(self) -> int:
        """Return nanoseconds since 1970."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return nanoseconds since some time."""
        return time.monotonic_ns()
