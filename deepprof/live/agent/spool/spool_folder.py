"""A spool's folder: made for its owner alone, never entered through a link, and held by one process at a time.

Files are opened relative to the folder's descriptor, so that no other folder can be put into its place.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from deepprof.collectors.errors import DeepProfError, escaped
from deepprof.live.segments.segment_files import find_numbers, write_all
from deepprof.ownership import find_fault
from deepprof.v1.records_pb2 import Hello

PRIVATE_DIR, PRIVATE_FILE = 0o700, 0o600
SPOOL_NAME = re.compile(r"[0-9a-f]{32}")
DAMAGED = ".damaged"
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in a file's place must not block us


class SpoolError(DeepProfError):
    """A spool that cannot be used: what, where, and what to do, on one printable line."""

    def __init__(self, path: object, problem: str, advice: str) -> None:
        self.path, self.problem, self.advice = str(path), problem, advice
        super().__init__(escaped(f"{path}: {problem}; {advice}"))


def name_spool(hello: Hello) -> str:
    """Return the folder's name for a job, rank and collector: it contains no text from outside."""
    words = "\0".join([hello.job, str(hello.rank), hello.collector])
    return hashlib.sha256(words.encode()).hexdigest()[:32]


def make_root(root: Path) -> None:
    """Make the folder of all spools, for us alone; raises `SpoolError` if that fails, or others can write there."""
    try:
        root.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
        fault = find_fault(root.stat(), root, "spool")
    except OSError as error:
        problem = f"cannot be made to keep records in: {error.strerror}"
        raise SpoolError(root, problem, "name another folder") from error
    if fault:
        raise SpoolError(root, *fault)


class SpoolFolder:
    """An open spool folder."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        """Open `path`, and `make` it if it is missing.

        Raises `SpoolError` if it is kept, a link, no folder, or open to others.
        """
        self.path = path
        try:
            if make:
                with suppress(FileExistsError):
                    path.mkdir(mode=PRIVATE_DIR)
            self.file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise SpoolError(
                path, f"cannot be opened: {error.strerror}", "remove it, or name another folder"
            ) from error
        if fault := find_fault(os.fstat(self.file), path, "spool"):
            os.close(self.file)
            raise SpoolError(path, *fault)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
        except OSError as error:
            os.close(self.file)
            raise SpoolError(path, "is held by another agent", "stop one of them, or name another folder") from error

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Return a descriptor of a plain file in it. Raises `OSError`, also for anything that is no plain file."""
        file = os.open(name, flags | FLAGS, PRIVATE_FILE, dir_fd=self.file)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(f"{name} is no plain file")
        return file

    def read(self, name: str, most: int) -> bytes:
        """Return at most `most` bytes of a file. Raises `OSError`."""
        file = self.open(name)
        try:
            return os.pread(file, most, 0)
        finally:
            os.close(file)

    def write_new(self, name: str, content: bytes) -> None:
        """Make a file that, after a kill, exists whole or not at all. Raises `OSError`."""
        file = self.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(file, [content], 0)
        finally:
            os.close(file)
        os.rename(f"{name}.new", name, src_dir_fd=self.file, dst_dir_fd=self.file)

    def segments(self) -> list[int]:
        """Return the numbers of the segments, in order."""
        return find_numbers(os.listdir(self.file))

    def unlink(self, name: str) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=self.file)

    def rename(self, name: str) -> None:
        """Give the folder itself another name. Raises `OSError`, also if there is one of that name."""
        path = self.path.with_name(name)
        os.rename(self.path, path)
        self.path = path

    def set_aside(self, name: str) -> None:
        """Rename a file that cannot be used, to end in `DAMAGED`."""
        with suppress(IsADirectoryError, NotADirectoryError):  # such a file is there from before
            os.rename(name, name + DAMAGED, src_dir_fd=self.file, dst_dir_fd=self.file)

    def close(self) -> None:
        """Close it; later calls fail, and reach no other file."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def remove(self) -> None:
        """Remove it with the files in it; anything that is no file stays, and the folder with it."""
        for name in os.listdir(self.file):
            with suppress(OSError):
                self.unlink(name)
        with suppress(OSError):
            self.path.rmdir()
