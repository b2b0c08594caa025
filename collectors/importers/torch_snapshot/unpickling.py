"""Reads the items of a pickle in C, some hundred times as fast as `pickle_machine`, which does the same without it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepprof import libraries
from deepprof.collectors.importers.torch_snapshot.pickle_items import (
    FILL,
    ITEM,
    PickledItems,
    PickleStatus,
    join_keys,
    split_columns,
)
from deepprof.collectors.importers.torch_snapshot.pickle_machine import run_pickle

VERSION = 2
"""The `dp_unpickle_version()` this Python code is written for."""

POINTER, INT32, INT64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "dp_unpickle_version": (INT32, []),
    "dp_unpickle": (INT32, [POINTER, INT64, POINTER, POINTER, INT32, INT64, POINTER]),
    "dp_unpickle_free": (None, [POINTER]),
}


class _Output(ctypes.Structure):
    """`struct output` of unpickle.c."""

    _fields_ = (
        ("items", POINTER),
        ("fills", POINTER),
        ("run_ends", POINTER),
        ("members", POINTER),
        ("kinds", POINTER),
        ("count", INT64),
        ("fill_count", INT64),
        ("run_count", INT64),
        ("member_count", INT64),
        ("containers", INT64),
        ("at", INT64),
        ("root", INT64),
        ("root_kind", INT32),
    )


@cache
def library() -> ctypes.CDLL | None:
    """Return the loaded library, or None if the reader in Python must be used."""
    return libraries.find(__file__, "_unpickle", SIGNATURES, VERSION)


def load(path: Path) -> ctypes.CDLL | None:
    """Return the library at `path` with every signature declared, or None when it is not this project's."""
    return libraries.load(path, SIGNATURES, VERSION)


def read_items(content: bytes | bytearray, keys: Sequence[str], most: int) -> PickledItems:
    """Return the items of the pickle in `content`, of dictionaries those with one of the `keys`.

    Never raises for what the pickle holds. Uses 24 bytes for every item of a dictionary, 4 for every member of
    lists of other members, 12 for every addition to a list, and 16 for every value that the pickle may refer to again,
    at most `most` of each."""
    found = library()
    return run_pickle(content, keys, most) if found is None else run_native(found, content, keys, most)


def run_native(native: ctypes.CDLL, content: bytes | bytearray, keys: Sequence[str], most: int) -> PickledItems:
    """Return what `native` reads."""
    texts, ends = join_keys(keys)
    data, out = np.frombuffer(content, np.uint8), _Output()
    arguments = (data.ctypes.data, len(data), texts, ends.ctypes.data, len(keys), most, ctypes.byref(out))
    try:
        status = native.dp_unpickle(*arguments)
        items = split_columns(_view(out.items, out.count, ITEM))
        fills = split_columns(_view(out.fills, out.fill_count, FILL))
        numbers = np.dtype(np.uint32)
        run_ends = _view(out.run_ends, out.run_count, numbers).copy()
        members = _view(out.members, out.member_count, numbers).copy()
        kinds = _view(out.kinds, out.containers, np.dtype(np.uint8)).copy()
        root = (out.root_kind, out.root)
        return PickledItems(PickleStatus(status), out.at, items, fills, run_ends, members, kinds, root)
    finally:
        native.dp_unpickle_free(ctypes.byref(out))


def _view(address: int | None, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return `count` rows of `dtype` at `address`, valid until they are freed."""
    if not address or not count:
        return np.empty(0, dtype)
    content = memoryview((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address))
    return np.asarray(np.frombuffer(content, dtype))
