"""How late one rank of a group is, and when that is more than chance.

In a loop a rank is late if it is late in most iterations. In a single marked step the collectives are counted: being
late at most of them shows that the others waited for this rank in that step, not that they always do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.metrics.ranks.comparison import RankGroup

Int64s = npt.NDArray[np.int64]

MIN_LATE_ITERATIONS = 3  # iterations: what happens twice may be chance
LATE_SHARE = 0.05  # of an iteration: devices of one model differ by a few percent in speed
SAME_RANK = 2 / 3  # share of iterations that it must be late in: between two ranks a half is chance
CLEAR = 4  # times the noise of the measurement
LUCK = 0.05  # the chance that any of this many ranks is late as often in one step, if all are alike


class Lateness(Struct, frozen=True, eq=False):
    """How much later one rank comes than the others, by iteration; `typical_ns` is how far the others are apart.

    For one marked step `arrivals_ns` is how much later it comes to every collective, and `last` at how many of them it
    is the last; None and 0 for loops, and for a step that was not examined.
    """

    place: tuple[int, int]
    late_ns: Int64s
    iterations: Int64s
    typical_ns: float
    arrivals_ns: Int64s | None = None
    last: int = 0

    @property
    def headroom_ns(self) -> float:
        """What the others wait for it in a usual iteration beyond what they wait for each other."""
        return float(np.median(self.late_ns)) - self.typical_ns


def _measure_lateness(group: RankGroup) -> Iterator[Lateness]:
    """Yield for every rank how much less it waits than the others, which is how much later it comes."""
    table = {place: _rows_of(group.waits, place) for place in group.places}
    for place, rows in table.items():
        others = pl.concat([other for key, other in table.items() if key != place] or [rows.clear()])
        middle = others.group_by("rank", "device").agg(pl.col("waiting_ns").median())["waiting_ns"].to_numpy()
        if not len(middle) or rows.is_empty():
            continue
        if group.matching is None:
            late = rows.with_columns(others_ns=pl.lit(float(np.median(middle))))
        else:
            level = others.group_by("iteration").agg(others_ns=pl.col("waiting_ns").median())
            late = rows.join(level, on="iteration", maintain_order="left")
        typical = float(np.median(np.abs(middle - np.median(middle))))
        yield Lateness(place, _lateness_of(late), late["index"].to_numpy(), typical)


def _look_into_step(lateness: Lateness, group: RankGroup) -> Lateness:
    """Return the lateness with how much later than the others the rank comes to every collective of its one step."""
    arrivals = group.arrivals
    if arrivals is None:
        return lateness
    own = _rows_of(arrivals, lateness.place).drop_nulls("waiting_ns")
    others = arrivals.join(own, on=["rank", "device"], how="anti").group_by("position")
    level = others.agg(others_ns=pl.col("waiting_ns").median(), least_ns=pl.col("waiting_ns").min())
    late = own.join(level, on="position", how="inner", maintain_order="left")
    last = int((late["waiting_ns"] < late["least_ns"]).sum())
    return replace(lateness, arrivals_ns=_lateness_of(late), last=last)


def sum_waits_for(place: tuple[int, int], group: RankGroup) -> int:
    """Return how long the ranks of one step wait, all together, at the collectives that a rank is the last to reach."""
    if group.arrivals is None:
        return 0
    known = group.arrivals.drop_nulls("waiting_ns")
    last = _rows_of(known, place).select("position", own_ns="waiting_ns")
    at_these = known.join(last, on="position").filter(pl.col("own_ns") == pl.col("waiting_ns").min().over("position"))
    return int(at_these["waiting_ns"].sum())


def _rows_of(table: pl.DataFrame, place: tuple[int, int]) -> pl.DataFrame:
    return table.filter((pl.col("rank") == place[0]) & (pl.col("device") == place[1]))


def _lateness_of(rows: pl.DataFrame) -> Int64s:
    """Return how much less the rank waits than the others."""
    return (rows["others_ns"] - rows["waiting_ns"]).round().cast(pl.Int64).to_numpy()


def find_late(group: RankGroup, time_ns: float) -> list[Lateness]:
    """Return the ranks that are usually late by more than the noise of the measurement and the spread of the others.

    The worst comes first; `time_ns` is what an iteration needs.
    """
    enough = threshold(group, time_ns)
    far = [each for each in _measure_lateness(group) if time_ns > 0 and each.headroom_ns >= enough]
    late = [each for each in (_look_into_step(each, group) for each in far) if _is_often(each, group, time_ns)]
    return sorted(late, key=lambda each: each.headroom_ns, reverse=True)


def _is_often(lateness: Lateness, group: RankGroup, time_ns: float) -> bool:
    """Return whether a rank is late in most iterations of a loop, or at more of a step's collectives than by chance."""
    if share_late(lateness, group, time_ns) < SAME_RANK:
        return False
    if lateness.arrivals_ns is None:
        return len(lateness.late_ns) >= MIN_LATE_ITERATIONS
    return luck_of(lateness, group, time_ns) <= LUCK


def threshold(group: RankGroup, time_ns: float) -> float:
    """Return how late a rank must be to matter and to exceed the noise."""
    return max(LATE_SHARE * time_ns, CLEAR * (group.noise_ns or 0))


def count_late(lateness: Lateness, group: RankGroup, time_ns: float) -> tuple[int, int]:
    """Return in how many iterations a rank is late by at least half of the threshold, and in how many it could be.

    For one marked step collectives are counted instead, each with its part of the threshold.
    """
    late, enough = lateness.late_ns, threshold(group, time_ns) / 2
    if lateness.arrivals_ns is not None:
        late = lateness.arrivals_ns
        enough = max(enough / max(1, len(late)), CLEAR * (group.noise_ns or 0))
    return int(np.sum(late >= enough)), len(late)


def share_late(lateness: Lateness, group: RankGroup, time_ns: float) -> float:
    """Return the share of iterations, or of a single step's collectives, in which a rank is late."""
    late, count = count_late(lateness, group, time_ns)
    return late / count if count else 0.0


def luck_of(lateness: Lateness, group: RankGroup, time_ns: float) -> float:
    """Return an upper bound of the chance that any rank is late that often if none comes later than another.

    In a loop each iteration has one last rank. At the collectives of one step, what counts is how often the rank is the
    last one or how often it comes after half of the others, whichever is less likely.
    """
    late, count = count_late(lateness, group, time_ns)
    ranks = len(group.places)
    if lateness.arrivals_ns is None:
        return float((1 / ranks) ** late)
    last = min(lateness.last, late)
    return min(1.0, ranks * min(bound_chance(last, count, 1 / ranks), bound_chance(late, count, 0.5)))


def bound_chance(hits: int, count: int, chance: float) -> float:
    """Return an upper bound (Chernoff's) of the chance of at least this many hits, each having a `chance` below 1.

    >>> bound_chance(8, 8, 0.5) == 0.5 ** 8, bound_chance(4, 8, 0.5)
    (True, 1.0)
    """
    share = hits / count if count else 0.0
    if share <= chance:
        return 1.0
    rest = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return math.exp(-count * (share * math.log(share / chance) + rest))
