"""Another client of CUPTI in this process, as Proton is one: it asks to subscribe, and leaves at once."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

__all__ = ["REFUSED", "ask_to_subscribe"]

REFUSED = 39  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
TRIES, PAUSE_S = 20, 0.01
HEAR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
CALLED = HEAR(lambda *_: None)  # no call is enabled, and CUPTI may keep it all the same


def ask_to_subscribe(library: str) -> int:
    """Return what CUPTI, whose path contains `library`, answers at last.

    Who is refused asks again: without contexts our library itself is subscribed for a moment now and then.
    """
    cupti = ctypes.CDLL(find_loaded(library))
    for _ in range(TRIES):
        subscriber = ctypes.c_void_p()
        result = int(cupti.cuptiSubscribe(ctypes.byref(subscriber), CALLED, None))
        if result == 0:
            cupti.cuptiUnsubscribe(subscriber)
        if result != REFUSED:
            break
        time.sleep(PAUSE_S)
    return result


def find_loaded(library: str) -> str:
    """Return the path of a library that this process has loaded. Raises LookupError where there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line[line.find("/") :]
        if library in path:
            return path
    raise LookupError(f"this process has loaded no {library}")
