"""Refusals of the daemon: the error that the client gets over gRPC, and the counts that the operator sees."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping


class RefusedError(Exception):
    """A refusal: `code` is the name of a gRPC status, the text states why and what to do.

    `reason` is one word for logs and metrics; the default is made from the status.
    """

    def __init__(self, code: str, text: str, reason: str = "") -> None:
        self.code, self.reason = code, reason or code.lower().replace("_", "-")
        super().__init__(text)


class Refusals:
    """How often something was refused, by reason and by sender ("": unknown). Safe from any thread."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str]]()
        self._lock = threading.Lock()

    def note(self, reason: str, sender: str) -> None:
        """Count one refusal."""
        with self._lock:
            self._counts[reason, sender] += 1

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return the counts as they are now, by reason and sender."""
        with self._lock:
            return dict(self._counts)
