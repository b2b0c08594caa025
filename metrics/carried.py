"""A loop of a whole trace as a part of that trace shows it: its iterations are known and are not searched again.

Two iterations, or one, repeat too little to be found; and what repeats in a part may be another loop than that of the
whole. So the part keeps the iterations of the whole, with their bounds and numbers; what the device and the host did in
them is measured in the part.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import empty_table
from deepprof.metrics.breakdown.parts import PARTS
from deepprof.metrics.iteration_table import measure_again, summarize
from deepprof.metrics.loop import Loop
from deepprof.metrics.mined import find_agreement, measure_outside
from deepprof.metrics.selection.selected_trace import SelectedTrace
from deepprof.metrics.sequence import Sequence
from deepprof.metrics.spans import Spans, covered
from deepprof.mining.evidence import Evidence
from deepprof.mining.iterations import Iterations


def keep_iterations(loop: Loop, within: Spans | None) -> Loop | None:
    """Return the loop with the iterations that overlap `within`, None: all; None where there are none.

    One that is there only partly is not complete. What was measured of the whole is left out.
    """
    table = loop.iterations
    length = (table["busy_ns"] + table["idle_ns"]).to_numpy()
    start = table["start_ns"].to_numpy()
    inside = length if within is None else covered(within, start, start + length)
    whole = pl.Series(inside == length, dtype=pl.Boolean)
    kept = pl.Series((inside > 0) | (within is None), dtype=pl.Boolean)
    rows = table.with_columns(complete=pl.col("complete") & whole).filter(kept)
    if not rows.height:
        return None
    return replace(
        loop,
        iterations=rows,
        metrics=summarize(rows),
        parts=empty_table(PARTS),
        timeline=None,
        top=None,
        anatomy=None,
        roofline=None,
        evidence=loop.evidence if loop.whole_iterations else f"of the whole recording: {loop.evidence}",
        whole_iterations=loop.whole_iterations or table.height,
    )


def carry_over(loop: Loop, trace: SelectedTrace, sequence: Sequence, evidence: Evidence) -> Loop | None:
    """Return a loop of the whole as its part `trace` shows it; None where the part has none of its kernels.

    `sequence` are the kernels of its stream in the part. Where iterations have fewer kernels than in the whole, period
    and agreement are those of the part, and what the template states of the places of kernels is left out.
    """
    rows = _measure(loop, trace, sequence)
    if not rows["kernels"].sum():
        return None
    whole = rows.join(loop.iterations.select("index", whole="kernels"), on="index", maintain_order="left")
    used = whole.filter("complete") if whole["complete"].any() else whole
    intact = bool((used["kernels"] == used["whole"]).all())
    some = used.filter(pl.col("kernels") > 0) if used["kernels"].sum() else rows.filter(pl.col("kernels") > 0)
    period = loop.period if intact else round(float(some["kernels"].median()))  # type: ignore[arg-type]
    found = _place(rows, sequence)
    cycles = tuple(cycle for cycle in loop.cycles if intact and int(cycle["every"]) <= rows.height)
    return replace(
        loop,
        rank=trace.rank or 0,
        period=period,
        iterations=rows,
        metrics=summarize(rows),
        agreement=find_agreement(evidence, found, period),
        cycles=cycles,
        nested=loop.nested if intact else (),
        blocks=loop.blocks if intact else (),
        prologue=measure_outside(sequence, 0, int(found.first[0])),
        epilogue=measure_outside(sequence, int(found.end[-1]), len(sequence.symbols)),
    )


def _measure(loop: Loop, trace: SelectedTrace, sequence: Sequence) -> pl.DataFrame:
    """Return the iterations of a loop as the part has them; if only slow first ones are examined, none is warm-up."""
    rows = measure_again(trace, sequence, loop.iterations)
    if trace.is_numbered:
        rows = rows.with_columns(complete=pl.col("complete") & (pl.col("kernels") == loop.iterations["kernels"]))
    rows = rows.filter(pl.col("complete") | (pl.col("kernels") > 0))
    usual = (rows["complete"] & ~rows["warmup"]).any()
    return rows.with_columns(warmup=pl.col("warmup") & usual)


def _place(rows: pl.DataFrame, sequence: Sequence) -> Iterations:
    first = np.searchsorted(sequence.start_ns, rows["start_ns"].to_numpy())
    kernels = rows["kernels"].to_numpy()
    return Iterations(first, first + kernels, kernels, rows["edits"].to_numpy(), rows["complete"].to_numpy())
