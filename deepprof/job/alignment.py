"""One clock for the ranks of a job: where the files allow it, and a statement where they do not.

Ranks of one host share a clock. Across hosts, unix clocks differ by what NTP left over. Collectives tell by how much:
a synchronising one ends on all its ranks at the same moment, whichever came late to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.clocks import fits, shift, to_unix

if TYPE_CHECKING:
    from deepprof.collectors.trace import Trace

__all__ = ["FEWEST", "Offset", "align", "measure_offset"]

FEWEST = 8  # matched collectives: a median of fewer moves with a single late one
CLEAR = 4  # times the spread: an offset below it may be none
KEY = ("group", "sequence", "collective")
SHOWN = 6  # ranks named in a sentence
# Not synchronising: a sender, or the root of a broadcast, ends before its receivers do.
ONE_WAY = r"(?i)send|recv|p2p|broadcast|^_*(?:reduce|gather|scatter)(?:_?oop)?$"


@dataclass(frozen=True, slots=True)
class Offset:
    """By how much a clock is ahead of another: the median over `matched` collectives, and how far these scatter.

    `spread_ns` is the median distance from the median.
    """

    offset_ns: int
    spread_ns: int
    matched: int

    @property
    def is_clear(self) -> bool:
        """Say whether it is measured well enough to be corrected."""
        return self.matched >= FEWEST and abs(self.offset_ns) > CLEAR * max(self.spread_ns, 1)


Pairs = Sequence[tuple["Trace", Offset | None]]


def align(traces: Sequence[Trace]) -> list[Trace]:
    """Return the ranks of one job on one clock where their files allow it, with notes on what was done and what not.

    Session clocks whose epoch is recorded become unix; then offsets that collectives show clearly are taken off. A
    single trace is returned as it is.
    """
    if len(traces) < 2:
        return list(traces)
    first, *others = on_unix(traces) or traces
    ends = collective_ends(first)
    pairs = [(trace, measure_offset(ends, collective_ends(trace))) for trace in others]
    notes = [*relate(traces, first, pairs), *state(first, pairs)]
    return [replace(first, notes=(*first.notes, *notes)), *(correct(trace, offset, first) for trace, offset in pairs)]


def on_unix(traces: Sequence[Trace]) -> list[Trace] | None:
    """Return the traces on the unix clock; None unless all can be."""
    moved = [to_unix(trace) for trace in traces]
    return [trace for trace in moved if trace is not None] if all(moved) else None


def correct(trace: Trace, offset: Offset | None, first: Trace) -> Trace:
    """Return `trace` on the clock of `first`, where its offset to it is clear."""
    if offset is None or not movable(trace, offset):
        return trace
    return replace(shift(trace, -offset.offset_ns), clock=first.clock, epoch_ns=first.epoch_ns)


def relate(traces: Sequence[Trace], first: Trace, pairs: Pairs) -> list[str]:
    """Return a sentence on how the clocks of the files relate to each other; none where collectives say it all."""
    ranks = [trace.rank or 0 for trace in traces]
    if first.clock == "unix" and all(trace.clock == "unix" for trace, _ in pairs):
        moved = [trace.rank or 0 for trace in traces if trace.clock == "session"]
        means = f", {list_ranks(moved)} moved to it by the recorded start of the session" if moved else ""
        error = "" if all(offset for _, offset in pairs) else "; how far the hosts' clocks differ is not measured"
        return [f"the times of {list_ranks(ranks)} are unix time{means}{error}"]
    if all(movable(trace, offset) for trace, offset in pairs):
        return []
    lost = [trace.rank or 0 for trace in traces if to_unix(trace) is None]
    reason = f"{list_ranks(lost)} count{'s' if len(lost) == 1 else ''} from a start that is not recorded"
    return [f"the clocks of {list_ranks(ranks)} are not aligned: {reason}; compare durations, not times"]


def movable(trace: Trace, offset: Offset | None) -> bool:
    """Return whether an offset is clear, and can be taken off the times of `trace`."""
    return offset is not None and offset.is_clear and fits(trace, -offset.offset_ns)


def collective_ends(trace: Trace) -> pl.DataFrame:
    """Return the ends of the synchronising collectives of a trace that have a key of their own."""
    known = trace.collectives.drop_nulls(KEY).filter(~pl.col("collective").str.contains(ONE_WAY))
    known = known.filter(pl.len().over(KEY) == 1)
    ends = trace.device_events.select("end_ns").with_row_index("event")
    return known.join(ends, on="event").select(*KEY, "end_ns")


def measure_offset(ends: pl.DataFrame, others: pl.DataFrame) -> Offset | None:
    """Return how far the clock of `others` is ahead of that of `ends`; None where they share no collective.

    Both have the columns group, sequence, collective and `end_ns`.
    """
    shared = ends.join(others, on=KEY, suffix="_other")
    ahead = (shared["end_ns_other"] - shared["end_ns"]).sort()
    if ahead.is_empty():
        return None
    middle = int(ahead[ahead.len() // 2])
    spread = (ahead - middle).abs().sort()
    return Offset(middle, int(spread[spread.len() // 2]), ahead.len())


def state(first: Trace, pairs: Pairs) -> list[str]:
    """Return sentences on what collectives said about each rank's clock."""
    reference = f"rank {first.rank or 0}"
    measured = [(trace, offset) for trace, offset in pairs if offset is not None and offset.matched >= FEWEST]
    corrected = [(t, o) for t, o in measured if movable(t, o)]
    left = [(t, o) for t, o in measured if not movable(t, o)]
    sentences = []
    if corrected:
        sentences.append(
            f"collectives show how far clocks are from {reference}'s, and it was taken off: {tell(corrected)}"
        )
    if left:
        sentences.append(
            f"collectives show no clear difference from {reference}'s clock, and times are as recorded: {tell(left)}"
        )
    few = [trace.rank or 0 for trace, offset in pairs if offset is not None and offset.matched < FEWEST]
    if few:
        sentences.append(f"{list_ranks(few)} share too few collectives with {reference} to measure how clocks differ")
    return sentences


def tell(pairs: Sequence[tuple[Trace, Offset]]) -> str:
    """Return the offsets as a list for a sentence."""
    shown = [
        f"rank {trace.rank or 0} {o.offset_ns:+,} ns (spread {o.spread_ns:,} ns, {o.matched} matched)"
        for trace, o in pairs[:SHOWN]
    ]
    return ", ".join([*shown, *([f"and {len(pairs) - SHOWN} more"] if len(pairs) > SHOWN else [])])


def list_ranks(ranks: Sequence[int]) -> str:
    """Return the ranks as words, the middle ones of many left out."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= SHOWN:
        return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:3]))} … {ranks[-1]} ({len(ranks)} in all)"
