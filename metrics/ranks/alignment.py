"""Alignment of the ranks of one job: which collective of one rank is which of another, without a common clock.

All ranks run the same sequence of collectives, but their iterations may be cut at different places of it and their
captures may begin in different iterations. The ends of collectives are common: all ranks leave a collective together,
so that the time from one end to the next is the same on every rank, whatever its clock shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.ranks.collectives import Passes

Int64s = npt.NDArray[np.int64]
Matching = Literal["sequence", "ends"]

CANDIDATES = 512  # shifts of one rank against another that are tried, the smallest first
LOOKED_AT = 4096  # collectives compared at most: enough to show where two ranks meet
MIN_SHARED_DISTANCES = 3  # distances between ends that two ranks must share
KEY = ("group", "sequence")


class Match(Struct, frozen=True):
    """The alignment of one rank with the reference: place `p` of this rank is place `p + shift` there.

    A place is iteration · length of a pass + position. `spread_ns` is the median difference between the ranks' times
    from one collective's end to the next: how far the ranks are from leaving together.
    """

    shift: int
    spread_ns: int
    matching: Matching


def turns_between(names: Sequence[str], others: Sequence[str]) -> list[int]:
    """Return all t such that `others` is `names` rotated to begin at position t; none for different sequences.

    >>> turns_between(["a", "b", "b"], ["b", "b", "a"]), turns_between(["a", "a"], ["a", "a"])
    ([1], [0, 1])
    """
    if len(names) != len(others) or not names:
        return []
    letters = {name: chr(number) for number, name in enumerate(dict.fromkeys([*names, *others]))}
    doubled = "".join(letters[name] for name in (*names, *names))[:-1]
    wanted = "".join(letters[name] for name in others)
    turns, at = [], doubled.find(wanted)
    while at >= 0:
        turns.append(at)
        at = doubled.find(wanted, at + 1)
    return turns


def match_passes(reference: Passes, other: Passes) -> Match | None:
    """Return the alignment of `other` with `reference`; None where they share too little for one.

    It follows from the numbers of the collectives if the trace has them, else from the times between their ends.
    """
    length = len(reference.names)
    turns = turns_between(reference.names, other.names)
    ends, others = (_places(each.rows, length) for each in (reference, other))
    stated = _stated_shift(reference.rows, other.rows, length)
    if stated is not None and stated % length in turns:
        spread = _spread_at(ends, others, stated)
        return None if spread is None else Match(stated, spread, "sequence")
    tried = [(_spread_at(ends, others, shift), shift) for shift in candidates(turns, length, ends, others)]
    known = [(spread, abs(shift), shift) for spread, shift in tried if spread is not None]
    if not known:
        return None
    spread, _, shift = min(known)
    return Match(shift, spread, "ends")


def match_single(reference: Passes, other: Passes) -> Match | None:
    """Return the alignment of the one pass of `other` with that of `reference`: unshifted, unless disproved.

    None where the sequences differ, where the collectives' numbers show that they are different ones, or where too few
    are shared to see that the ranks leave them together.
    """
    length = len(reference.names)
    if not length or reference.names != other.names:
        return None
    stated = _stated_shift(reference.rows, other.rows, length)
    numbered = all(each.rows["sequence"].count() for each in (reference, other))
    if stated != 0 and numbered:
        return None
    spread = _spread_at(_places(reference.rows, length), _places(other.rows, length), 0)
    return None if spread is None else Match(0, spread, "sequence" if numbered else "ends")


def _places(rows: pl.DataFrame, length: int) -> tuple[Int64s, Int64s]:
    place = rows["iteration"].to_numpy() * length + rows["position"].to_numpy()
    order = np.argsort(place, kind="stable")
    return place[order], rows["end_ns"].to_numpy()[order]


def _stated_shift(rows: pl.DataFrame, others: pl.DataFrame, length: int) -> int | None:
    """Return the shift by which most collectives of one group and number meet; None without numbers."""
    place = pl.col("iteration") * length + pl.col("position")
    known, numbered = (
        each.drop_nulls("sequence").filter(pl.len().over(KEY) == 1).select(*KEY, place=place) for each in (rows, others)
    )
    met = known.join(numbered, on=KEY, suffix="_other")
    shifts = (met["place"] - met["place_other"]).value_counts(sort=True)
    return None if shifts.is_empty() else int(shifts["place"][0])


def candidates(
    turns: Sequence[int], length: int, ends: tuple[Int64s, Int64s], others: tuple[Int64s, Int64s]
) -> list[int]:
    """Return the shifts at which the sequences agree and the ranks overlap, the smallest first."""
    if not turns or not len(ends[0]) or not len(others[0]):
        return []
    low, high = int(ends[0][0] - others[0][-1]), int(ends[0][-1] - others[0][0])
    most = max(1, CANDIDATES // len(turns)) // 2 + 1  # whole passes to either side
    first, last = max(low // length - 1, -most), min(high // length + 1, most)
    shifts = [turn + length * moved for turn in turns[:CANDIDATES] for moved in range(first, last + 1)]
    return sorted((s for s in shifts if low <= s <= high), key=abs)[:CANDIDATES]


def _spread_at(ends: tuple[Int64s, Int64s], others: tuple[Int64s, Int64s], shift: int) -> int | None:
    """Return the median difference between the ranks' distances of neighbouring ends.

    None for fewer than `MIN_SHARED_DISTANCES`.

    If they overlap by less than half of the shorter one, they are not compared: a few distances agree by chance.
    """
    place, end = (values[:LOOKED_AT] for values in others)
    at = np.minimum(np.searchsorted(ends[0], place + shift), len(ends[0]) - 1)
    both = ends[0][at] == place + shift
    neighbours = both[1:] & both[:-1] & (np.diff(place) == 1)
    if neighbours.sum() < MIN_SHARED_DISTANCES or 2 * both.sum() < min(len(place), len(ends[0])):
        return None
    return int(np.median(np.abs(np.diff(end) - np.diff(ends[1][at]))[neighbours]))
