"""The end of a run: waits until the daemon has the command's records on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from deepprof.live.agent.answers import AgentStatus, ProcessStatus
from deepprof.live.agent.asking import NoAnswerReason, NotAnsweredError, ask
from deepprof.live.agent.running import wait_for_request
from deepprof.live.agent.summary import RunAccount, add_up, select

AWAY_S = 2.0  # a daemon that has been away so long is not waited for: the records on disk are sent later
LOOK_S = 0.1
ASK_S = 2.0  # for one answer: a signal that ends the wait is handled after it

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
    """Wait until the daemon has reported what became of the job's records, at most `patience_s`.

    Returns the last answer, the job's processes in it and their account. Asks at least twice: a process that ended at
    once may not be known the first time. An agent that is too busy to answer is asked again within `patience_s`. Raises
    `NotAnsweredError`.
    """
    began_s = away_s = time.monotonic()
    looks = 0
    while True:
        try:
            answer = ask(socket, ASK_S)
        except NotAnsweredError as error:
            if error.why is not NoAnswerReason.SILENT or time.monotonic() - began_s >= patience_s or pause(LOOK_S):
                raise
            away_s = time.monotonic()  # nothing shows that the daemon is away
            continue
        processes = select(answer, job, before)
        account = add_up(processes, is_alive)
        looks, now_s = looks + 1, time.monotonic()
        away_s = now_s if answer.connected else away_s
        over = now_s - began_s >= patience_s or now_s - away_s >= min(AWAY_S, patience_s)
        if (account.settled and (account.made or looks > 1)) or over or pause(LOOK_S):
            return answer, processes, account


def is_alive(pid: int) -> bool:
    """Whether a process exists; also True for another user's."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
