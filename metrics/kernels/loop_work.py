"""What a loop's device computes in its usual iterations, with all that rules on it need."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.computed_work import Work, list_kernels, measure_work
from deepprof.metrics.kernels.typed_kernels import list_typed
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]


def measure_loop_work(loop: Loop, trace: Trace, kinds: KernelKinds) -> Work | None:
    """Return what the device of a loop computes in a usual iteration; None where there is none."""
    return None if loop.usual.is_empty() else measure_work(trace, kinds, loop.device, _windows_of(loop))


def _windows_of(loop: Loop) -> tuple[Int64s, Int64s]:
    """Return start and end of the usual iterations."""
    begin = loop.usual["start_ns"].to_numpy()
    return begin, begin + loop.usual["iteration_ns"].to_numpy()


class LoopWork(Struct, frozen=True, eq=False, dict=True):
    """The work of a loop, or of what is measured as one (`Loop.single`): what rules on computing examine.

    `kinds` are those of the trace's kernels. `peaks` are the device's, None where they are unknown; `device_name` is
    as recorded, None where it is not. `contexts` has the calling contexts, None where the host recorded no code.
    """

    loop: Loop
    trace: Trace
    kinds: KernelKinds
    work: Work
    peaks: DevicePeaks | None
    device_name: str | None
    contexts: LoopContexts | None

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """The kernels of the usual iterations in the order of time, as `list_kernels` returns them."""
        return list_kernels(self.trace, self.kinds, self.loop.device, _windows_of(self.loop))

    @cached_property
    def typed(self) -> pl.DataFrame:
        """The same kernels with their kinds, stream by stream, as `list_typed` returns them."""
        return list_typed(self.trace, self.kinds, self.kernels)

    @cached_property
    def recorded_ns(self) -> int:
        """The lengths of all kernels that the recording has of the device, without collectives."""
        category = self.kinds.table["category"].cast(pl.String).to_list()
        computes = np.array([*(each != "communication" for each in category), True])  # -1: a graph, or no kernel
        events = self.trace.device_events.filter(
            pl.Series(computes[self.kinds.of_events]),
            pl.col("device") == self.loop.device,
            pl.col("activity").is_in(["kernel", "graph"]),
        )
        return int((events["end_ns"] - events["start_ns"]).sum())

    @property
    def iterations(self) -> int:
        """How many iterations the means are over."""
        return self.loop.usual.height

    @cached_property
    def iteration_ns(self) -> float:
        """The mean time of an iteration."""
        return float(self.loop.usual["iteration_ns"].mean() or 0)  # type: ignore[arg-type]

    @cached_property
    def computing_ns(self) -> float:
        """The time in which any kernel runs that is no collective, per iteration."""
        rows = self.work.table.filter(pl.col("category") != "communication")
        return float(rows["time_ns"].sum())

    @property
    def busy_ratio(self) -> float:
        """The share of the iterations' time in which the device computes, copies or communicates."""
        busy, idle = self.loop.usual.select(pl.col("busy_ns", "idle_ns").sum()).row(0)
        return float(busy / max(1, busy + idle))

    def share(self, ns: float) -> float:
        """Return a time as a share of the mean iteration."""
        return ns / self.iteration_ns if self.iteration_ns else 0.0

    def work_share(self, ns: float) -> float:
        """Return a time as a share of the computing time."""
        return ns / self.computing_ns if self.computing_ns else 0.0
