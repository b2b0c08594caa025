"""When there is enough work on a device to conclude something from it, and how findings on work write shares."""

from __future__ import annotations

from deepprof.metrics.kernels.loop_work import LoopWork

LEAST_COMPUTING_NS = 1_000_000  # in all iterations together: less is a test or a moment of a job, not its work
LEAST_BUSY = 0.02  # of the time: a device that hardly works has no work to make faster
LEAST_OF_KERNELS = 0.05  # of the time of all kernels, collectives too: what is less does not matter beside these


def is_enough(seen: LoopWork) -> bool:
    """Return whether the device did enough work for a conclusion."""
    whole_ns = seen.computing_ns * max(1, seen.iterations)
    return whole_ns >= LEAST_COMPUTING_NS and seen.busy_ratio >= LEAST_BUSY


def is_large(seen: LoopWork, ns: float, least_share: float) -> bool:
    """Return whether a time per iteration is so much of the computing time, and not small beside the collectives."""
    return seen.work_share(ns) >= least_share and ns >= LEAST_OF_KERNELS * seen.work.time_ns


def write_share(share: float) -> str:
    """Return a share of the computing time as titles have it: whole percents."""
    return f"{100 * share:.0f} %"


def write_per(seen: LoopWork) -> str:
    """Return what counts refer to, in words."""
    return f"in the {seen.loop.single}" if seen.loop.single else "per iteration"
