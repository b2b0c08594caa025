"""Files that are read again when they change; if the new content is broken, the former value is kept."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from deepprof.collectors.errors import UsageError, escaped

log = logging.getLogger(__name__)

T = TypeVar("T")
State = tuple[tuple[int, ...] | None, ...]


class WatchedFiles(Generic[T]):
    """The value that `load` makes from files, made again when one of `paths` has changed.

    A `UsageError` of the first load is raised; that of a later load is logged as `event`, once, and the value stays.
    """

    def __init__(self, paths: Sequence[str], load: Callable[[], T], event: str) -> None:
        self._paths, self._load, self._event = paths, load, event
        self._state = _read_state(paths)
        self._value = load()

    def look(self) -> T:
        """Return the value of the files as they are now."""
        state = _read_state(self._paths)
        if state != self._state:
            self._state = state
            self._reload()
        return self._value

    def _reload(self) -> None:
        try:
            self._value = self._load()
        except UsageError as error:
            log.error("%s-kept", self._event, extra={"problem": str(error)})
        else:
            log.info("%s-renewed", self._event)


def _read_state(paths: Sequence[str]) -> State:
    """Return the attributes that change when files are written or replaced; None for a missing file."""
    return tuple(_read_one(path) for path in paths)


def _read_one(path: str) -> tuple[int, ...] | None:
    """Return the identity, size and times of one file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_private(path: str, most_nbytes: int, forbidden: int) -> tuple[bytes, int]:
    """Return content and mode of a file that belongs to our user or root and whose mode has no bit of `forbidden`.

    Raises `UsageError` for any other file, and for one larger than `most_nbytes`.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            found = os.fstat(file.fileno())
            _check_owner(path, found, forbidden)
            content = file.read(most_nbytes + 1)
    except (OSError, ValueError) as error:
        raise UsageError(escaped(f"{path}: {getattr(error, 'strerror', None) or error}; check the path")) from error
    if len(content) > most_nbytes:
        raise UsageError(escaped(f"{path}: is larger than {most_nbytes:,} bytes; check the path"))
    return content, found.st_mode


def _open_at_once(path: str, flags: int) -> int:
    """Open `path` without waiting for a writer in case it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _check_owner(path: str, found: os.stat_result, forbidden: int) -> None:
    """Raise `UsageError` where another user could read or write the file in a way that is forbidden."""
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(escaped(f"{path}: is no file; check the path"))
    if found.st_uid not in {0, os.geteuid()}:
        raise UsageError(escaped(f"{path}: belongs to another user; chown it to the daemon's"))
    if found.st_mode & forbidden:
        raise UsageError(escaped(f"{path}: others can read or write it; chmod 600 {path}"))
