"""How long each rank waits for the others, from the lengths of collectives alone.

A collective begins on a rank when that rank arrives, and ends on all ranks together. The time that a rank
spends in it beyond the rank that spends least is its wait for that rank. Waiting costs only while nothing computes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.metrics.ranks.alignment import Match
from deepprof.metrics.ranks.collectives import Passes
from deepprof.metrics.spans import Spans, covered

# One row per collective and rank: `member` is the rank's number in the list compared, `iteration` and `position` are
# those of the reference, `index` is the rank's own iteration. `waiting_ns` is how long the rank was there before the
# last one, null if no other rank of its process group is there; `exposed_ns` the part of it in which the rank
# computes nothing, `idle_ns` that part of the whole collective. Time shared by collectives on several streams counts
# once.
WAITS = pl.Schema(
    {
        "member": pl.Int64(),
        "iteration": pl.Int64(),
        "position": pl.Int64(),
        "index": pl.Int64(),
        "waiting_ns": pl.Int64(),
        "exposed_ns": pl.Int64(),
        "idle_ns": pl.Int64(),
    }
)
# One row per position in the iteration: `skew_ns` is how much earlier the first rank comes than the last one (median),
# `member` the one with the least median wait, which is usually last.
SKEWS = pl.Schema({"position": pl.Int64(), "name": pl.String(), "skew_ns": pl.Int64(), "member": pl.Int64()})


class ComparedRank(Struct, frozen=True, eq=False):
    """One rank in a comparison: its collectives, their match with the reference if known, when it computes in them."""

    passes: Passes
    turn: int  # its pass begins at this position of the reference's
    match: Match | None
    computing: Spans


def place_members(members: Sequence[ComparedRank]) -> pl.DataFrame:
    """Return the collectives of all members with `member`, and `iteration` and `position` as in the reference.

    Unmatched members keep their own iterations, and only positions are the reference's.
    """
    length = len(members[0].passes.names)
    return pl.concat(
        _place(member, length).with_columns(member=pl.lit(number, pl.Int64)) for number, member in enumerate(members)
    )


def _place(member: ComparedRank, length: int) -> pl.DataFrame:
    """Return a member's collectives at the reference's places."""
    shift = member.turn if member.match is None else member.match.shift
    at = pl.col("iteration") * length + pl.col("position") + shift
    return member.passes.rows.with_columns(index="iteration", iteration=at // length, position=at % length)


def measure_waits(placed: pl.DataFrame, members: Sequence[ComparedRank]) -> pl.DataFrame:
    """Return the waits, a table `WAITS`, of the collectives of `place_members`.

    Matched ranks are compared in every collective that all of them have; otherwise a rank is compared with the usual
    length of the collective at that position on the rank where it is shortest.
    """
    took = placed.with_columns(took_ns=pl.col("end_ns") - pl.col("start_ns"))
    at = ["iteration", "position"]
    if all(member.match for member in members):
        shared = took.filter(pl.len().over(at) == len(members))
        compared = shared.with_columns(least_ns=pl.col("took_ns").min().over(*at, "group"), present=_present(at))
    else:
        usual = took.group_by("member", "position", "group").agg(pl.col("took_ns").median())
        least = usual.group_by("position", "group").agg(
            least_ns=pl.col("took_ns").min().round().cast(pl.Int64), present=pl.col("member").n_unique()
        )
        compared = took.join(least, on=["position", "group"], maintain_order="left")
    # A group with more ranks here than its stated size is several groups of one name.
    alone = (pl.col("present") < 2) | (pl.col("group_size") < pl.col("present")).fill_null(value=False)
    waiting = (pl.col("took_ns") - pl.col("least_ns")).clip(lower_bound=0)
    waits = compared.with_columns(waiting_ns=pl.when(~alone).then(waiting))
    return pl.concat(_expose(waits.filter(pl.col("member") == k), member) for k, member in enumerate(members))


def _present(at: Sequence[str]) -> pl.Expr:
    """Return how many members meet in a collective."""
    return pl.col("member").n_unique().over(*at, "group")


def _expose(waits: pl.DataFrame, member: ComparedRank) -> pl.DataFrame:
    """Return one member's waits with the time that it computes nothing in them, and in the whole collectives."""
    rows = waits.sort("start_ns")
    waited = pl.col("start_ns") + pl.col("waiting_ns").fill_null(0)
    shown = rows.with_columns(
        exposed_ns=_uncovered(rows.select("start_ns", until=waited), member.computing),
        idle_ns=_uncovered(rows.select("start_ns", until="end_ns"), member.computing),
    )
    return shown.select(WAITS.names()).cast(dict(WAITS))  # type: ignore[arg-type]


def _uncovered(windows: pl.DataFrame, computing: Spans) -> pl.Series:
    """Return how much of every window [start_ns, until) no kernel covers; shared time counts in the first window."""
    reach = windows["until"].cum_max().shift(1, fill_value=windows["start_ns"].min())
    begin = np.maximum(windows["start_ns"].to_numpy(), reach.to_numpy())
    end = np.maximum(windows["until"].to_numpy(), begin)
    return pl.Series(end - begin - covered(computing, begin, end), dtype=pl.Int64)


def sum_waits(waits: pl.DataFrame, length: int, *, matched: bool) -> pl.DataFrame:
    """Return member, iteration, index and `waiting_ns` of every whole iteration that could be compared.

    A wait that computation hides may still delay the following collectives until nothing hides them. The time that a
    rank loses that way is at most its whole wait, and at most its time in collectives without computing beyond that of
    the rank with the least.
    """
    sums = waits.group_by("member", "iteration").agg(
        pl.col("index").min(),
        pl.col("waiting_ns", "exposed_ns", "idle_ns").sum(),
        whole=pl.len() == length,
        compared=pl.col("waiting_ns").count() > 0,
    )
    kept = sums.filter(pl.col("whole") & pl.col("compared"))
    usual = pl.col("idle_ns").median().over("member").min().round().cast(pl.Int64)
    least = pl.col("idle_ns").min().over("iteration") if matched else usual
    most = pl.min_horizontal("waiting_ns", pl.col("idle_ns") - least)
    lost = kept.with_columns(waiting_ns=pl.max_horizontal("exposed_ns", most))
    return lost.select("member", "iteration", "index", "waiting_ns").sort("member", "iteration")


def measure_skews(waits: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return one row per position, a table `SKEWS`; `names` are those of a pass."""
    compared = waits.drop_nulls("waiting_ns").sort("member")
    by_rank = compared.group_by("position", "member", maintain_order=True).agg(pl.col("waiting_ns").median())
    spread = by_rank.group_by("position").agg(
        skew_ns=(pl.col("waiting_ns").max() - pl.col("waiting_ns").min()).round(),
        member=pl.col("member").get(pl.col("waiting_ns").arg_min()),
    )
    named = spread.with_columns(name=pl.Series(names).gather(spread["position"]))
    return named.select(SKEWS.names()).cast(dict(SKEWS)).sort("position")  # type: ignore[arg-type]
