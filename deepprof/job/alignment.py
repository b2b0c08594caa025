"""One clock for the ranks of a job where the files allow it, and a note where they do not.

Ranks of one host share a clock. Across hosts, unix clocks differ by the error that NTP leaves. Collectives measure it:
a synchronising one ends on all its ranks at the same moment, whichever rank came late to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.clocks import TraceClock, read_clock, shift, to_unix, within_limit
from deepprof.collectors.processes import session_of
from deepprof.collectors.trace import Trace

MIN_MATCHED_COLLECTIVES = 8  # a single late collective moves a median of fewer
CLEAR = 4  # times the spread: a smaller offset may be only scatter
KEY = ("group", "sequence", "collective")
SHOWN = 6  # ranks named in a sentence
# Collectives that do not synchronise: a sender, or the root of a broadcast, ends before its receivers do.
ONE_WAY = r"(?i)send|recv|p2p|broadcast|^_*(?:reduce|gather|scatter)(?:_?oop)?$"


class ClockOffset(Struct, frozen=True):
    """How far a clock is ahead of another: the median over `matched` collectives, and their spread.

    `spread_ns` is the median distance from the median.
    """

    offset_ns: int
    spread_ns: int
    matched: int

    @property
    def is_clear(self) -> bool:
        """Whether the offset is measured well enough to be corrected."""
        return self.matched >= MIN_MATCHED_COLLECTIVES and abs(self.offset_ns) > CLEAR * max(self.spread_ns, 1)


class AlignedRank(Struct, frozen=True):
    """One rank in the alignment: its number, its clock, and how far that is ahead of the first rank's (None: unknown).

    The first rank itself has no offset. `session` is the same for the processes of one recording.
    """

    rank: int
    clock: TraceClock
    offset: ClockOffset | None = None
    session: str | None = None  # the file the rank was recorded in

    @property
    def movable(self) -> bool:
        """Whether the rank's offset is clear, and can be subtracted from its times."""
        found = self.offset
        return found is not None and found.is_clear and within_limit(self.clock.times, -found.offset_ns)


class ClockCorrection(Struct, frozen=True):
    """The correction of a trace: whether it moves `to_unix`, the `offset_ns` subtracted to be on `clock`, and notes."""

    to_unix: bool = False
    offset_ns: int = 0
    clock: TraceClock | None = None
    notes: tuple[str, ...] = ()


def align(traces: Sequence[Trace]) -> list[Trace]:
    """Return the ranks of one job on one clock where their files allow it, with notes on what was done and what not.

    Session clocks whose epoch is recorded become unix clocks; then the offsets that collectives show clearly are
    subtracted. A single trace is returned unchanged.
    """
    if len(traces) < 2:
        return list(traces)
    ends = collective_ends(traces[0])
    offsets = [None, *(measure_offset(ends, collective_ends(trace)) for trace in traces[1:])]
    members = [
        AlignedRank(t.rank or 0, read_clock(t), offset, session_of(t))
        for t, offset in zip(traces, offsets, strict=True)
    ]
    return [correct(trace, how) for trace, how in zip(traces, plan_corrections(members), strict=True)]


def plan_corrections(members: Sequence[AlignedRank]) -> list[ClockCorrection]:
    """Return the correction of every trace; the offsets given are between the clocks as they were recorded."""
    if len(members) < 2 or _share_session(members):
        return [ClockCorrection() for _ in members]
    moved = _on_unix(members)
    (first, *others), unix = moved or members, moved is not None
    notes = (*_relate(members, first, others), *_state(first, others))
    offsets = [each.offset.offset_ns if each.offset and each.movable else 0 for each in others]
    return [ClockCorrection(unix, notes=notes), *(ClockCorrection(unix, offset, first.clock) for offset in offsets)]


def _share_session(members: Sequence[AlignedRank]) -> bool:
    """Return whether all members are processes of one recording, and therefore already on one clock."""
    return members[0].session is not None and len({each.session for each in members}) == 1


def _on_unix(members: Sequence[AlignedRank]) -> list[AlignedRank] | None:
    """Return the members on the unix clock; None unless all can be."""
    leads = [each.clock.lead_ns for each in members]
    return (
        None if None in leads else [_put_on_unix(each, (each.clock.lead_ns or 0) - (leads[0] or 0)) for each in members]
    )


def _put_on_unix(member: AlignedRank, further_ns: int) -> AlignedRank:
    """Return the member on the unix clock, with its offset from the first rank's clock increased by `further_ns`."""
    found = member.offset
    offset = None if found is None else replace(found, offset_ns=found.offset_ns + further_ns)
    return AlignedRank(member.rank, member.clock.on_unix(), offset, member.session)


def correct(trace: Trace, how: ClockCorrection) -> Trace:
    """Return `trace` with the correction `how` applied."""
    moved = (to_unix(trace) if how.to_unix else None) or trace
    if how.offset_ns and how.clock is not None:
        moved = replace(shift(moved, -how.offset_ns), clock=how.clock.clock, epoch_ns=how.clock.epoch_ns)
    return replace(moved, notes=(*moved.notes, *how.notes)) if how.notes else moved


def _relate(members: Sequence[AlignedRank], first: AlignedRank, others: Sequence[AlignedRank]) -> list[str]:
    """Return a sentence on how the clocks of the files relate; none if collectives gave every offset."""
    ranks = [each.rank for each in members]
    if first.clock.clock == "unix" and all(each.clock.clock == "unix" for each in others):
        moved = [each.rank for each in members if each.clock.clock == "session"]
        means = f", {list_ranks(moved)} moved to it by the recorded start of the session" if moved else ""
        error = "" if all(each.offset for each in others) else "; how far the hosts' clocks differ is not measured"
        return [f"the times of {list_ranks(ranks)} are unix time{means}{error}"]
    if all(each.movable for each in others):
        return []
    lost = [each.rank for each in members if each.clock.lead_ns is None]
    reason = f"{list_ranks(lost)} count{'s' if len(lost) == 1 else ''} from a start that is not recorded"
    return [f"the clocks of {list_ranks(ranks)} are not aligned: {reason}; compare durations, not times"]


def collective_ends(trace: Trace) -> pl.DataFrame:
    """Return the ends of a trace's synchronising collectives whose key is unique in it."""
    known = trace.collectives.drop_nulls(KEY).filter(~pl.col("collective").str.contains(ONE_WAY))
    known = known.filter(pl.len().over(KEY) == 1)
    ends = trace.device_events.select("end_ns").with_row_index("event")
    return known.join(ends, on="event").select(*KEY, "end_ns")


def measure_offset(ends: pl.DataFrame, others: pl.DataFrame) -> ClockOffset | None:
    """Return how far the clock of `others` is ahead of that of `ends`; None where they share no collective.

    Both have the columns group, sequence, collective and `end_ns`.
    """
    shared = ends.join(others, on=KEY, suffix="_other")
    ahead = (shared["end_ns_other"] - shared["end_ns"]).sort()
    if ahead.is_empty():
        return None
    middle = int(ahead[ahead.len() // 2])
    spread = (ahead - middle).abs().sort()
    return ClockOffset(middle, int(spread[spread.len() // 2]), ahead.len())


def _state(first: AlignedRank, others: Sequence[AlignedRank]) -> list[str]:
    """Return sentences on what collectives show of every rank's clock."""
    reference = f"rank {first.rank}"
    measured = [each for each in others if each.offset is not None and each.offset.matched >= MIN_MATCHED_COLLECTIVES]
    corrected = [each for each in measured if each.movable]
    left = [each for each in measured if not each.movable]
    sentences = []
    if corrected:
        sentences.append(
            f"collectives show how far clocks are from {reference}'s, and it was taken off: {_tell(corrected)}"
        )
    if left:
        sentences.append(
            f"collectives show no clear difference from {reference}'s clock, and times are as recorded: {_tell(left)}"
        )
    few = [each.rank for each in others if each.offset is not None and each.offset.matched < MIN_MATCHED_COLLECTIVES]
    if few:
        sentences.append(f"{list_ranks(few)} share too few collectives with {reference} to measure how clocks differ")
    return sentences


def _tell(members: Sequence[AlignedRank]) -> str:
    found = [(each.rank, each.offset) for each in members if each.offset is not None]
    shown = [
        f"rank {rank} {o.offset_ns:+,} ns (spread {o.spread_ns:,} ns, {o.matched} matched)" for rank, o in found[:SHOWN]
    ]
    return ", ".join([*shown, *([f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else [])])


def list_ranks(ranks: Sequence[int]) -> str:
    """Return the ranks as words; of many, the middle ones are left out."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= SHOWN:
        return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:3]))} … {ranks[-1]} ({len(ranks)} in all)"
