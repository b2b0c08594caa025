"""The ranks of all jobs that are in memory, and how many there may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deepprof.live.service.rank_eviction import LimitReached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deepprof.live.service.daemon_rank import DaemonRank


@dataclass(slots=True)
class DaemonRanks:
    """The ranks that are in memory, by job and number; only the event loop changes them.

    Every change replaces a dictionary as a whole, so that other threads may go on reading one that they have.
    """

    max_jobs: int
    max_ranks: int  # of one job
    max_total: int  # of all jobs
    jobs: dict[str, dict[int, DaemonRank]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[DaemonRank]:
        return (rank for ranks in list(self.jobs.values()) for rank in list(ranks.values()))

    def find(self, job: str, rank: int) -> DaemonRank | None:
        """Return a rank, None where it is not in memory."""
        return self.jobs.get(job, {}).get(rank)

    def find_full(self, job: str, rank: int) -> LimitReached | None:
        """Return the first limit that leaves no space for a rank, None where there is space."""
        if self.find(job, rank) is not None:
            return None
        ranks = self.jobs.get(job, {})
        if not ranks and len(self.jobs) >= self.max_jobs:
            return LimitReached("limits.jobs", self.max_jobs, "forget one or raise the limit", list(self), whole=True)
        if sum(map(len, self.jobs.values())) >= self.max_total:
            return LimitReached("limits.ranks_total", self.max_total, "forget a job or raise the limit", list(self))
        if len(ranks) >= self.max_ranks:
            advice = f"raise the limit if job {job[:128]!r} has more"
            return LimitReached("limits.ranks", self.max_ranks, advice, list(ranks.values()))
        return None

    def put(self, rank: DaemonRank) -> None:
        """Add a rank, in place of a former one of its job and number."""
        job, number = rank.key
        self.jobs = {**self.jobs, job: {**self.jobs.get(job, {}), number: rank}}

    def remove(self, job: str, number: int | None = None) -> list[DaemonRank]:
        """Remove a job, or one of its ranks; return the ranks removed."""
        gone = [rank for rank in self.jobs.get(job, {}).values() if number in (None, rank.hello.rank)]
        rest = {k: rank for k, rank in self.jobs.get(job, {}).items() if rank not in gone}
        others = {k: ranks for k, ranks in self.jobs.items() if k != job}
        self.jobs = {**others, job: rest} if rest else others
        return gone
