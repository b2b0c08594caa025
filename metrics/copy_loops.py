"""Loops of a device that only copies: which repetitions are iterations.

A model's weights are copied layer by layer, as regularly as any loop, and so is a checkpoint; each copy may wait. But
they go one way. Iterations bring something to the device and take something back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof import mining
from deepprof.collectors.trace import Trace
from deepprof.metrics.sequence import Sequence
from deepprof.plurals import counted, verb

BOTH = ("HtoD", "DtoH")
IN_MOST = 0.8  # of the iterations that must copy both ways
ONE_WAY = "each copies in one direction only, as a model's weights or a checkpoint are copied layer by layer"


def keep_both_ways(found: mining.MiningResult, trace: Trace, sequence: Sequence) -> mining.MiningResult:
    """Return the loops whose iterations copy from the host and to it, or the reason why none of them is a loop."""
    if found.loop is None:
        return found
    kept = tuple(loop for loop in found.loops if _goes_both_ways(loop, trace, sequence))
    return mining.MiningResult(kept) if kept else mining.MiningResult((), _refuse(found.loop))


def _refuse(loop: mining.MinedLoop) -> str:
    """Return why a repetition is no loop."""
    repeated = f"{counted(loop.period, 'kernel')} {verb(loop.period, 'repeats', 'repeat')}"
    return f"{repeated} {len(loop.iterations.first)} times, but {ONE_WAY}"


def _goes_both_ways(loop: mining.MinedLoop, trace: Trace, sequence: Sequence) -> bool:
    """Return whether copies in both directions begin in most of the iterations, on any stream of the device."""
    rows = trace.device_events.filter(pl.col("device") == sequence.device, pl.col("activity") == "memcpy")
    bounds = np.append(sequence.start_ns[loop.iterations.first], _end(loop, sequence))
    return all(_share_with(bounds, rows.filter(pl.col("copy_kind") == way)) >= IN_MOST for way in BOTH)


def _end(loop: mining.MinedLoop, sequence: Sequence) -> int:
    """Return when the last copy of the last iteration has ended."""
    return int(sequence.end_ns[int(loop.iterations.end[-1]) - 1])


def _share_with(bounds: npt.NDArray[np.int64], copies: pl.DataFrame) -> float:
    """Return the share of the stretches between `bounds` in which any of the copies begins."""
    places = np.searchsorted(copies["start_ns"].to_numpy(), bounds)
    return float((np.diff(places) > 0).mean())
