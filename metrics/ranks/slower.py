"""Which ranks need longer than the others for equal kernels: of one name, grid and block.

A rank's ratio is the median over kinds of kernels, weighted with their time, of its median length over that of the
other ranks. Other work (longer sequences, another stage) has other grids, and then too little is equal to be compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.metrics.ranks.facts import PlaceFacts

FEWEST_CALLS = 5  # of a kind on a rank: the median of fewer moves with one disturbed call
FEWEST_KINDS = 3  # one or two kernels may depend on their data
FEWEST_RANKS = 3  # that have a kind, or all of two
SHORTEST_NS = 1_000_000  # of the compared calls of a rank: less is a fragment of a job
COMPARED = 0.8  # of the listed kernels' time: if less is equal, the ranks do not do the same work
SLOWER = 0.08  # devices of one model, at the same work, differ by some per cent
EVEN = 0.8  # of the time is in kinds that are slower by at least half as much
CLEAR = 4  # times as far from the other ranks as these are from each other
KIND = ("kernel", "grid", "block")


class SlowerRank(Struct, frozen=True):
    """A place (rank, device) that takes `ratio` times as long as the others for equal kernels.

    `even_ratio` is the share of their time in kinds that are slower by at least half as much, `kinds` is how many were
    compared, and `compared_ratio` their share of the time of the rank's kernels.
    """

    place: tuple[int, int]
    ratio: float
    even_ratio: float
    kinds: int
    compared_ratio: float


def find_slower(facts: Mapping[tuple[int, int], PlaceFacts]) -> list[SlowerRank]:
    """Return the places of one program that are slower, the slowest first; none where more than half of them are."""
    tables = [each.calls.with_columns(member=pl.lit(place)) for place, each in enumerate(facts.values())]
    if len(tables) < 2:
        return []
    calls = pl.concat(tables).with_columns(time_ns=pl.col("count") * pl.col("median_ns"))
    judged = _weigh_ranks(_measure_ratios(calls, len(tables)), calls)
    ratios = dict(judged.select("member", "ratio").iter_rows())
    slow = [row for row in judged.iter_rows(named=True) if _is_slow(row, ratios)]
    if 2 * len(slow) > len(tables):
        return []
    places = list(facts)
    found = [
        SlowerRank(places[row["member"]], row["ratio"], row["even_ratio"], row["kinds"], row["compared_ratio"])
        for row in slow
    ]
    return sorted(found, key=lambda each: each.ratio, reverse=True)


def _measure_ratios(calls: pl.DataFrame, ranks: int) -> pl.DataFrame:
    """Return the calls of kinds that enough ranks have, with `ratio`: to the median of the other ranks that have it."""
    known = pl.col("grid").is_not_null() & (pl.col("count") >= FEWEST_CALLS) & (pl.col("median_ns") > 0)
    common = calls.filter(known).filter(pl.len().over(KIND) >= min(FEWEST_RANKS, ranks))
    rows = common.sort(*KIND, "median_ns", "member").with_columns(
        number=pl.len().over(KIND).cast(pl.Int64), own=pl.int_range(pl.len()).over(KIND)
    )
    median, number, own = (rows[name].to_numpy() for name in ("median_ns", "number", "own"))
    first = np.arange(len(median)) - own
    low, high = (number - 2) // 2, (number - 1) // 2  # the middle of the others, without the rank's own
    others = (median[first + low + (low >= own)] + median[first + high + (high >= own)]) / 2
    return rows.with_columns(ratio=pl.Series(median / others, dtype=pl.Float64()))


def _weigh_ranks(compared: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return a row per `member` with enough equal kernels: `ratio`, `even_ratio`, `kinds` and `compared_ratio`."""
    ordered = compared.sort("member", "ratio").with_columns(
        below=pl.col("time_ns").cum_sum().over("member"), whole=pl.col("time_ns").sum().over("member")
    )
    middle = (
        ordered.filter(2 * pl.col("below") >= pl.col("whole")).group_by("member").agg(middle=pl.col("ratio").first())
    )
    rows = compared.join(middle, on="member")
    alike = pl.col("ratio") - 1 >= (pl.col("middle") - 1) / 2
    ranks = rows.group_by("member").agg(
        ratio=pl.col("middle").first(),
        even_ratio=pl.col("time_ns").filter(alike).sum() / pl.col("time_ns").sum(),
        kinds=pl.len(),
        time_ns=pl.col("time_ns").sum(),
    )
    listed = calls.group_by("member").agg(listed_ns=pl.col("time_ns").sum())
    judged = ranks.join(listed, on="member").with_columns(compared_ratio=pl.col("time_ns") / pl.col("listed_ns"))
    many = (pl.col("kinds") >= FEWEST_KINDS) & (pl.col("time_ns") >= SHORTEST_NS)
    return judged.filter(many & (pl.col("compared_ratio") >= COMPARED)).sort("member")


def _is_slow(row: Mapping[str, float], ratios: Mapping[int, float]) -> bool:
    """Return whether a rank is evenly slower, and by more than the others differ."""
    others = np.array([ratio for member, ratio in ratios.items() if member != row["member"]])
    if not len(others) or row["even_ratio"] < EVEN:
        return False
    spread = float(np.median(np.abs(others - np.median(others))))
    return row["ratio"] - 1 >= max(SLOWER, CLEAR * spread)
