"""Supervision of the threads, tasks and callbacks on which a whole daemon or agent depends.

A process that continues without one of them looks alive and does nothing. So an unforeseen error in one of them is kept
here as the process's failure: liveness is false from then on, and the process ends, to be started again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from deepprof.collectors.errors import DeepProfError, escaped
from deepprof.render.plain import shorten

log = logging.getLogger(__name__)

P = ParamSpec("P")


class ProcessFailedError(DeepProfError):
    """A daemon or an agent (`who`) cannot go on because of its own bug; what it has acknowledged is on disk."""

    def __init__(self, who: str, problem: str) -> None:
        super().__init__(f"{who} has ended: {problem}; start it again, and report what its log says")


@dataclass(slots=True)
class FirstFailure:
    """Keeps the first failure of a supervised part; safe from any thread. `failed` is called once, at that failure."""

    problem: str = ""
    failed: Callable[[], None] = field(default=lambda: None)

    def guard(self, part: str, work: Callable[P, Any]) -> Callable[P, None]:
        """Return `work` as a function that makes the process fail if it raises; `part` names it for people."""

        def run(*args: P.args, **more: P.kwargs) -> None:
            try:
                work(*args, **more)
            except BaseException as error:  # of any kind, because no other code sees it
                self.fail(part, error)

        return run

    async def watch(self, part: str, work: Awaitable[object]) -> None:
        """Await `work`; an error makes the process fail, but one that people can fix is raised instead."""
        try:
            await work
        except (DeepProfError, OSError):
            raise
        except Exception as error:
            self.fail(part, error)

    def check(self, who: str) -> None:
        """Raise `ProcessFailedError` where a part has failed; `who` is the process."""
        if self.problem:
            raise ProcessFailedError(who, self.problem)

    def fail(self, part: str, error: BaseException) -> None:
        """Note that a part has ended with `error`."""
        log.critical("part-failed", exc_info=error, extra={"part": part})
        if not self.problem:
            self.problem = shorten(escaped(f"{part} has met a bug ({type(error).__name__}: {error})"), 300)
            self.failed()
