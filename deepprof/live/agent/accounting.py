"""Accounts of all records that a process has made, by kind, as `run`, `doctor` and the agent show them.

For every kind made = kept by the daemon + missing, by reason + waiting, here or on the way. Kinds are those of packets
(`RECORD_KINDS`); records that were lost before they were read are of unknown kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from deepprof.collectors.live.packets import CONTEXT_SUM, EVENT, MEMORY_CHANGE, RECORD_KINDS
from deepprof.collectors.trace import ACTIVITIES
from deepprof.live.agent.answers import RecordAccount
from deepprof.live.agent.reordering import Rows
from deepprof.live.wire.kinds import UNKNOWN_KIND

if TYPE_CHECKING:
    from deepprof.live.agent.rank_spool import RankSpool

Counts = Counter[str]
"""Records by kind."""
Books = dict[str, Counts]
"""Records by reason and kind."""
Made = npt.NDArray[Any]
"""Records of each of `RECORD_KINDS`, as packets report them."""

RANGE_KIND, MEMORY_KIND = "range", "memory"
CONTEXT_KIND, CONTEXT_TABLE = "context", "context_sums"  # as packets and as the daemon call it
RESTARTED, UNEXPLAINED = "agent-restarted", "unexplained"
# Reasons of missing records whose kinds were never read; the daemon's counts determine these kinds in the end.
WITHOUT_KINDS = (RESTARTED, "not-kept", "damaged", "refused")


def count_rows(rows: Rows) -> Counts:
    """Return how many of the packed records are of every kind."""
    if rows.dtype == CONTEXT_SUM:
        return +Counter({CONTEXT_KIND: len(rows)})
    if rows.dtype != EVENT:
        return +Counter({MEMORY_KIND if rows.dtype == MEMORY_CHANGE else RANGE_KIND: len(rows)})
    numbers = np.bincount(rows["activity"], minlength=len(ACTIVITIES)).tolist()
    known = dict(zip(ACTIVITIES, numbers[: len(ACTIVITIES)], strict=True))
    return +Counter(known | {UNKNOWN_KIND: sum(numbers[len(ACTIVITIES) :])})


@dataclass(slots=True, eq=False)
class ProcessAccount:
    """The account of one process's records in this agent.

    `counted` are all records up to the number that is expected next. Of them `lost` never arrived and the others
    `came`. Of those that arrived `left_out` could not be used, and `given` are with the rank. `ahead` were lost after
    the last packet, as a tick reports, for `ahead_reason`. `elsewhere` are in the account of the rank's former name.
    `is_resumed`: an earlier agent had some of the lost records, and the daemon may have them."""

    counted: Counts = field(default_factory=Counter)
    lost: Books = field(default_factory=dict)
    came: Counts = field(default_factory=Counter)
    left_out: Books = field(default_factory=dict)
    given: Counts = field(default_factory=Counter)
    ahead: Counts = field(default_factory=Counter)
    ahead_reason: str = ""
    elsewhere: Counts = field(default_factory=Counter)
    is_resumed: bool = False

    def come(self, kinds: Counts) -> None:
        """Count records that arrived."""
        self.counted.update(kinds)
        self.came.update(kinds)
        self.ahead = Counter()

    def skip(self, count: int, made: Made, reason: str) -> None:
        """Count records that never arrived; `made` is the process's count of all records up to here."""
        missing = self._find_missing(count, made)
        self.counted.update(missing)
        _add(self.lost, reason, missing)
        self.ahead = Counter()

    def look_ahead(self, count: int, made: Made, reason: str) -> None:
        """Note that a tick reports `count` missing records after those that arrived."""
        self.ahead, self.ahead_reason = self._find_missing(count, made), reason

    def _find_missing(self, count: int, made: Made) -> Counts:
        """Return the kinds of `count` missing records, as far as `made` can be right; the others are unknown."""
        told = zip(RECORD_KINDS, made.tolist(), strict=True)
        known = +Counter({kind: number - self.counted[kind] for kind, number in told})
        known = known if known.total() <= count else Counter()
        return known + Counter({UNKNOWN_KIND: count - known.total()})

    def leave_out(self, reason: str, kinds: Counts) -> None:
        """Count records that arrived and cannot be used."""
        _add(self.left_out, reason, kinds)

    def give(self, kinds: Counts) -> None:
        """Count records that were given to the rank."""
        self.given.update(kinds)

    def abandon(self, reason: str) -> None:
        """Count the records held here as lost, because no rank takes them."""
        _add(self.lost, reason, self.held)
        self.came.subtract(self.held)

    def resume(self, before: int, *, elsewhere: bool) -> None:
        """Note that `before` of the lost records had come to an earlier agent, or under another name.

        `elsewhere`: the account of that name has them. Their kinds are unknown here.
        """
        skipped, reason = self.all_lost, next(reversed(self.lost), RESTARTED)
        lost = +Counter({UNKNOWN_KIND: skipped.total() - before})
        self.lost = {reason if elsewhere else RESTARTED: lost} if lost else {}
        self.is_resumed = not elsewhere
        if elsewhere:
            self.elsewhere = skipped
            self.elsewhere.subtract(lost)

    @property
    def all_lost(self) -> Counts:
        """Records that never arrived."""
        return sum(self.lost.values(), Counter[str]())

    @property
    def held(self) -> Counts:
        """Records that arrived and wait here."""
        held = Counter(self.came)
        for gone in (self.given, *self.left_out.values()):
            held.subtract(gone)
        return +held

    @property
    def made(self) -> Counts:
        """All records that this account has to explain."""
        made = self.counted + self.ahead
        made.subtract(self.elsewhere)
        return made

    @property
    def missing(self) -> Books:
        """Records that were not given to the rank and never will be."""
        books: Books = {}
        for reason, kinds in (*self.lost.items(), *self.left_out.items(), (self.ahead_reason, self.ahead)):
            _add(books, reason, kinds)
        return books


def _add(books: Books, reason: str, kinds: Mapping[str, int]) -> None:
    if any(kinds.values()):
        books.setdefault(reason, Counter()).update(kinds)


def describe_account(account: ProcessAccount, rank: RankSpool | None, *, ended: bool, stand_in: bool) -> RecordAccount:
    """Return what became of a process's records, with the daemon's account of those that it has.

    `ended`: nothing more comes. `stand_in`: the daemon may count its ranges as kernels.
    """
    made, missing = account.made, account.missing
    if rank is None:
        return write(made, Counter(), missing)
    for reason, kinds in rank.missing.items():
        _add(missing, reason, _as_made(kinds, stand_in=stand_in))
    told = rank.uplink.account
    if told is None:
        left = max(0, total(made) - sum(map(total, missing.values())))
        waiting = total(account.held) + max(0, rank.intake.next - rank.durable)
        return write(made, None, missing, waiting=min(left, waiting))
    kept = _as_made({each.kind: each.accepted for each in told.kinds}, stand_in=stand_in)
    for each in told.kinds:
        for reason, count in each.dropped.items():
            _add(missing, f"daemon-{reason}", _as_made({each.kind: count}, stand_in=stand_in))
    rest = Counter(made)
    for gone in (kept, *missing.values()):
        rest.subtract(gone)
    is_over = ended and not account.held and rank.intake.next <= rank.durable <= rank.uplink.counted
    if is_over or not total(rest):  # nothing waits: then only the kinds may not add up
        rest = _explain(rest, missing, is_resumed=account.is_resumed)
    waiting = max(0, total(rest))
    return write(made, kept, missing, waiting, min(waiting, max(0, rank.durable - rank.uplink.counted)))


def _explain(rest: Counts, missing: Books, *, is_resumed: bool) -> Counts:
    """Count what is neither kept nor missing under the reason that had no kinds; returns what is left after that."""
    reasons = [reason for reason in WITHOUT_KINDS if missing.get(reason, Counter())[UNKNOWN_KIND]]
    reasons = reasons or ([RESTARTED] if is_resumed else [])
    if any(rest.values()) and len(reasons) == 1:
        _add(missing, reasons[0], rest)
        return Counter()
    if total(rest) > 0:
        _add(missing, UNEXPLAINED, +rest)
        return Counter()
    return rest


def _as_made(kinds: Mapping[str, int], *, stand_in: bool) -> Counts:
    """Return the daemon's kinds of records as the process's: other than device events, memory and sums: ranges."""
    found: Counts = Counter()
    for kind, count in kinds.items():
        if kind == CONTEXT_TABLE:
            found[CONTEXT_KIND] += count
            continue
        is_event = kind in ACTIVITIES and not stand_in
        own = MEMORY_KIND if kind == "memory_events" else RANGE_KIND
        found[kind if is_event or kind == UNKNOWN_KIND else own] += count
    return found


def total(kinds: Mapping[str, int]) -> int:
    """Return the number of records of all kinds."""
    return sum(kinds.values())


def write(made: Counts, kept: Counts | None, missing: Books, waiting: int = 0, uncounted: int = 0) -> RecordAccount:
    """Return an account in the form that is sent."""
    return RecordAccount(
        made=_plain(made),
        kept=None if kept is None else _plain(kept),
        missing={reason: _plain(kinds) for reason, kinds in missing.items() if any(kinds.values())},
        waiting=waiting,
        uncounted=uncounted,
    )


def _plain(kinds: Mapping[str, int]) -> dict[str, int]:
    """Return the kinds with at least one record."""
    return {kind: count for kind, count in kinds.items() if count}
