"""Which records and clock readings of a process are possible, and which no collector can mean."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from deepprof.collectors.live.packets import EVENT, NO_TIME
from deepprof.collectors.trace import ACTIVITIES
from deepprof.live.agent.reordering import Rows

__all__ = ["AHEAD_NS", "FAR_NS", "SOON_NS", "is_possible", "judge"]

FAR_NS = 24 * 3600 * 10**9  # before the clock's last reading: no record is so old
AHEAD_NS = 600 * 10**9  # after it: longer than a process is stopped, as a rule, between a reading and its next record
SOON_NS = 10**9  # after a reading that came after the record
DEVICES = 2**16  # possible devices of a record: CUPTI's 2**31 - 1 for "no device at all" is none
LATEST_NS = 2**61  # of any clock, some 73 years after its zero: sums and differences of two stay inside int64


def is_possible(device_ns: int, mono_ns: int, unix_ns: int) -> bool:
    """Return whether a tick's readings of three clocks are possible."""
    has_device = device_ns == NO_TIME or 0 <= device_ns < LATEST_NS
    return has_device and 0 <= mono_ns < LATEST_NS and 0 <= unix_ns < LATEST_NS


def judge(rows: Rows, now_ns: int | None, ahead_ns: int = AHEAD_NS) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield reasons to leave records out, each with the rows to which it does not apply.

    Without the clock's last reading `now_ns` times are not checked; no record may end more than `ahead_ns` after it.
    """
    if rows.dtype == EVENT:
        yield "unknown-activity", rows["activity"] < len(ACTIVITIES)
        yield "unknown-device", rows["device"] < DEVICES
    if now_ns is not None:
        start, end = rows["start_ns"], rows["end_ns"]
        yield "invalid-time", (end >= start) & (start > now_ns - FAR_NS) & (end <= now_ns + ahead_ns)
