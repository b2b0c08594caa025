"""Find and load the compiled half of the miner; without it the numpy fallbacks are used."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

from deepprof import libraries

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

VERSION = 3
"""The `dp_version()` this Python code is written for."""

_POINTER, _INT32, _INT64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
# Without declared types, arguments are passed as they are (c_void_p, bytes, int as int32_t), in half the time.
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
    "dp_nest": (None, [_POINTER] * 4 + [_INT64]),
}


def address(array: npt.NDArray[Any]) -> int:
    """Return the address of the array's memory; the caller keeps the array alive and contiguous."""
    return int(array.__array_interface__["data"][0])


@cache
def library() -> ctypes.CDLL | None:
    """Return the loaded library, or None to use the numpy fallbacks; the result is kept for the process's life."""
    return libraries.find(__file__, "_native", _SIGNATURES, VERSION)


def load(path: Path) -> ctypes.CDLL | None:
    """Return the library at this path with every signature declared, or None when it is not the expected one."""
    return libraries.load(path, _SIGNATURES, VERSION)
