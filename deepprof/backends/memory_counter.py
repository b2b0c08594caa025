"""The bytes between the last cache and the memory, as Linux counts misses of it for this process and its threads.

Many virtual machines have no such counter, and some systems forbid it: then nothing is counted, and bytes stay
predicted. Not run on a machine that has it. `dram_counter` does the same for an NVIDIA GPU.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CALLS = {"x86_64": 298, "aarch64": 241}  # of perf_event_open by the kind of machine
HARDWARE, CACHE_MISSES = 0, 3  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES
ATTRIBUTE_NBYTES = 64  # PERF_ATTR_SIZE_VER0, which every kernel needs
INHERIT, NO_KERNEL, NO_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6  # new threads too, user code only
LINE_NBYTES = 64
FORBIDDEN = "this user may not read the processor's counters; set kernel.perf_event_paranoid to 2 or less"
ABSENT = "this machine has no counter of cache misses, as most virtual machines"


class MissCounter:
    """Counts misses of the last cache, also those of threads that are started after it is made.

    `reason` states why it counts none, None where it does.
    """

    def __init__(self) -> None:
        self._file, self.reason = _open_counter()
        self._misses: int | None = None

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count within the block."""
        before = self._read()
        yield
        after = self._read()
        if before is not None and after is not None:
            self._misses = after - before

    def count_nbytes(self, runs: int) -> int | None:
        """Return the bytes of one of `runs` runs that were counted, None where nothing was."""
        return None if self._misses is None else round(self._misses * LINE_NBYTES / runs)

    def close(self) -> None:
        """Close the counter."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> int | None:
        if self._file is None:
            return None
        content = os.read(self._file, 8)
        return int(struct.unpack("q", content)[0]) if len(content) == 8 else None


def _open_counter() -> tuple[int | None, str | None]:
    """Return the descriptor of a counter for this process, or else None and the reason why there is none."""
    number = CALLS.get(platform.machine())
    if number is None or not sys.platform.startswith("linux"):
        return None, ABSENT
    flags = INHERIT | NO_KERNEL | NO_HYPERVISOR
    attribute = struct.pack("IIQQQQQ", HARDWARE, ATTRIBUTE_NBYTES, CACHE_MISSES, 0, 0, 0, flags)
    attribute = attribute.ljust(ATTRIBUTE_NBYTES, b"\0")
    found = ctypes.CDLL(None, use_errno=True).syscall(number, attribute, 0, -1, -1, 0)
    if found >= 0:
        return found, None
    return None, FORBIDDEN if ctypes.get_errno() in {errno.EACCES, errno.EPERM} else ABSENT
