"""What a machine has: processors, other packages, and the compiled parts of modules.

The latter are plain C next to them, loaded by ctypes, and optional everywhere.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Signatures = Mapping[str, tuple[Any, Sequence[Any] | None]]
"""Result and arguments of every function; the first one returns the library's version."""


def count_cpus() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it (its parents are)."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def find(module: str, name: str, signatures: Signatures, version: int) -> ctypes.CDLL | None:
    """Return the library `name` next to the file `module` (its `__file__`), or None to use the Python fallback.

    None without a compiled file, with one that lacks a function or is of another version, and when the environment sets
    ``DEEPPROF_NATIVE=0``.
    """
    if os.environ.get("DEEPPROF_NATIVE") == "0":
        return None
    paths = [Path(module).with_name(f"{name}{suffix}") for suffix in (*EXTENSION_SUFFIXES, ".dylib")]
    loaded = (load(path, signatures, version) for path in paths if path.is_file())
    return next((library for library in loaded if library is not None), None)


def load(path: Path, signatures: Signatures, version: int) -> ctypes.CDLL | None:
    """Return the library at `path` with every signature declared, or None when it is not the expected one."""
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in signatures.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return library if getattr(library, next(iter(signatures)))() == version else None
