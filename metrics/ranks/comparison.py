"""The ranks of one job compared: what each needs by itself, and how long it waits for the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.collectors.reprs import one_line
from deepprof.collectors.table_schema import Columns, TableSchema
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.alignment import Match, Matching, match_passes, match_single, turns_between
from deepprof.metrics.ranks.collectives import Passes
from deepprof.metrics.ranks.facts import PlaceFacts, RankFacts, longest_loops, places_of
from deepprof.metrics.ranks.ranks_table import describe_bare, describe_group, sort_ranks
from deepprof.metrics.ranks.waiting import (
    SKEWS,
    ComparedRank,
    measure_skews,
    measure_waits,
    place_members,
    sum_waits,
)
from deepprof.plurals import counted

I64 = pl.Int64()
PLACE: Columns = {"rank": (I64, "the rank"), "device": (pl.UInt16(), "the number of its device")}
GROUP_WAITS = TableSchema.of(
    "How long one rank waits for others in one iteration.",
    {
        **PLACE,
        "iteration": (I64, "the iteration of the group's first rank; of each rank, where they are not matched"),
        "index": (I64, "the rank's own number of it"),
        "waiting_ns": (I64, "how long it waits"),
    },
)
GROUP_ARRIVALS = TableSchema.of(
    "How long one rank waits at one collective of a single marked step.",
    {**PLACE, "position": (I64, "the collective's place in the step"), "waiting_ns": (I64, "how long it waits")},
)
GROUP_SKEWS = TableSchema.of(
    "One collective of the iteration.",
    {
        "group": (I64, "the program, as in the table of ranks"),
        "position": (I64, "the collective's place in the iteration"),
        "name": (pl.String(), "its name"),
        "skew_ns": (I64, "how much earlier the first rank comes than the last (median)"),
        "latest_rank": (I64, "the rank that is usually last"),
        "latest_device": (pl.UInt16(), "the number of its device"),
    },
)
SAME_PERIOD = 1.05  # a library may choose another kernel on one rank, but not for a twentieth of them
TOGETHER = 0.01  # of an iteration: ranks that leave collectives further apart than this were aligned wrongly
TOGETHER_ON_CPU = 0.05  # the same if threads wait for collectives: busy cores wake them milliseconds late
MOST_RANKS = 1 << 20  # more than any job has; a file that states more is wrong


class RankGroup(Struct, frozen=True, eq=False):
    """Ranks that run the same program, as (rank, device).

    `waits` has the schema `GROUP_WAITS`: how long each rank waits in every whole iteration, and the rank's own `index`
    of it. With `matching` the iterations of all ranks are matched, and `iteration` is that of the first place; without
    it, each rank is compared with the others' usual times. `noise_ns` is how far apart ranks leave their collectives,
    null without matching. Ranks without collectives to compare have no waits.

    `arrivals` has the schema `GROUP_ARRIVALS` if the ranks have one marked step each and no loop: how long each waits
    at every collective of the step. It is None for loops, and for steps that could not be matched, which have no waits
    either.
    """

    places: tuple[tuple[int, int], ...]
    matching: Matching | None
    noise_ns: int | None
    waits: pl.DataFrame
    arrivals: pl.DataFrame | None = None

    def __repr__(self) -> str:
        return one_line(self, counted(len(self.places), "rank"), f"matched by {self.matching}" if self.matching else "")


class RankComparison(Struct, frozen=True, eq=False):
    """`ranks` has the schema `metrics.ranks.ranks_table.RANKS`, `skews` (one row per group and position) `GROUP_SKEWS`.

    `missing` contains the runs of ranks (first, last) of the job that no trace was given of; None if no trace states
    the number of ranks."""

    ranks: pl.DataFrame
    skews: pl.DataFrame
    groups: tuple[RankGroup, ...]
    world_size: int | None
    missing: tuple[tuple[int, int], ...] | None

    def __repr__(self) -> str:
        missing = f"missing {self.missing_text}" if self.missing_text else ""
        return one_line(self, counted(self.ranks.height, "rank"), counted(len(self.groups), "program"), missing)

    @property
    def missing_text(self) -> str:
        """The missing ranks as in `2-15 of 16`; empty if none is missing or known to be."""
        runs = [str(first) if first == last else f"{first}-{last}" for first, last in self.missing or ()]
        return f"{', '.join(runs)} of {self.world_size}" if runs else ""


def compare_ranks(loops: Sequence[Loop], ranks: Sequence[RankFacts]) -> RankComparison | None:
    """Return the comparison of the ranks of one job; None for a single rank and device, or without any loop.

    `ranks` are the facts of every rank, `loops` the loops of all ranks, including marked steps measured as loops. Of
    several loops on a device the longest is compared; a step is only compared with steps.
    """
    facts = places_of(ranks)
    longest = _keep_compared(longest_loops(loops), facts)
    bare = [each for each in ranks if not any(rank == each.rank for rank, _ in longest)]
    if not longest or len(longest) + len(bare) < 2:
        return None
    found = [_compare_group(group, longest, facts) for group in _group_places(list(longest.values()), facts)]
    groups = tuple(group for group, _ in found)
    rows = [
        row for number, group in enumerate(groups) for row in describe_group(number, group.places, group.waits, longest)
    ]
    world_size = _state_world_size(ranks)
    return RankComparison(
        ranks=sort_ranks(rows + [describe_bare(each) for each in bare]),
        skews=pl.concat(_numbered_skews(k, skews) for k, (_, skews) in enumerate(found)),
        groups=groups,
        world_size=world_size,
        missing=None if world_size is None else _find_missing((each.rank for each in ranks), world_size),
    )


def _keep_compared(
    longest: Mapping[tuple[int, int], Loop], facts: Mapping[tuple[int, int], PlaceFacts]
) -> dict[tuple[int, int], Loop]:
    """Return the loops that have facts; next to loops, single steps only if they can be compared with others."""
    known = {place: loop for place, loop in longest.items() if place in facts}
    groups = _group_places(list(known.values()), facts)
    alone = {group[0] for group in groups if len(group) == 1 and longest[group[0]].single}
    looped = any(loop.single is None for loop in known.values())
    return {place: loop for place, loop in known.items() if not looped or place not in alone}


def _group_places(loops: Sequence[Loop], facts: Mapping[tuple[int, int], PlaceFacts]) -> list[list[tuple[int, int]]]:
    """Return the places by program: about as many kernels per iteration, the same cycle of collectives."""
    groups: list[list[Loop]] = []
    for loop in loops:
        names = facts[loop.rank, loop.device].passes.names
        for group in groups:
            other = facts[group[0].rank, group[0].device].passes.names
            near = max(loop.period, group[0].period) <= SAME_PERIOD * min(loop.period, group[0].period)
            if near and loop.single == group[0].single and (names == other or turns_between(other, names)):
                group.append(loop)
                break
        else:
            groups.append([loop])
    return [[(loop.rank, loop.device) for loop in group] for group in groups]


def _compare_group(
    group: Sequence[tuple[int, int]],
    loops: Mapping[tuple[int, int], Loop],
    facts: Mapping[tuple[int, int], PlaceFacts],
) -> tuple[RankGroup, pl.DataFrame]:
    """Return the group with its waits, and the skews at its collectives (a table `SKEWS`)."""
    reference, *others = (facts[place].passes for place in group)
    nothing = RankGroup(tuple(group), None, None, pl.DataFrame(schema=GROUP_WAITS)), pl.DataFrame(schema=SKEWS)
    if not others or not reference.names:
        return nothing
    single = loops[group[0]].single is not None
    matches = _match_group(reference, others, _iteration_time(loops[group[0]]), single=single)
    if single and matches[0] is None:
        return nothing
    members = [
        ComparedRank(each.passes, _turn_of(reference, each.passes, match), match, each.computing)
        for each, match in zip((facts[place] for place in group), matches, strict=True)
    ]
    waits = measure_waits(place_members(members), members)
    sums = sum_waits(waits, len(reference.names), matched=matches[0] is not None)
    known = [match for match in matches if match is not None]
    matching: Matching | None = None
    if known:
        matching = "sequence" if all(match.matching == "sequence" for match in known[1:]) else "ends"
    noise = max(match.spread_ns for match in known) if known else None
    named = _with_places(measure_skews(waits, reference.names), group)
    waited = _with_places(sums, group).select(GROUP_WAITS.names())
    arrivals = _with_places(waits, group).select(GROUP_ARRIVALS.names()) if single else None
    return RankGroup(tuple(group), matching, noise, waited, arrivals), named


def _match_group(
    reference: Passes, others: Sequence[Passes], iteration_ns: float, *, single: bool
) -> list[Match | None]:
    """Return the alignment of every rank with the reference, itself first; None for all if one cannot be aligned."""
    match = match_single if single else match_passes
    matches = [match(reference, other) for other in others]
    most = TOGETHER_ON_CPU if reference.on_cpu else TOGETHER
    close = [match for match in matches if match is not None and match.spread_ns <= most * iteration_ns]
    if len(close) < len(others):
        return [None] * (len(others) + 1)
    return [Match(0, 0, close[0].matching), *close]


def _turn_of(reference: Passes, other: Passes, match: Match | None) -> int:
    """Return the position in the reference's pass at which `other` begins; without a match the first that fits."""
    if match is not None:
        return match.shift % len(reference.names)
    return turns_between(reference.names, other.names)[0]


def _iteration_time(loop: Loop) -> float:
    """Return the median time from an iteration's start to the next, 0 where no two follow each other."""
    return float(np.median(loop.usual["iteration_ns"].to_numpy())) if loop.usual.height else 0.0


def _with_places(rows: pl.DataFrame, group: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """Return rows that have a `member` with its rank and device."""
    places = pl.DataFrame(
        [(k, *place) for k, place in enumerate(group)],
        schema={"member": I64} | {name: dtype for name, (dtype, _) in PLACE.items()},
        orient="row",
    )
    return rows.join(places, on="member", how="left", maintain_order="left")


def _numbered_skews(number: int, skews: pl.DataFrame) -> pl.DataFrame:
    if skews.is_empty():
        return pl.DataFrame(schema=GROUP_SKEWS)
    named = skews.with_columns(group=pl.lit(number, pl.Int64)).rename(
        {"rank": "latest_rank", "device": "latest_device"}
    )
    return named.select(GROUP_SKEWS.names())


def _state_world_size(ranks: Sequence[RankFacts]) -> int | None:
    """Return the number of ranks of the job, if its traces state one that agrees with their own numbers."""
    said = {each.world_size for each in ranks if each.world_size is not None}
    size = max(said, default=None)
    most = max((each.rank for each in ranks), default=0)
    return size if size is not None and len(said) == 1 and most < size <= MOST_RANKS else None


def _find_missing(present: Iterable[int], world_size: int) -> tuple[tuple[int, int], ...]:
    """Return the runs of ranks below `world_size` that are not present, first and last of each."""
    edges = [-1, *sorted(present), world_size]
    return tuple((low + 1, high - 1) for low, high in pairwise(edges) if high - low > 1)
