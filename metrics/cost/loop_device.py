"""Which device of a recording a loop ran on, and its peaks."""

from __future__ import annotations

from typing import TypedDict

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.cost.roofs import DevicePeaks, find_peaks

WHOLE = 0.95  # of the multiprocessors: with fewer it is a slice or a partition, whose peaks no one states
ALIKE = ("name", "memory_nbytes", "multiprocessors")


class _RecordedDevice(TypedDict):
    """What a recording states of a device; None: nothing."""

    name: str | None
    memory_nbytes: int | None
    multiprocessors: int | None


def describe_device(trace: Trace, device: int) -> _RecordedDevice | None:
    """Return what is recorded of a device, None for nothing.

    Some recorders number devices otherwise in their list than in their events, where a job sees only some of a host's:
    then the listed ones count, if all are alike.
    """
    listed = trace.devices.filter(pl.col("device") == device)
    rows = (trace.devices if listed.is_empty() else listed).select(ALIKE).unique()
    if rows.height != 1:
        return None
    name, memory, multiprocessors = rows.row(0)
    return _RecordedDevice(name=name or None, memory_nbytes=memory, multiprocessors=multiprocessors)


def find_device_peaks(trace: Trace, device: int) -> DevicePeaks | None:
    """Return the vendor's figures for a device, None where it is unknown, or only a part of one."""
    found = describe_device(trace, device)
    if found is None:
        return None
    cores, memory = found["multiprocessors"], found["memory_nbytes"]
    peaks = find_peaks(found["name"] or "", multiprocessors=cores, memory_nbytes=memory)
    if peaks is None or peaks.multiprocessors is None or cores is None:
        return peaks
    return peaks if cores >= WHOLE * peaks.multiprocessors else None
