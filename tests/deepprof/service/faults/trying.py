"""Tries places one after the other, each in a process of its own, and prints a line of JSON for each."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.deepprof.service.faults.injection import PLAN

__all__ = ["main"]

DEADLINE_S = 120.0  # for a place: only what hangs takes it

Try = Callable[[str, Path], tuple[str, list[str]]]
"""Runs the course with an error at a place ("": at none) in a folder, and returns how it went and what is wrong."""


def main(beside: Callable[[], AbstractContextManager[Try]]) -> None:
    """Try the places of one shard: FOLDER SHARD SHARDS [PLACE …]; `--list` lists all. `beside` gives what tries one.

    Those that the course does not pass when nothing goes wrong are not tried.
    """
    if sys.argv[1:] == ["--list"]:
        sys.stdout.write("\n".join(sorted(PLAN.passed)) + "\n")
        return
    folder, shard, shards = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    wanted = sys.argv[4:] or sorted(PLAN.passed)[shard::shards]
    with beside() as attempt:
        passed = find_passed(attempt, folder)
        for number, place in enumerate(wanted):
            if place in passed:
                apart(attempt, place, folder / str(number))
            else:
                tell(place, "not passed", [])


def find_passed(attempt: Try, folder: Path) -> Sequence[str]:
    """Return the places that are passed when nothing goes wrong."""
    apart(attempt, "", folder / "none")
    return (folder / "passed").read_text().splitlines() if (folder / "passed").exists() else []


def apart(attempt: Try, place: str, folder: Path) -> None:
    """Try a place in a process of its own, as a daemon has one."""
    child = os.fork()  # before gRPC or polars have begun anything
    if not child:
        report(attempt, place, folder)
        os._exit(0)  # whatever still runs
    _, status = os.waitpid(child, 0)
    if status:
        tell(place, "died", [f"with status {status}"])


def report(attempt: Try, place: str, folder: Path) -> None:
    """Try a place, and say how it went, whatever happens."""
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)  # to stderr: where it hangs
    try:
        folder.mkdir()
        tell(place, *attempt(place, folder))
        if not place:
            (folder.parent / "passed").write_text("\n".join(place for place, count in PLAN.passed.items() if count))
    except BaseException as error:
        tell(place, "failed", [f"{type(error).__name__}: {error}"])


def tell(place: str, how: str, problems: list[str]) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps({"place": place, "how": how, "problems": problems}) + "\n")
    sys.stdout.flush()
