"""Who is here: the ranks of all jobs, who of them is connected, and how many there may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deepprof.service.rank import Rank
from deepprof.service.refusal import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Roster"]


@dataclass(slots=True)
class Roster:
    """The ranks that are in memory, by job and number; only the event loop changes it.

    Every change replaces a dictionary as a whole, so that other threads may read one that they have got hold of.
    """

    max_jobs: int
    max_ranks: int  # of one job
    max_total: int  # of all jobs
    jobs: dict[str, dict[int, Rank]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Rank]:
        return (rank for ranks in list(self.jobs.values()) for rank in list(ranks.values()))

    def find(self, job: str, rank: int) -> Rank | None:
        """Return a rank, None where it is not here."""
        return self.jobs.get(job, {}).get(rank)

    def check_room(self, job: str, rank: int) -> None:
        """Raise `RefusedError` where there is no room for a rank."""
        ranks = self.jobs.get(job)
        if ranks is None and len(self.jobs) >= self.max_jobs:
            text = f"{self.max_jobs} jobs are watched already; forget one or raise limits.jobs"
            raise RefusedError("RESOURCE_EXHAUSTED", text)
        if self.find(job, rank) is None and sum(map(len, self.jobs.values())) >= self.max_total:
            text = f"{self.max_total} ranks are watched already; forget a job or raise limits.ranks_total"
            raise RefusedError("RESOURCE_EXHAUSTED", text)
        if ranks is not None and rank not in ranks and len(ranks) >= self.max_ranks:
            raise RefusedError(
                "RESOURCE_EXHAUSTED", f"job {job!r} has {self.max_ranks} ranks already; raise limits.ranks"
            )

    def find_done(self) -> str | None:
        """Return the job that has ended longest ago, all of its ranks; None where there is none."""
        ended = [
            (max(rank.last_record_unix_ns for rank in ranks.values()), job)
            for job, ranks in self.jobs.items()
            if all(rank.is_done for rank in ranks.values())
        ]
        return min(ended)[1] if ended else None

    def put(self, rank: Rank) -> None:
        """Take in a rank, instead of a former one of its job and number."""
        job, number = rank.key
        self.jobs = {**self.jobs, job: {**self.jobs.get(job, {}), number: rank}}

    def remove(self, job: str, number: int | None = None) -> list[Rank]:
        """Let a job go, or one of its ranks; return what went."""
        gone = [rank for rank in self.jobs.get(job, {}).values() if number in (None, rank.hello.rank)]
        rest = {k: rank for k, rank in self.jobs.get(job, {}).items() if rank not in gone}
        others = {k: ranks for k, ranks in self.jobs.items() if k != job}
        self.jobs = {**others, job: rest} if rest else others
        return gone
