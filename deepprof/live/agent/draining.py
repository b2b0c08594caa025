"""The end of a run: waiting until the daemon has on disk what the command gave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from deepprof.live.agent.answers import AgentStatus, ProcessStatus
from deepprof.live.agent.asking import NoAnswerReason, NotAnsweredError, ask
from deepprof.live.agent.running import wait_for_request
from deepprof.live.agent.summary import RunAccount, add_up, select

__all__ = ["drain"]

AWAY_S = 2.0  # a daemon that has been away so long is not waited for: what is on disk goes there later
LOOK_S = 0.1
ASK_S = 2.0  # for one answer: a signal that ends the wait is heard after it

Pause = Callable[[float], bool]
"""Waits so many seconds; True: do not wait any longer."""


def drain(
    socket: Path,
    job: str,
    before: Collection[str],
    patience_s: float,
    *,
    pause: Pause = wait_for_request,
) -> tuple[AgentStatus, list[ProcessStatus], RunAccount]:
    """Wait until the daemon has said what became of the job's records, for `patience_s` at most; returns the last word.

    Looks twice at least: a process that was over at once may not be known the first time. An agent that is too busy to
    answer is asked again as long. Raises `NotAnsweredError`.
    """
    began_s = away_s = time.monotonic()
    looks = 0
    while True:
        try:
            answer = ask(socket, ASK_S)
        except NotAnsweredError as error:
            if error.why is not NoAnswerReason.SILENT or time.monotonic() - began_s >= patience_s or pause(LOOK_S):
                raise
            away_s = time.monotonic()  # as far as anybody knows
            continue
        processes = select(answer, job, before)
        account = add_up(processes, is_alive)
        looks, now_s = looks + 1, time.monotonic()
        away_s = now_s if answer.connected else away_s
        over = now_s - began_s >= patience_s or now_s - away_s >= min(AWAY_S, patience_s)
        if (account.settled and (account.made or looks > 1)) or over or pause(LOOK_S):
            return answer, processes, account


def is_alive(pid: int) -> bool:
    """Whether a process is there; one of another user is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
