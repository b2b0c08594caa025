"""A disk that is full, may only be read, or fails: calls of the daemon on its store return errors for a while."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.chaos.counting import count_rank, open_client
from benchmarks.chaos.ground import Ground
from benchmarks.chaos.plan import Call
from deepprof.live.client.errors import DaemonError

__all__ = ["bad_reads", "bad_renames", "failing_disk", "full_history", "killed_when"]

GROWING = Call.WRITE | Call.CREATE | Call.TRUNCATE | Call.MKDIR
CHANGING = GROWING | Call.RENAME | Call.UNLINK
FAULTS = {
    "ENOSPC": (GROWING, errno.ENOSPC),
    "EROFS": (CHANGING, errno.EROFS),
    "EIO on write": (Call.WRITE, errno.EIO),
    "EIO on fsync": (Call.SYNC, errno.EIO),
}
LONGEST_S = 3.0


def failing_disk(name: str) -> Callable[[Ground], str]:
    """Return what has the calls of a fault fail on the store, again and again for a while."""

    def disturb(ground: Ground) -> str:
        calls, error = FAULTS[name]
        while ground.again():
            fail_for_a_while(ground, calls, error, ground.daemon.store)
        return f"{ground.times} x {name} for up to {LONGEST_S:.0f} s"

    return disturb


def fail_for_a_while(ground: Ground, calls: Call, error: int, prefix: Path) -> None:
    """Have calls fail until at least one did, and for a random time; the daemon may end over it, but never hang."""
    before = ground.plan.hits()

    def has_failed() -> bool:
        return ground.plan.hits() > before or not ground.daemon.runs or ground.fleet.is_done

    with ground.plan.failing(calls, error, prefix):
        ground.wait_for(has_failed, "a failed call")
        ground.pause(LONGEST_S)


def killed_when(name: str, what: str) -> Callable[[Ground], str]:
    """Return what kills the daemon on such a disk, and starts it there, where it may not come up; then all is well."""

    def disturb(ground: Ground) -> str:
        while ground.again():
            with ground.plan.failing(*FAULTS[name], ground.daemon.store):
                ground.pause(0.5)
                ground.daemon.kill()
                ground.daemon.launch()
                ground.daemon.wait_ready()
            ground.daemon.revive_until_ready()
        return f"{ground.times} x kill -9 and a start on a {what} disk"

    return disturb


def full_history(ground: Ground) -> str:
    """Have the history's disk be full while the journal's is not: what is acknowledged must still be there later."""
    while ground.again():
        fail_for_a_while(ground, *FAULTS["ENOSPC"], ground.daemon.store / "history.db")
    return f"{ground.times} x ENOSPC for the history only, up to {LONGEST_S:.0f} s"


@contextmanager
def asking(ground: Ground) -> Iterator[None]:
    """Have someone read raw records all the while, whatever answers come."""
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            job, rank, _ = next(ground.fleet.each())
            with suppress(DaemonError), open_client(ground.daemon) as client:
                count_rank(client, job, rank, 0)

    reader = threading.Thread(target=ask, daemon=True)
    reader.start()
    try:
        yield
    finally:
        done.set()
        reader.join(ground.deadline_s)


def bad_reads(ground: Ground) -> str:
    """Have reads of the store fail while someone requests it, and at every second time during a restart."""
    with asking(ground):
        while ground.again():
            if ground.times % 2:
                fail_for_a_while(ground, Call.READ, errno.EIO, ground.daemon.store)
            else:
                restart_blind(ground)
    return f"{ground.times} x EIO on read, every second time at a start after kill -9"


def restart_blind(ground: Ground) -> None:
    """Kill the daemon, and start it where a read or two of its journal fail; then it is started until it is ready."""
    ground.daemon.kill()
    with ground.plan.failing(Call.READ, errno.EIO, ground.daemon.store / "journal", left=ground.chance.randint(1, 3)):
        ground.daemon.launch()
        ground.daemon.wait_ready()
        ground.daemon.revive_until_ready()


def bad_renames(ground: Ground) -> str:
    """Have renames in the store fail while captures are requested, which end in one."""
    refused = 0
    while ground.again():
        job, rank, _ = next(ground.fleet.each())
        with ground.plan.failing(Call.RENAME, errno.EIO, ground.daemon.store), open_client(ground.daemon) as client:
            try:
                client.capture(job, rank)
            except DaemonError:
                refused += 1
    return f"{ground.times} x EIO on rename at a capture, {refused} told so"
