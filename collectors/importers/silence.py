"""Why a trace has nothing of a device: the program used none, or what it asked of one was not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.plurals import counted

if TYPE_CHECKING:
    import polars as pl

__all__ = ["count_starting", "explain_silence"]

# Calls that put work on a device: those of CUDA's runtime and driver and of HIP, which are known, and what others have.
STARTING = r"Launch|Mem(?:ory)?(?:cpy|Copy|set|Fill)|Enqueue"
KNOWN = r"^(?:cuda|cu|hip)[A-Z]"


def explain_silence(calls: pl.Series, advice: str) -> str:
    """Return why nothing of a device is in a trace whose runtime calls have these names (String).

    `advice` is how to record with the device; it is given where calls put work on one.
    """
    started = count_starting(calls)
    if started:
        asked = f"{counted(started, 'call')} put work on a device whose records are missing"
        return f"{asked}; {advice}, and with no other profiler at the same time"
    if not len(calls):
        return "recorded on the CPU only"
    if calls.str.contains(KNOWN).all():
        return "the program put no work on a device"
    return f"{counted(len(calls), 'runtime call')}, and nothing of what they may have started"


def count_starting(calls: pl.Series) -> int:
    """Return how many of the calls with these names (String) put work on a device."""
    return int(calls.str.contains(STARTING).sum())
