"""Finds and loads the compiled half of the miner; without it the numpy twins answer."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

VERSION = 2
"""The `dp_version()` this Python code is written for."""

_POINTER, _INT32, _INT64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
# Without types, arguments go as they are: a c_void_p, bytes, and int as int32_t; that takes half the time.
_SIGNATURES: dict[str, tuple[Any, list[Any] | None]] = {
    "dp_version": (_INT32, []),
    "dp_suffix_array_u16": (_INT32, [_POINTER, _POINTER, _INT32, _INT32]),
    "dp_suffix_array_u32": (_INT32, [_POINTER, _POINTER, _INT32, _INT32]),
    "dp_lcp_array_u16": (None, [_POINTER] * 4 + [_INT32]),
    "dp_lcp_array_u32": (None, [_POINTER] * 4 + [_INT32]),
    "dp_nodes": (_INT32, [_POINTER, _INT32, _POINTER, _POINTER, _POINTER]),
    "dp_matcher_new": (_POINTER, [_INT32, _POINTER, _INT64, _POINTER, _POINTER, _INT32, _POINTER, _POINTER]),
    "dp_matcher_place": (None, [_POINTER, _POINTER]),
    "dp_matcher_resume": (_INT32, [_POINTER, _POINTER]),
    "dp_matcher_output": (None, [_POINTER, _POINTER, _INT64, _POINTER]),
    "dp_matcher_feed": (None, [_POINTER, _POINTER, _INT64, _INT32]),
    "dp_matcher_feed_short": (None, None),
    "dp_matcher_free": (None, [_POINTER]),
}


def address(array: npt.NDArray[Any]) -> int:
    """Return where the array's memory starts; the caller keeps the array alive and contiguous."""
    return int(array.__array_interface__["data"][0])


@cache
def library() -> ctypes.CDLL | None:
    """Return the loaded library, or None where the numpy twins must do.

    None without a compiled file beside this module, with one that lacks a function or is of another version, and when
    the environment says ``DEEPPROF_NATIVE=0``. The answer is kept for the life of the process.
    """
    if os.environ.get("DEEPPROF_NATIVE") == "0":
        return None
    loaded = (load(path) for path in _candidates())
    return next((found for found in loaded if found is not None), None)


def load(path: Path) -> ctypes.CDLL | None:
    """Return the library at this path with every signature declared, or None when it is not ours."""
    try:
        found = ctypes.CDLL(str(path))
        _declare(found)
    except (OSError, AttributeError):
        return None
    return found if found.dp_version() == VERSION else None


def _candidates() -> list[Path]:
    folder = Path(__file__).parent
    names = [f"_native{suffix}" for suffix in (*EXTENSION_SUFFIXES, ".dylib")]
    return [folder / name for name in names if (folder / name).is_file()]


def _declare(found: ctypes.CDLL) -> None:
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(found, name)
        function.restype = result
        function.argtypes = arguments
