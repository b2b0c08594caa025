"""The folder that processes write their windows into: open to us only, every file checked before it is read."""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from deepprof.collectors.errors import UsageError

MOST_NBYTES = 1 << 30  # of one window: a few seconds of the busiest process make a tenth of that
ENTRIES = 4 * 4096  # a folder of windows never has more
CLOSING = b"}"  # the last byte of a complete trace


@dataclass(frozen=True, slots=True)
class WindowFile:
    """A window's file as it is now. `whole`: it ends as a trace does."""

    path: Path
    nbytes: int
    changed_ns: int
    whole: bool


@dataclass(slots=True)
class WindowFolder:
    """A folder of mode 0700, of files `TOKEN_PID.json`; raises `UsageError` if it cannot be made so."""

    path: Path
    tokens: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.path.lstat()
        except OSError as error:
            raise UsageError(f"{self.path}: cannot hold windows: {error.strerror}; name another folder") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise UsageError(f"{self.path}: is not a folder of yours alone (mode 0700); name another one")

    def new_token(self) -> str:
        """Return a token that no other window has."""
        token = secrets.token_hex(8)
        self.tokens.add(token)
        return token

    def target(self, token: str) -> Path:
        """Return the path that Kineto is given; it puts `_PID` before the suffix."""
        return self.path / f"{token}.json"

    def find(self, token: str) -> WindowFile | None:
        """Return the window's file, None while there is none; a link or a device does not count."""
        names = (name for name in self.names(token) if name.endswith(".json"))
        path = next((self.path / name for name in names), None)
        if path is None:
            return None
        try:
            found = path.lstat()
            regular = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            return WindowFile(path, found.st_size, found.st_mtime_ns, _is_whole(path)) if regular else None
        except OSError:  # renamed or removed under us
            return None

    def forget(self, token: str) -> None:
        """Remove a window's files."""
        self.tokens.discard(token)
        for name in self.names(token):
            (self.path / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove all windows, and the folder when nothing else is in it."""
        for token in list(self.tokens):
            self.forget(token)
        try:
            self.path.rmdir()
        except OSError:
            return

    def names(self, token: str) -> list[str]:
        """Return the names of a window's files: the trace, and its name until it is done."""
        try:
            with os.scandir(self.path) as entries:
                return [entry.name for entry in islice(entries, ENTRIES) if entry.name.startswith(token)]
        except OSError:
            return []


def _is_whole(path: Path) -> bool:
    """Return whether the file's last bytes close a JSON object."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 64))
        return file.read(64).rstrip().endswith(CLOSING)
