"""One row per rank: the time of its iterations, its own part of it, and how that compares with other ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.iteration_table import round_to_int
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.facts import RankFacts

Row = dict[str, object]

I64, F64 = pl.Int64(), pl.Float64()

RANKS = TableSchema.of(
    "One rank and device beside the others, medians per iteration; the one with the highest score first.",
    {
        "rank": (I64, "the rank"),
        "device": (pl.UInt16(), "the number of its device"),
        "group": (I64, "the program that it runs, only within which ranks are compared; null without a loop"),
        "iterations": (I64, "complete iterations"),
        "iteration_ns": (I64, "from start to start"),
        "compute_ns": (I64, "a kernel runs that is no collective"),
        "waiting_ns": (I64, "waits for others at collectives while nothing computes"),
        "own_ns": (I64, "the iteration without exposed communication"),
        "score": (F64, "`own_ns` over the median of the other ranks'"),
        "best_score": (F64, "`own_ns` over that of the rank's own best iterations"),
    },
)
BEST = 0.05  # the quantile that represents a rank's best iterations: the very best one may be cut short


def describe_group(
    number: int, places: Sequence[tuple[int, int]], waits: pl.DataFrame, loops: Mapping[tuple[int, int], Loop]
) -> list[Row]:
    """Return one row per place of the group `number`, with its median wait per iteration from `waits`."""
    waiting = {
        (rank, device): value
        for rank, device, value in waits.group_by("rank", "device").agg(pl.col("waiting_ns").median()).rows()
    }
    own = {place: _own_times(loops[place]) if place in waiting else np.empty(0) for place in places}
    usual = {place: float(np.median(times)) for place, times in own.items() if len(times)}
    rows = []
    for place in places:
        others = [time for other, time in usual.items() if other != place]
        rows.append(
            _describe_place(number, loops[place])
            | {
                "waiting_ns": round_to_int(waiting.get(place)),
                "own_ns": round_to_int(usual.get(place)),
                "score": _ratio(usual.get(place), float(np.median(others)) if others else None),
                "best_score": _ratio(
                    usual.get(place), float(np.quantile(own[place], BEST)) if place in usual else None
                ),
            }
        )
    return rows


def _own_times(loop: Loop) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the time of every usual iteration without exposed communication."""
    rows = loop.usual.select(own=pl.col("iteration_ns") - pl.col("exposed_communication_ns")).drop_nulls()
    return rows["own"].to_numpy()


def _describe_place(number: int, loop: Loop) -> Row:
    """Return the columns that follow from the loop of one rank alone."""
    return {
        "rank": loop.rank,
        "device": loop.device,
        "group": number,
        "iterations": 0 if loop.single else int(loop.iterations["complete"].sum()),
        "iteration_ns": round_to_int(loop.usual["iteration_ns"].median()),
        "compute_ns": round_to_int(loop.usual["compute_ns"].median()),
    }


def describe_bare(facts: RankFacts) -> Row:
    """Return the row of a rank without a loop."""
    return {"rank": facts.rank, "device": facts.device, "iterations": 0}


def sort_ranks(rows: Sequence[Row]) -> pl.DataFrame:
    """Return the rows as a table, the highest score first; without scores, the rank that computes longest."""
    table = pl.DataFrame([{name: row.get(name) for name in RANKS} for row in rows], schema=RANKS)
    order = ["score", "compute_ns", "iteration_ns", "rank", "device"]
    return table.sort(order, descending=[True, True, True, False, False], nulls_last=True, maintain_order=True)


def _ratio(value: float | None, to: float | None) -> float | None:
    """Return `value / to`, None where either is absent or there is nothing to compare with."""
    return None if value is None or to is None or to <= 0 else round(value / to, 4)
