"""The library that runs inside a job: plain C, loaded by the driver or by torch, and by nothing of ours.

`core.h` is the seam between its middle (one worker thread) and its sources; `packets.h` is what it writes.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

__all__ = ["find_library"]


def find_library() -> Path | None:
    """Return where the compiled library is, absolute, or None where it was not built (no compiler, no Linux)."""
    here = Path(__file__).resolve().parent
    paths = (here / f"_inject{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((path for path in paths if path.is_file()), None)
