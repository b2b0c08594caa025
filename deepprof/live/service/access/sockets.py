"""Unix sockets: a directory that nobody else writes to, one daemon per path, and nothing removed that is alive."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepprof.collectors.errors import UsageError, printable
from deepprof.ownership import find_fault

__all__ = ["allow_group", "claim", "private_files"]

ANSWER_S = 5.0


def claim(path: Path, group: str) -> int:
    """Make room for a socket at `path`, and return the lock that keeps other daemons off; closing it gives it up.

    gRPC replaces whatever socket is there, a living one too, so nobody may be listening. Raises `UsageError`.
    """
    try:
        prepare_folder(path.parent, group)
        lock = take_lock(path)
    except OSError as error:
        raise refused(path, f"{error.strerror or error}", "choose another directory for the socket") from error
    try:
        remove_stale(path)
    except BaseException:
        os.close(lock)
        raise
    return lock


def prepare_folder(folder: Path, group: str) -> None:
    """Create the directory for us alone (and to enter for `group`), or check that no one else can write to it."""
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True)
        if group:
            give_to(folder, group, 0o750)
    if fault := find_fault(folder.stat(), folder, "socket"):
        raise refused(folder, *fault)


def give_to(path: Path, group: str, mode: int) -> None:
    """Give `path` to a group of ours. Raises `UsageError` for others."""
    try:
        shutil.chown(path, group=group)
        path.chmod(mode)
    except (LookupError, OSError) as error:
        problem = f"cannot be given to the group {group} ({error})"
        raise refused(path, problem, "name a group that the daemon's user is in") from error


def allow_group(path: Path, mode: int, group: str) -> None:
    """Set who may connect to the socket at `path`."""
    if group:
        give_to(path, group, mode)
    else:
        path.chmod(mode)


def take_lock(path: Path) -> int:
    """Return a lock held on the file beside `path`.

    It stays when the daemon ends: whoever removed it could remove the next daemon's.
    """
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise taken(path) from error
    return lock


def remove_stale(path: Path) -> None:
    """Remove a socket that nobody answers at; `UsageError` where somebody does, or where it is no socket."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise refused(path, "is there and no socket", "choose another path")
    if is_answered(path):
        raise taken(path)
    path.unlink()


def is_answered(path: Path) -> bool:
    """Whether somebody listens at a socket, busy ones included."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(ANSWER_S)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


@contextmanager
def private_files() -> Iterator[None]:
    """Create files for our user alone until the block ends: a socket is born with the mode that umask leaves it."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def taken(path: Path) -> UsageError:
    """Return the error for a path at which another daemon listens."""
    return refused(path, "another daemon listens there", "stop it or choose another address (--listen)")


def refused(path: Path, problem: str, advice: str) -> UsageError:
    """Return the error of a path, one printable line."""
    return UsageError(printable(f"{path}: {problem}; {advice}"))
