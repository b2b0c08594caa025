"""The store's folder on disk: entries are checked and made safely, never through a link, by one daemon at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepprof.collectors.errors import DeepProfError, escaped
from deepprof.ownership import find_fault

PRIVATE_DIR, PRIVATE_FILE = 0o700, 0o600
CAPTURES_LIST = "captures.json"  # in the folder of the captures: the data of every capture
CHECK = "run `deepprof fsck` on the store"


class StoreError(DeepProfError):
    """A daemon's store cannot be used as it is: the path, the problem and the advice, on one printable line."""

    def __init__(self, path: object, problem: str, advice: str = CHECK) -> None:
        self.path, self.problem, self.advice = str(path), problem, advice
        super().__init__(escaped(f"{path}: {problem}; {advice}"))


def require_kind(path: Path, *, folder: bool = False) -> bool:
    """Return whether `path` exists; raises `StoreError` for a link, or for no file (with `folder`: no directory)."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(
            path, f"cannot be looked up: {error.strerror}", "check the path and its permissions"
        ) from error
    wanted = stat.S_ISDIR if folder else stat.S_ISREG
    if not wanted(mode):
        found = "a link" if stat.S_ISLNK(mode) else "something else"
        raise StoreError(path, f"is {found} where the store has a {'directory' if folder else 'plain file'}")
    return True


def prepare_folder(path: Path) -> None:
    """Make the directory as `make_folder`, and check that no other user can write to it; raises as that one."""
    make_folder(path)
    if fault := find_fault(path.lstat(), path, "store"):
        raise StoreError(path, *fault)


def make_folder(path: Path) -> None:
    """Make the directory `path` for the owner alone, unless it exists; raises `StoreError` and `OSError`.

    Only the last part is made: a store is never put into a directory that does not exist.
    """
    if not require_kind(path, folder=True):
        path.mkdir(mode=PRIVATE_DIR)
        sync_folder(path.parent)


def open_plain(path: Path, flags: int) -> int:
    """Return a descriptor of the plain file `path`, never of a link's target. Raises `StoreError` and `OSError`."""
    try:
        # Without O_NONBLOCK, opening a pipe in a file's place would block until a process opens it for writing.
        found = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, PRIVATE_FILE)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            require_kind(path)
        raise
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise StoreError(path, "is no plain file, as every file of a store is")
    return found


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have an `OSError` in the block name `path`: errors of calls on a descriptor name no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def sync_folder(path: Path) -> None:
    """Make the names in `path` survive a power loss after files were created, renamed or removed. Raises `OSError`."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with naming(path):
            os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def lock_store(store: Path) -> Iterator[None]:
    """Lock the store for this process; raises `StoreError` where another one holds it. Ends with the process."""
    path = store / "lock"
    held = open_plain(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(store, "is in use by a running daemon", "stop it, or use another store") from error
        yield
    finally:
        os.close(held)
