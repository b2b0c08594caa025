"""A function keeps the host busy and gives the device little to do, while that waits (DeepContext, analysis 5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.diagnosis.context_claims import ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import mean_of
from deepprof.metrics.breakdown.parts import IDLE_PARTS
from deepprof.metrics.contexts.paths import add_up, read_places
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.operators import is_stand_in

Floats = npt.NDArray[np.float64]

BUSY_HOST = 0.2  # of an iteration that the host is in the function
ALL = 0.9  # of an iteration: a function that is all of it is not where to look
LITTLE = 0.1  # of that, what the device gets from it
IDLE_DEVICE = 0.15  # of an iteration: otherwise the host's time costs nothing


@rule("heavy-host", subject="contexts")
def heavy_host(seen: LoopContexts) -> Iterator[Finding]:
    """Yield `heavy-host` for the innermost function with much host time and little device time: a remark."""
    iteration_ns = float(seen.loop.usual["iteration_ns"].mean() or 0)  # type: ignore[arg-type]
    idle_ns = 0.0 if seen.loop.parts.is_empty() else mean_of(seen.loop, *IDLE_PARTS)
    if is_stand_in(seen.trace) or idle_ns < IDLE_DEVICE * iteration_ns:
        return
    working = pl.col("working")
    busy = working.is_between(BUSY_HOST * iteration_ns, ALL * iteration_ns)
    table = seen.table.with_columns(working=pl.Series(_add_up_working(seen)))
    rows = table.filter(pl.Series(seen.functions) & busy & (pl.col("device_ns") < LITTLE * working))
    if rows.is_empty():
        return
    best = rows.sort("depth", "working", descending=True).row(0, named=True)
    texts = FindingTexts(
        title=f"{best['name']} keeps the host busy and launches little work",
        summary=(
            f"The host is in it for {format_ms(best['working'])} of {seen.loop.unit} "
            f"({format_percent(best['working'] / iteration_ns)}) and launches {format_ms(best['device_ns'])} of work; "
            f"the device is idle for {format_ms(idle_ns)}."
        ),
        advice="Move it to another thread or process, or do it less often; vectorise what it does per element.",
    )
    evidence = {
        "host_ns_per_iteration": round(best["working"]),
        "device_ns_per_iteration": round(best["device_ns"]),
        "idle_ns_per_iteration": round(idle_ns),
    }
    yield ContextClaim(rule="heavy-host", seen=seen, context=int(best["context"])).conclude(texts, evidence)


def _add_up_working(seen: LoopContexts) -> Floats:
    """Return for every context the host's time in it and all within, without waits and without the backward pass.

    The backward pass runs on its own thread while the one that requested it waits.
    """
    own = pl.when(pl.col("backward")).then(0.0).otherwise(pl.col("own_host_ns") - pl.col("own_waiting_ns"))
    return add_up(seen.table.select(own).to_series().to_numpy(), *read_places(seen.table))
