"""A source's notices to people: each line once, and the latest kept for `deepprof doctor`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from deepprof.collectors.errors import escaped

MAX_REMEMBERED_NOTICES = 1024  # lines remembered: a source with more lines may repeat one
CHARS = 500


@dataclass(slots=True)
class NoticeLog:
    """Lines for the log; `tell` is called with every new one."""

    tell: Callable[[str], None]
    said: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_REMEMBERED_NOTICES))

    def say(self, text: str) -> None:
        """Pass on one printable line, unless it is remembered from before."""
        line = escaped(text)[:CHARS]
        if line not in self.said:
            self.said.append(line)
            self.tell(line)

    @property
    def latest(self) -> list[str]:
        """The last few lines."""
        return list(self.said)[-5:]
