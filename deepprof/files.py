"""Output files: written completely or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from deepprof.collectors.errors import UsageError

OPEN = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")  # names of files that are open already


def check_target(path: str | Path) -> None:
    """Raise `UsageError` when `path` cannot be written, before time is spent on a report that could not be saved."""
    if str(path) in {"", "-"}:
        raise UsageError(f"{str(path)!r}: -o names no file; give it a name")
    target = _follow_links(path)
    folder = target.parent
    if target.is_dir():
        raise UsageError(f"{path}: is a directory; name a file in it")
    if not folder.is_dir():
        raise UsageError(f"{path}: there is no directory {folder}; create it or choose another -o")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise UsageError(f"{path}: not writable; choose another -o")


def write_file(path: str | Path, content: bytes) -> None:
    """Write `content` to `path`, as `open_file` does."""
    with open_file(path) as file:
        file.write(content)


@contextmanager
def open_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open `path` for writing through a temporary file next to it: readers see the old file or the whole new one.

    Pipes, devices and files that are open already are appended to, because renaming over `/dev/null` would replace it.
    Raises `OSError`, and `UsageError` for a path or links that cannot be resolved.
    """
    target = _follow_links(path)
    if str(path).startswith(OPEN) or (target.exists() and not target.is_file()):
        with open(path, "ab") as file:
            yield file
    else:
        with _replace_file(target) as file:
            yield file


@contextmanager
def _replace_file(target: Path) -> Iterator[BinaryIO]:
    """Open a file that becomes `target` when complete; until then, and after an error, `target` is unchanged."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _follow_links(path: str | Path) -> Path:
    """Return where `path` leads, whether that exists or not; raises `UsageError` where it cannot be resolved."""
    try:
        target = Path(os.path.realpath(path))
    except ValueError as error:
        raise UsageError(f"{path}: is no path ({error}); choose another -o") from error
    if target.is_symlink():  # realpath gives up where links lead in a circle
        raise UsageError(f"{path}: its links lead back to themselves; choose another -o")
    return target
