"""The ranks of a job side by side, iteration by iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.ranks.facts import longest_loops
from deepprof.render.wording import Wording, wording_of

if TYPE_CHECKING:
    from deepprof.analysis import Analysis, Loop
    from deepprof.metrics.ranks.comparison import RankComparison, RankGroup

MOST_COLUMNS = 400  # iterations, the latest: a screen has about as many places for them
MOST_ROWS = 1_024  # ranks, the worst

Place = tuple[int, int]  # rank and device
Cells = Mapping[Place, Mapping[int, int]]  # by iteration


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank and device: medians per iteration, null where they are unknown; `loop` null without one.

    `program` numbers the programs that ranks run, only within which they are compared; null without a loop. Column
    `index` is the rank's own iteration `index - shift`.
    """

    rank: int
    device: int | None
    title: str
    loop: int | None
    program: int | None
    iteration_ns: int | None
    own_ns: int | None
    waiting_ns: int | None
    score: float | None
    shift: int


class RanksDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks, the worst first. `own_ns[r][i]` is what rank `r` needed itself for iteration `index[i]`, null: unknown.

    `waiting_ns` is how long it waited for others. `matched`: columns are the same moment in all ranks of a program.
    """

    schema: Literal["deepprof.view.ranks/1"] = "deepprof.view.ranks/1"
    rows: list[RankRow]
    index: list[int]
    own_ns: list[list[int | None]]
    waiting_ns: list[list[int | None]]
    matched: bool
    missing: str  # which ranks no trace is of, empty for none
    left_out: int = 0  # iterations that are not in it
    left_out_rows: int = 0  # ranks


class _RankCells(Struct, frozen=True, eq=False):
    """What each place needed itself in the latest iterations, and how long it waited.

    `shifts` is how much an iteration's number in its group is above the place's own; `index` are all iterations.
    """

    own_ns: Cells
    waiting_ns: Cells
    shifts: Mapping[Place, int]
    index: npt.NDArray[np.int64]


def write_ranks(analysis: Analysis) -> RanksDocument:
    """Return the ranks of an analysis; without rows where only one is available."""
    ranks = analysis.ranks
    if ranks is None:
        return RanksDocument(rows=[], index=[], own_ns=[], waiting_ns=[], matched=False, missing="")
    words, loops = wording_of(analysis), longest_loops(analysis.loops)
    numbers = {id(loop): number for number, loop in enumerate(analysis.loops)}
    known = {place: numbers[id(loop)] for place, loop in loops.items()}
    kept = ranks.ranks.head(MOST_ROWS)
    places = list(zip(kept["rank"].to_list(), kept["device"].to_list(), strict=True))
    cells = _find_cells(ranks, {place: loops[place] for place in places if place in loops})
    shown = cells.index[-MOST_COLUMNS:].tolist()
    return RanksDocument(
        rows=[_describe(row, known, words, cells.shifts) for row in kept.to_dicts()],
        index=shown,
        own_ns=[_spread(cells.own_ns.get(place, {}), shown) for place in places],
        waiting_ns=[_spread(cells.waiting_ns.get(place, {}), shown) for place in places],
        matched=all(group.matching is not None for group in ranks.groups if len(group.places) > 1),
        missing=ranks.missing_text,
        left_out=len(cells.index) - len(shown),
        left_out_rows=ranks.ranks.height - kept.height,
    )


def _describe(
    row: Mapping[str, int], loops: Mapping[Place, int], words: Wording, shifts: Mapping[Place, int]
) -> RankRow:
    """Return a row of the table of ranks; a program on the CPU has no device."""
    rank, device = row["rank"], row["device"]
    where = "" if words.on_cpu or device is None else f", device {device}"
    return RankRow(
        rank=rank,
        device=device,
        title=f"rank {rank}{where}",
        loop=loops.get((rank, device)),
        program=row["group"],
        iteration_ns=row["iteration_ns"],
        own_ns=row["own_ns"],
        waiting_ns=row["waiting_ns"],
        score=row["score"],
        shift=shifts.get((rank, device), 0),
    )


def _find_cells(ranks: RankComparison, loops: Mapping[Place, Loop]) -> _RankCells:
    """Return the cells of the places that have a loop, by iterations of the group's first rank where they are matched.

    Iterations that were not compared, for they are cut on some rank, are at the same distance from those that were.
    """
    own, waiting = dict[Place, Mapping[int, int]](), dict[Place, Mapping[int, int]]()
    shifts, every = dict[Place, int](), np.empty(0, np.int64)
    for group in ranks.groups:
        waits = group.waits.partition_by("rank", "device", as_dict=True)
        for place in group.places:
            if place not in loops:
                continue
            rows = waits.get(place, group.waits.clear())
            shifts[place] = shift = _find_shift(group, rows)
            times = _own_times(loops[place])
            every = np.union1d(every, np.append(times["index"].to_numpy() + shift, rows["iteration"].to_numpy()))
            own[place] = {index + shift: value for index, value in times.tail(MOST_COLUMNS).iter_rows()}
            latest = rows.sort("iteration").tail(MOST_COLUMNS)
            waiting[place] = dict(latest.select("iteration", "waiting_ns").iter_rows())
    return _RankCells(own, waiting, shifts, every)


def _find_shift(group: RankGroup, rows: pl.DataFrame) -> int:
    """Return how much the number of an iteration in its group is above its own: the same for all of a matched rank."""
    if group.matching is None or rows.is_empty():
        return 0
    return int((rows["iteration"] - rows["index"]).median() or 0)  # type: ignore[arg-type]


def _own_times(loop: Loop) -> pl.DataFrame:
    """Return what each usual iteration needs without waiting for others: without exposed communication."""
    own = pl.col("iteration_ns") - pl.col("exposed_communication_ns")
    return loop.usual.select("index", own=own).drop_nulls()


def _spread(values: Mapping[int, int], index: list[int]) -> list[int | None]:
    """Return a value for every iteration, None where there is none."""
    return [values.get(each) for each in index]
