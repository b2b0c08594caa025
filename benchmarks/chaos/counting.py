"""What a store contains of what was acknowledged, after fsck and a restart: records by the numbers they know."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.chaos.daemon import Daemon
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.records import numbers_of
from deepprof.live.client.credentials import Credentials
from deepprof.live.client.daemon import Daemon as Client
from deepprof.live.client.endpoint import find_endpoint
from deepprof.v1.query_pb2 import ReadWindowRequest

__all__ = ["Count", "check", "count_rank", "count_records", "open_client", "tally"]

UNACKNOWLEDGED = "journal-failed"  # records that were refused, and were sent again: each time counts
HARMLESS = ("lost: nothing",)  # how a line of fsck ends that shows of no acknowledged record


@dataclass(frozen=True, slots=True)
class Count:
    """Records: `lost` were acknowledged and are not there, `doubled` are there more than once; `wrong` was stated of
    them by the daemon's own account."""

    held: int
    lost: int
    doubled: int
    wrong: int


def check(store: Path) -> tuple[str, bool]:
    """Run `deepprof fsck`, and return its last line, and whether it found nothing that was acknowledged missing."""
    command = [sys.executable, "-m", "deepprof", "fsck", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    harmless = done.returncode in (0, 1) and all(any(word in line for word in HARMLESS) for line in lines[:-1])
    return (lines[-1] if lines else done.stderr.strip()[-200:]), harmless


def open_client(daemon: Daemon, token: str = "judge") -> Client:  # noqa: S107 - a name
    """Return a client of the daemon that may ask everything."""
    return Client(
        find_endpoint(daemon.socket, Credentials(token_file=str(daemon.folder / f"{token}.token")), environ={})
    )


def count_records(daemon: Daemon, fleet: Fleet) -> Count:
    """Return what the daemon holds of the fleet's records."""
    with open_client(daemon) as client:
        known = {job.job for job in client.jobs()}
        each = [count_rank(client, *of) if of[0] in known else (0, of[2], 0, 0) for of in fleet.each()]
    return Count(*(sum(column) for column in zip(*each, strict=True)))


def count_rank(client: Client, job: str, rank: int, acknowledged: int) -> tuple[int, int, int, int]:
    """Return how many records of a rank are kept, lost, doubled, and in no count of the daemon's or in several."""
    held, lost, doubled = tally(stored_numbers(client, job, rank), acknowledged)
    accounts = [each.account for each in client.ranks(job) if each.rank == rank]
    counted = sum(each.accepted + sum(each.dropped.values()) - each.dropped.get(UNACKNOWLEDGED, 0) for each in accounts)
    return held, lost, doubled, abs(counted - held)


def tally(stored: Iterable[np.ndarray], acknowledged: int) -> tuple[int, int, int]:
    """Return how many different records are kept, how many below `acknowledged` are not, and how many come again."""
    all_ = np.concatenate([np.empty(0, np.uint64), *stored])
    numbers = np.unique(all_)
    return len(numbers), acknowledged - int(np.searchsorted(numbers, acknowledged)), len(all_) - len(numbers)


def stored_numbers(client: Client, job: str, rank: int) -> Iterator[np.ndarray]:
    """Yield the numbers of the records that the daemon has of a rank."""
    for answer in client.stream(client.query.ReadWindow, ReadWindowRequest(job=job, ranks=[rank])):
        if answer.HasField("batch"):
            yield from numbers_of(answer.batch)
