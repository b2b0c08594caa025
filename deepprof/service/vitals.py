"""What everything in the daemon depends on: threads and callbacks whose unexpected end is the daemon's end.

A daemon that goes on without one of them looks alive and does nothing. So whatever they meet that nobody foresaw is
kept here as the daemon's failure: liveness is false from then on, and the daemon ends, to be started again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from deepprof.collectors.errors import DeepProfError, printable
from deepprof.render.plain import shorten

__all__ = ["DaemonFailedError", "Vitals"]

log = logging.getLogger(__name__)

P = ParamSpec("P")


class DaemonFailedError(DeepProfError):
    """The daemon cannot go on because of a bug of its own; what it has acknowledged is in its store."""

    def __init__(self, problem: str) -> None:
        super().__init__(printable(f"the daemon has ended: {problem}; start it again, and report what its log says"))


@dataclass(slots=True)
class Vitals:
    """Keeps the first failure of what everything depends on; safe from any thread. `failed` is called once, with it."""

    problem: str = ""
    failed: Callable[[], None] = field(default=lambda: None)

    def guard(self, part: str, work: Callable[P, Any]) -> Callable[P, None]:
        """Return `work` as something that fails the daemon where it raises; `part` names it for people."""

        def run(*args: P.args, **more: P.kwargs) -> None:
            try:
                work(*args, **more)
            except BaseException as error:  # whatever it is: nobody else hears of it
                self.fail(part, error)

        return run

    def fail(self, part: str, error: BaseException) -> None:
        """Take note that a part has ended with `error`."""
        log.critical("part-failed", exc_info=error, extra={"part": part})
        if not self.problem:
            self.problem = shorten(f"{part} has met a bug ({type(error).__name__}: {error})", 300)
            self.failed()
