"""What the daemon does not take: why, as gRPC tells it to who sent it, and how often, as the operator sees it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

__all__ = ["Refusals", "RefusedError"]


class RefusedError(Exception):
    """What cannot be taken: `code` is the name of a gRPC status, the text says why and what to do.

    `reason` is one word for logs and metrics; where none is given it is the status's.
    """

    def __init__(self, code: str, text: str, reason: str = "") -> None:
        self.code, self.reason = code, reason or code.lower().replace("_", "-")
        super().__init__(text)


class Refusals:
    """How often something was refused, by reason and by who sent it ("": nobody knows). Safe from any thread."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str]]()
        self._lock = threading.Lock()

    def note(self, reason: str, sender: str) -> None:
        """Count one."""
        with self._lock:
            self._counts[reason, sender] += 1

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return the counts as they are now, by reason and sender."""
        with self._lock:
            return dict(self._counts)
