"""The senders of records, by the name of their token: what each one uses of the daemon, and what it may use."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from deepprof.live.service.config.sections import ShareSection
from deepprof.live.service.rank_eviction import LimitReached, name_most
from deepprof.live.service.refusal import RefusedError
from deepprof.live.wire.figures import SenderState, Share

if TYPE_CHECKING:
    from deepprof.live.service.clock import DaemonClock
    from deepprof.live.service.ranks import DaemonRanks

BURST_NS = 10**9  # that a sender may be ahead of its rate


class RecordRates:
    """Knows for every sender how far it is ahead of its rate; for the event loop only.

    A message is admitted while its sender is not more than a second ahead, whatever its size: in any time `t` a sender
    brings at most `rate * (t + 1 s)` records and one message per stream.
    """

    def __init__(self, clock: DaemonClock) -> None:
        self.clock = clock
        self.records, self.held_ns = Counter[str](), Counter[str]()  # since the start, by sender
        self._ahead: dict[str, tuple[int, int]] = {}  # records * 10**9 beyond the rate, and when that was so

    def count(self, sender: str, records: int, per_s: int) -> None:
        """Count records that a sender has brought; `per_s` is its rate, 0: any."""
        self.records[sender] += records
        if per_s:
            ahead = self._look(sender, per_s) + records * 10**9
            self._ahead[sender] = ahead, self.clock.monotonic_ns()
        else:
            self._ahead.pop(sender, None)

    def wait_ns(self, sender: str, per_s: int) -> int:
        """Return for how long a sender's next message has to wait, in ns, as far as is known now."""
        return max(0, -(-self._look(sender, per_s) // per_s) - BURST_NS) if per_s else 0

    def _look(self, sender: str, per_s: int) -> int:
        """Return how far a sender is ahead now, in records times 10**9, so that a new rate takes effect at once."""
        ahead, at_ns = self._ahead.get(sender, (0, 0))
        return max(0, ahead - (self.clock.monotonic_ns() - at_ns) * per_s)


UNLIMITED = ShareSection()
LOOK_NS = 10**9 // 2  # after which a delayed sender is checked again


class Senders:
    """Limits every sender to its share; all but `look` is for the event loop only.

    `share_of` returns the share of a name as it is now. The bytes kept of every sender are those measured last
    (`note_kept`).
    """

    def __init__(
        self, roster: DaemonRanks, clock: DaemonClock, share_of: Callable[[str], ShareSection] = lambda _: UNLIMITED
    ) -> None:
        self.roster, self.share_of = roster, share_of
        self.pace = RecordRates(clock)
        self._kept: Mapping[str, Counter[str]] = {}  # bytes by sender and job
        self._jobs: Mapping[str, tuple[str, int]] = {}  # by job: the first rank's sender, and bytes

    def check_job(self, sender: str, job: str) -> None:
        """Raise `RefusedError` where a sender may not write a job."""
        patterns = self.share_of(sender).jobs
        if not any(fnmatchcase(job, pattern) for pattern in patterns):
            text = f"{sender or 'this sender'} may write the jobs {', '.join(patterns)}, not {job[:128]!r}"
            raise RefusedError("PERMISSION_DENIED", text, "share.jobs")

    def find_full(self, sender: str, job: str, rank: int) -> LimitReached | None:
        """Return the limit on a sender's ranks if it leaves no space for another one."""
        most = self.share_of(sender).ranks
        known = self.roster.find(job, rank)
        if not most or (known is not None and known.owner == sender):
            return None
        ranks = [each for each in self.roster if each.owner == sender]
        if len(ranks) < most:
            return None
        return LimitReached("share.ranks", most, f"let jobs of {sender} end, or raise its limit", ranks, own=True)

    def check_kept(self, sender: str) -> None:
        """Raise `RefusedError` where more bytes are kept of a sender than its share allows."""
        most = self.share_of(sender).kept_nbytes
        if not most:
            return
        jobs = self._kept.get(sender, Counter())
        if (total := jobs.total()) > most:
            text = f"share.kept_nbytes allows {most:,} bytes, and {total:,} are kept of {sender} ({name_most(jobs)})"
            raise RefusedError("RESOURCE_EXHAUSTED", f"{text}; forget a job or raise the limit", "share.kept_nbytes")

    def kept_of(self, job: str) -> tuple[str, int]:
        """Return the sender of a job, which is that of its first rank, and how many bytes are kept of it."""
        return self._jobs.get(job, ("", 0))

    def note_kept(self, kept: Mapping[tuple[str, int], int], senders: Mapping[tuple[str, int], str]) -> None:
        """Note how many bytes are kept of every rank, by job and number, and its sender."""
        by_sender, jobs = defaultdict[str, Counter[str]](Counter), dict[str, tuple[str, int]]()
        for (job, rank), nbytes in sorted(kept.items()):
            sender = senders.get((job, rank), "")
            by_sender[sender][job] += nbytes
            first, before = jobs.get(job, (sender, 0))
            jobs[job] = first, before + nbytes
        self._kept, self._jobs = dict(by_sender), jobs

    async def keep_pace(self, sender: str, check: Callable[[], None]) -> None:
        """Wait until a sender may bring its next message; `check` may raise meanwhile."""
        while wait_ns := min(self.pace.wait_ns(sender, self.share_of(sender).records_per_s), LOOK_NS):
            await asyncio.sleep(wait_ns / 10**9)
            self.pace.held_ns[sender] += wait_ns
            check()

    def note_records(self, sender: str, records: int) -> None:
        """Count records that a sender has brought."""
        self.pace.count(sender, records, self.share_of(sender).records_per_s)

    def describe(self, sender: str, **figures: Any) -> SenderState:
        """Return a sender with these figures, and its limits."""
        limits = self.share_of(sender)
        share = Share(**{each.name: getattr(limits, each.name) for each in fields(Share)})
        return SenderState(sender, **figures, share=share)

    def look(self) -> tuple[SenderState, ...]:
        """Return every sender that has data here or has sent records since the start. Safe from any thread."""
        jobs, counts = defaultdict[str, set[str]](set), defaultdict[str, Counter[str]](Counter)
        for rank in self.roster:
            jobs[rank.owner].add(rank.hello.job)
            more = {"ranks": 1, "connected": int(rank.connection is not None), "waiting_nbytes": rank.waiting_nbytes}
            counts[rank.owner].update(more)
        for sender, kept in self._kept.items():
            jobs[sender].update(kept)
            counts[sender]["kept_nbytes"] = kept.total()
        paced, records = dict(self.pace.held_ns), dict(self.pace.records)
        return tuple(
            self.describe(
                name, **counts[name], jobs=len(jobs[name]), records=records.get(name, 0), paced_ns=paced.get(name, 0)
            )
            for name in sorted(jobs.keys() | records.keys())
        )
