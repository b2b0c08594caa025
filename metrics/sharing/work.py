"""The work of a process on a device, and what it waits for there while others use the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.spans import NOTHING, Spans, intersect, union

Int64s = npt.NDArray[np.int64]

BETWEEN_NS = 20_000  # pause between two kernels of one process in which the device still counts as in its use
ON_LINK = ("HtoD", "DtoH", "PtoP")  # copies by a separate engine; copies within the device are like kernels


class DeviceWork(Struct, frozen=True, eq=False):
    """When one process has kernels on a device, and when it has copies into and out of the device."""

    rank: int
    device: int
    kernels: Spans
    copies: Spans

    @property
    def busy(self) -> Spans:
        """When the device works for the process."""
        return merge([self.kernels, self.copies])


def merge(several: Sequence[Spans]) -> Spans:
    """Return the time that is in any of `several`."""
    if not several:
        return NOTHING
    return union(np.concatenate([s.starts for s in several]), np.concatenate([s.ends for s in several]))


def read_work(trace: Trace, device: int) -> DeviceWork:
    """Return the work of the process of `trace` on a device."""
    rows = trace.device_events.filter((pl.col("device") == device) & pl.col("activity").is_in(WORK_ACTIVITIES))
    link = rows.select(is_on_link()).to_series()
    kernels, copies = (
        union(r["start_ns"].to_numpy(), r["end_ns"].to_numpy()) for r in (rows.filter(~link), rows.filter(link))
    )
    return DeviceWork(trace.rank or 0, device, kernels, copies)


def is_on_link() -> pl.Expr:
    """Return whether an event is a copy into or out of the device; a copy without a direction counts as one."""
    outward = pl.col("copy_kind").cast(pl.String).is_in(ON_LINK) | pl.col("copy_kind").is_null()
    return (pl.col("activity") == "memcpy") & outward


class OtherWork(Struct, frozen=True, eq=False):
    """When other processes have kernels, copies, or either on the device."""

    kernels: Spans
    copies: Spans
    work: Spans

    @classmethod
    def of(cls, works: Sequence[DeviceWork]) -> OtherWork:
        """Return the combined work of several processes there."""
        kernels, copies = merge([each.kernels for each in works]), merge([each.copies for each in works])
        return cls(kernels, copies, merge([kernels, copies]))

    def hold(self, kernels: Spans, copies: Spans) -> tuple[Spans, Spans]:
        """Return the parts of the waits of `kernels` and `copies` in which others use what these wait for."""
        return intersect(kernels, _close_gaps(self.kernels)), intersect(copies, _close_gaps(self.copies))


def _close_gaps(spans: Spans) -> Spans:
    """Return the spans with pauses of up to `BETWEEN_NS` filled."""
    if not len(spans.starts):
        return spans
    near = spans.starts[1:] - spans.ends[:-1] <= BETWEEN_NS
    ends = np.where(np.append(near, False), np.append(spans.starts[1:], 0), spans.ends)
    return union(spans.starts, ends)
