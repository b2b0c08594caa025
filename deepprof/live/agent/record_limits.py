"""What records and clock readings of a process can be: the rest is left out, by reason."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from deepprof.collectors.importers.flags import NBYTES_LIMIT
from deepprof.collectors.live.packets import EVENT, MEMORY_CHANGE, NO_TIME
from deepprof.collectors.trace import ACTIVITIES
from deepprof.live.agent.reordering import Rows, ends_of, starts_of

FAR_NS = 24 * 3600 * 10**9  # before the clock's last reading: no record is so old
AHEAD_NS = 600 * 10**9  # after it: longer than a process is stopped, as a rule, between a reading and its next record
HOST_MEMORY = -1  # the device of changes of the host's memory
DEVICES = 2**16  # possible devices of a record: CUPTI's 2**31 - 1 for "no device at all" is none
LATEST_NS = 2**61  # of any clock, some 73 years after its zero: sums and differences of two stay inside int64


def are_possible(device_ns: int, mono_ns: int, unix_ns: int) -> bool:
    """Return whether a tick's readings of three clocks are possible."""
    has_device = device_ns == NO_TIME or 0 <= device_ns < LATEST_NS
    return has_device and 0 <= mono_ns < LATEST_NS and 0 <= unix_ns < LATEST_NS


def judge_records(
    rows: Rows, now_ns: int | None, ahead_ns: int = AHEAD_NS
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield reasons to leave records out, each with the rows to which it does not apply.

    Without the clock's last reading `now_ns` times are not checked; no record may end more than `ahead_ns` after it.
    """
    if rows.dtype == EVENT:
        yield "unknown-activity", rows["activity"] < len(ACTIVITIES)
        yield "unknown-device", rows["device"] < DEVICES
    if rows.dtype == MEMORY_CHANGE:
        yield "unknown-device", (rows["device"] >= HOST_MEMORY) & (rows["device"] < DEVICES)
        yield "invalid-bytes", (rows["nbytes"] >= -NBYTES_LIMIT) & (rows["nbytes"] <= NBYTES_LIMIT)
    if now_ns is not None:
        start, end = starts_of(rows), ends_of(rows)
        yield "invalid-time", (end >= start) & (start > now_ns - FAR_NS) & (end <= now_ns + ahead_ns)
