"""What the code took in every usual iteration of a loop: device time and time in which the host worked, by path."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.measures import COLUMNS, Amounts, list_amounts
from deepprof.metrics.contexts.paths import find_nearest
from deepprof.metrics.contexts.per_iteration import measure_windows
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DEVICE, HOST = "device", "host"
ON_DEVICE, ON_HOST = ("device_ns",), ("host_ns", "waiting_ns")  # of the host without the waits


class PathTimes(Struct, frozen=True, eq=False):
    """Times by path and iteration, with all within, in rows sorted by path; `iterations` is how many there are.

    `means` are those of all paths per iteration, and `seen` is whether a path took anything in any of them.
    """

    path: Int64s
    iteration: Int64s
    time_ns: Int64s
    iterations: int
    means: Floats
    seen: npt.NDArray[np.bool_]

    def of_path(self, path: int) -> Floats:
        """Return what a path took in every iteration."""
        rows = slice(*np.searchsorted(self.path, (path, path + 1)))
        times = np.bincount(self.iteration[rows], self.time_ns[rows], self.iterations)
        return times.astype(np.float64)


def read_path_times(trace: Trace, tree: ContextTree, loop: Loop, paths: Int64s, many: int) -> dict[str, PathTimes]:
    """Return the times of a loop's usual iterations, `DEVICE` and `HOST`; `paths` has a path, < `many`, per context.

    Only the loop's own device counts, and only threads that launch something, where launches are recorded. Operators of
    the backward pass count on the device alone: their thread works while the one that requested it waits. Where
    operators represent kernels there is no device, and they run on the thread that asked.
    """
    start = loop.usual["start_ns"].to_numpy()
    end = start + loop.usual["iteration_ns"].to_numpy()
    amounts = _select_amounts(trace, tree, loop.device)
    taken = measure_windows(tree, amounts, start, end, np.arange(len(start)))
    order = np.argsort(paths[taken.context], kind="stable")
    order = order[paths[taken.context[order]] > 0]
    path, window, whole = paths[taken.context[order]], taken.window[order], taken.whole[order]
    device, host, waiting = (whole[:, COLUMNS.index(name)] for name in (*ON_DEVICE, *ON_HOST))
    times = {HOST: host - waiting} if is_stand_in(trace) else {DEVICE: device, HOST: host - waiting}
    seen = np.bincount(path, minlength=many) > 0
    return {
        name: PathTimes(path, window, time_ns, len(start), np.bincount(path, time_ns, many) / len(start), seen)
        for name, time_ns in times.items()
    }


def _select_amounts(trace: Trace, tree: ContextTree, device: int) -> Iterator[Amounts]:
    wanted = (*ON_DEVICE, *ON_HOST, "launches")
    amounts = {each.column: each for each in list_amounts(trace, tree, (), device) if each.column in wanted}
    yield from (amounts[name] for name in ON_DEVICE)
    counts = _find_launching(tree, amounts["launches"].context)
    counts &= is_stand_in(trace) | ~tree.contexts["backward"].to_numpy()
    for name in ON_HOST:
        each, kept = amounts[name], counts[amounts[name].context]
        yield Amounts(name, each.context[kept], each.amount[kept], each.time_ns[kept])


def _find_launching(tree: ContextTree, launching: Int64s) -> npt.NDArray[np.bool_]:
    """Return the contexts on threads that launch something, all if none does; `launching` are those that did."""
    thread = find_nearest(tree.depth == 1, tree.parent, tree.depth)
    launches = np.bincount(thread[launching[launching > 0]], minlength=len(thread)) > 0
    return launches[thread] | ~launches.any()
