"""Unix sockets: in a directory that no other user can write to, with one daemon per path; no live one is removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepprof.collectors.errors import UsageError, escaped
from deepprof.ownership import find_fault

ANSWER_S = 5.0


def claim(path: Path, group: str) -> int:
    """Free `path` for a socket, and return the lock that keeps other daemons off; closing the lock releases it.

    gRPC replaces any socket at the path, also a live one, so no process may be listening there. Raises `UsageError`.
    """
    try:
        _prepare_folder(path.parent, group)
        lock = take_lock(path)
    except OSError as error:
        raise _refused(path, f"{error.strerror or error}", "choose another directory for the socket") from error
    try:
        _remove_stale(path)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _prepare_folder(folder: Path, group: str) -> None:
    """Create the directory for our user alone (`group` may enter), or check that no other user can write to it."""
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True)
        if group:
            _give_to(folder, group, 0o750)
    if fault := find_fault(folder.stat(), folder, "socket"):
        raise _refused(folder, *fault)


def _give_to(path: Path, group: str, mode: int) -> None:
    """Give `path` to one of our user's groups. Raises `UsageError` for other groups."""
    try:
        shutil.chown(path, group=group)
        path.chmod(mode)
    except (LookupError, OSError) as error:
        problem = f"cannot be given to the group {group} ({error})"
        raise _refused(path, problem, "name a group that the daemon's user is in") from error


def allow_group(path: Path, mode: int, group: str) -> None:
    """Set which users may connect to the socket at `path`."""
    if group:
        _give_to(path, group, mode)
    else:
        path.chmod(mode)


def take_lock(path: Path) -> int:
    """Return a lock held on the file next to `path`.

    The file stays when the daemon ends: removing it could remove the file that the next daemon has locked.
    """
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise _taken(path) from error
    return lock


def _remove_stale(path: Path) -> None:
    """Remove a socket at which no process listens. Raises `UsageError` where one does, or where it is no socket."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise _refused(path, "is there and no socket", "choose another path")
    if _is_answered(path):
        raise _taken(path)
    path.unlink()


def _is_answered(path: Path) -> bool:
    """Return whether a process listens at a socket, even a busy one."""
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
    """Create files for our user alone until the block ends: a new socket gets its mode from the umask."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _taken(path: Path) -> UsageError:
    return _refused(path, "another daemon listens there", "stop it or choose another address (--listen)")


def _refused(path: Path, problem: str, advice: str) -> UsageError:
    return UsageError(escaped(f"{path}: {problem}; {advice}"))
