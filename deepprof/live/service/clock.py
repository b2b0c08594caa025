"""What time it is, so that tests can say it."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["DaemonClock", "DaemonSystemClock"]


class DaemonClock(Protocol):
    """Both clocks that the daemon looks at."""

    def unix_ns(self) -> int:
        """Nanoseconds since 1970; may jump."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since some time; never falls."""
        ...


class DaemonSystemClock:
    """The machine's clocks."""

    def unix_ns(self) -> int:
        """Nanoseconds since 1970."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Nanoseconds since some time."""
        return time.monotonic_ns()
