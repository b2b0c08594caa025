"""Why a trace has nothing of a device: the program used none, or what it asked of one was not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.plurals import counted

if TYPE_CHECKING:
    import polars as pl

__all__ = ["explain_silence"]

# Calls that put work on a device, of CUDA's runtime and driver and of HIP.
STARTING = r"^(?:cuda|cu|hip)\w*(?:Launch|Memcpy|Memset)"


def explain_silence(calls: pl.Series, advice: str) -> str:
    """Return why nothing of a device is in a trace whose runtime calls have these names (String).

    `advice` is how to record with the device; it is given where calls put work on one.
    """
    started = int(calls.str.contains(STARTING).sum())
    if started:
        asked = f"{counted(started, 'call')} put work on a device whose records are missing"
        return f"{asked}; {advice}, and with no other profiler at the same time"
    return "the program put no work on a device" if len(calls) else "recorded on the CPU only"
