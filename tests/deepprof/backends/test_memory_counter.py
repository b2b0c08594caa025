"""Misses of the last cache are bytes of memory; where nothing counts them, nothing is stated."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

import pytest

from deepprof.backends import memory_counter
from deepprof.backends.memory_counter import MissCounter


def test_without_a_counter_there_are_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_counter.platform, "machine", lambda: "riscv64")
    counter = MissCounter()
    with counter.count():
        pass
    assert counter.count_nbytes(1) is None
    assert counter.reason == memory_counter.ABSENT
    counter.close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errno.EACCES, memory_counter.FORBIDDEN),
        (errno.EPERM, memory_counter.FORBIDDEN),
        (errno.ENOENT, memory_counter.ABSENT),
        (errno.ENOSYS, memory_counter.ABSENT),
    ],
)
def test_the_reason_is_that_of_the_kernel(error: int, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        def syscall(self, *_: object) -> int:
            ctypes.set_errno(error)
            return -1

    monkeypatch.setattr(memory_counter.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(memory_counter.sys, "platform", "linux")
    monkeypatch.setattr(memory_counter.ctypes, "CDLL", lambda *_, **__: Kernel())
    counter = MissCounter()
    assert (counter.reason, counter.count_nbytes(1)) == (reason, None)
    counter.close()


def test_lines_that_were_missed_within_the_block_are_shared_out_over_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(memory_counter, "_open_counter", lambda: (read, None))
    os.write(write, struct.pack("qq", 1_000, 1_600))  # what a counter gives before and after
    counter = MissCounter()
    with counter.count():
        pass
    assert counter.count_nbytes(3) == 600 * 64 / 3
    counter.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(read, 1)
    os.close(write)


def test_the_real_counter_counts_upwards_or_is_absent() -> None:
    counter = MissCounter()
    with counter.count():
        list(range(100_000))
    found = counter.count_nbytes(1)
    assert (found is None) is (counter.reason is not None)
    assert found is None or found >= 0
    counter.close()
