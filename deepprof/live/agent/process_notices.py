"""What a process shows people, by code, and the lines of the log about it: both bounded, whatever it sends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepprof.live.agent.hello import ProcessHello

log = logging.getLogger(__name__)

MOST_NOTICES, MOST_LINES = 16, 64  # of one process: codes, and lines of the log


class ProcessNotices:
    """The latest text of every code, the latest of all last."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.lines = 0

    def take(self, code: int, text: str, hello: ProcessHello) -> None:
        """Keep a notice and log it, if it is a new one and there is room."""
        has_room = (code in self.texts or len(self.texts) < MOST_NOTICES) and self.lines < MOST_LINES
        if has_room and text != self.texts.get(code):
            self.lines += 1
            self.keep(code, text, hello)

    def keep(self, code: int, text: str, hello: ProcessHello) -> None:
        """Keep a notice of the agent's own, for which there is always room, and log it."""
        self.texts.pop(code, None)
        self.texts[code] = text
        log.warning("notice", extra={"pid": hello.pid, "collector": hello.collector, "text": text})
