"""The choice of ranks to evict where there is no space for another one: those that are needed least go first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepprof.live.service.daemon_rank import DaemonRank

ABANDONED_NS = 15 * 60 * 10**9  # that a collector needs at most to connect again
NAMED = 3  # senders or jobs in a message: those that hold most


class RankPriority(IntEnum):
    """How much a rank is needed, the least needed first."""

    EMPTY = 0  # never sent anything, and its sender is not connected
    DONE = 1  # has ended
    ABANDONED = 2  # its sender has been gone for long, without an end
    IDLE = 3  # never sent anything; its sender is connected, and would connect again
    NEEDED = 4  # is never evicted


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit that leaves no space: its key, its value, advice for the user, and the ranks that use it up.

    `whole`: it counts jobs, so that space is free only when all ranks of one job go; `own`: all ranks are one sender's.
    """

    limit: str
    most: int
    advice: str
    ranks: list[DaemonRank]
    whole: bool = False
    own: bool = False

    def __str__(self) -> str:
        held = {(rank.owner or "nobody known", rank.hello.job if self.whole else rank.key) for rank in self.ranks}
        names = [rank.hello.job[:128] for rank in self.ranks] if self.own else [owner for owner, _ in held]
        by = f"by {name_most(Counter(names))}"
        return f"{self.limit} allows {self.most:,}, and that many are held ({by}); {self.advice}"


def name_most(counts: Counter[str]) -> str:
    """Return the names that hold most, and how much they hold."""
    rest = len(counts) - NAMED
    named = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(NAMED))
    return f"{named} and {rest} more" if rest > 0 else named


def choose_spare(full: LimitReached, now_ns: int) -> list[DaemonRank]:
    """Return the ranks of one job to evict, none where all are needed; of equals those of the sender that holds most.

    `now_ns` is the daemon's monotonic clock.
    """
    parts = [part for part in _find_parts(full, now_ns) if part[0] < RankPriority.NEEDED]
    held = Counter(ranks[0].owner for _, ranks in parts)
    order = [(standing, -held[ranks[0].owner], min(rank.number for rank in ranks), ranks) for standing, ranks in parts]
    return min(order, key=lambda each: each[:3])[3] if order else []


def _find_parts(full: LimitReached, now_ns: int) -> Iterable[tuple[RankPriority, list[DaemonRank]]]:
    """Yield the ranks that may only go together, and their priority."""
    jobs = defaultdict[str, defaultdict[RankPriority, list["DaemonRank"]]](lambda: defaultdict(list))
    for rank in full.ranks:
        jobs[rank.hello.job][find_standing(rank, now_ns)].append(rank)
    for parts in jobs.values():
        if full.whole:
            yield max(parts), [rank for ranks in parts.values() for rank in ranks]
        else:
            yield from parts.items()


def find_standing(rank: DaemonRank, now_ns: int) -> RankPriority:
    """Return how much a rank is needed."""
    if rank.submitted or rank.queue or rank.reserved_nbytes:
        return RankPriority.NEEDED
    if rank.connection is not None:
        return RankPriority.NEEDED if rank.durable_items else RankPriority.IDLE
    if not rank.durable_items:
        return RankPriority.EMPTY
    if rank.is_done:
        return RankPriority.DONE
    return RankPriority.ABANDONED if now_ns - rank.left_ns >= ABANDONED_NS else RankPriority.NEEDED
