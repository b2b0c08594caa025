"""Tries places one after the other, each in its own process, and prints a line of JSON for each."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.deepprof.live.service.faults.injection import PLAN
from tests.patience import PATIENCE_S

__all__ = ["NOT_PASSED", "StuckError", "main"]

DEADLINE_S = 3 * PATIENCE_S  # for a place: only what hangs takes it
NOT_PASSED = "not passed"
TRIES = 5  # for a place that the course comes to nearly always: how threads take turns is not the course's to state
NOT_REACHED = 3  # exit status of a child that has tried a place in vain, and has nothing else to show

Try = Callable[[str, Path], tuple[str, list[str]]]
"""Runs the course with an error at a place ("": at none) in a folder, and returns how it went and what is wrong."""


class StuckError(Exception):
    """A client in the daemon's own process waits on, though the daemon has ended, it was cut, and its time is over.

    That is gRPC's: seen once in some thousand lives on a busy machine. Clients of a daemon are other processes, whose
    connections end with it. The place is tried again; one at which that happens each time was not passed.
    """


def main(beside: Callable[[], AbstractContextManager[Try]], not_passed: Collection[str]) -> None:
    """Try the places of one shard: FOLDER SHARD SHARDS [PLACE …]; `--list` lists all. `beside` gives what tries one.

    Those in `not_passed` are tried only where the course passes them when nothing goes wrong: the list is wrong then.
    """
    if sys.argv[1:] == ["--list"]:
        sys.stdout.write("\n".join(sorted(PLAN.passed)) + "\n")
        return
    folder, shard, shards = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    wanted = sys.argv[4:] or sorted(PLAN.passed)[shard::shards]
    with beside() as attempt:
        passed = find_passed(attempt, folder)
        for number, place in enumerate(wanted):
            tries = TRIES if place in passed or place not in not_passed else 0
            if not any(apart(attempt, place, folder / f"{number}-{again}") for again in range(tries)):
                tell(place, NOT_PASSED, [])


def find_passed(attempt: Try, folder: Path) -> Sequence[str]:
    """Return the places that are passed when nothing goes wrong."""
    apart(attempt, "", folder / "none")
    return (folder / "passed").read_text().splitlines() if (folder / "passed").exists() else []


def apart(attempt: Try, place: str, folder: Path) -> bool:
    """Try a place in its own process, as a daemon has one; return whether there was something to show of it."""
    child = os.fork()  # before gRPC or polars have begun anything
    if not child:
        os._exit(report(attempt, place, folder))  # whatever still runs
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, NOT_REACHED):
        tell(place, "died", [f"with status {status}"])
    return code != NOT_REACHED


def report(attempt: Try, place: str, folder: Path) -> int:
    """Try a place, and state how it went, whatever happens; not that it was not reached, and nothing was wrong."""
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)  # to stderr: where it hangs
    try:
        folder.mkdir()
        how, problems = attempt(place, folder)
        if place and how == NOT_PASSED and not problems:
            return NOT_REACHED
        tell(place, how, problems)
        if not place:
            (folder.parent / "passed").write_text("\n".join(place for place, count in PLAN.passed.items() if count))
    except StuckError:
        return NOT_REACHED
    except BaseException as error:
        tell(place, "failed", [f"{type(error).__name__}: {error}"])
    return 0


def tell(place: str, how: str, problems: list[str]) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps({"place": place, "how": how, "problems": problems}) + "\n")
    sys.stdout.flush()
