"""Output files: whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from deepprof.collectors.errors import UsageError

__all__ = ["check_target", "write_file"]


def check_target(path: str | Path) -> None:
    """Raise `UsageError` when `path` cannot be written, so that nobody waits for a report that has no place."""
    target = Path(path)
    folder = target.resolve().parent
    if target.is_dir():
        raise UsageError(f"{path}: is a directory; name a file in it")
    if not folder.is_dir():
        raise UsageError(f"{path}: there is no directory {folder}; create it or choose another -o")
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise UsageError(f"{path}: not writable; choose another -o")


def write_file(path: str | Path, content: bytes) -> None:
    """Write `content` to `path` through a temporary file beside it: readers see the old file or the new one.

    Pipes and devices are written in place, because renaming over `/dev/null` would replace it. Raises `OSError`.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
