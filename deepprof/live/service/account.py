"""The outcome of every record of a rank, counted where it is decided: at ingest, in the journal, in the session."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from deepprof.live.wire.figures import Account, KindAccount
from deepprof.live.wire.kinds import UNKNOWN_KIND

MOST_REASONS, OTHER = 64, "other"  # collectors name the reasons, and the exporter has a series for each


class Accounts:
    """Counts of one rank, safe for the threads that share it.

    A record is counted twice: by `arrive` when it comes in, and again under its outcome. Between the two, `in_flight`
    counts it.
    """

    def __init__(self, start: Account | None = None) -> None:
        known = start or Account()
        self._lock = threading.Lock()
        self._received, self._in_flight = known.received, 0
        self._accepted, self._invalid, self._duplicate = known.accepted, known.invalid, known.duplicate
        self._dropped = Counter(known.dropped)
        self._gaps, self._lost = known.gaps, known.lost
        self._kinds = Counter({each.kind: each.accepted for each in known.kinds})
        self._dropped_kinds = Counter(
            {(each.kind, reason): count for each in known.kinds for reason, count in each.dropped.items()}
        )
        self._missing = Counter(known.missing)

    @property
    def in_flight(self) -> int:
        """Records received whose outcome is still open."""
        with self._lock:
            return self._in_flight

    def arrive(self, count: int) -> None:
        """Count records that arrived in; their outcome is still open."""
        with self._lock:
            self._received += count
            self._in_flight += count

    def refuse(self, count: int) -> None:
        """Count records of a message that was refused."""
        with self._lock:
            self._in_flight -= count
            self._invalid += count

    def repeat(self, count: int) -> None:
        """Count records that had been made durable before."""
        with self._lock:
            self._in_flight -= count
            self._duplicate += count

    def drop(self, count: int, reason: str) -> None:
        """Count records that could not be made durable."""
        with self._lock:
            self._in_flight -= count
            self._dropped[reason] += count

    def take(self, kinds: Mapping[str, int], dropped: Mapping[str, Mapping[str, int]]) -> None:
        """Count the records that a session took, by kind, and those of them that it dropped, by reason and kind."""
        count, lost = sum(kinds.values()), {reason: sum(of.values()) for reason, of in dropped.items()}
        with self._lock:
            self._in_flight -= count
            self._accepted += count - sum(lost.values())
            self._dropped.update(lost)
            self._kinds.update(kinds)
            for reason, of in dropped.items():
                self._kinds.subtract(of)
                self._dropped_kinds.update({(kind, reason): number for kind, number in of.items()})

    def gap(self, lost: int) -> None:
        """Count a gap of `lost` records, 0 for an unknown number."""
        with self._lock:
            self._gaps += 1
            self._lost += lost

    def miss(self, missing: Mapping[str, int]) -> None:
        """Count records that the collector reports as not sent, by reason."""
        with self._lock:
            for reason, count in missing.items():
                known = reason in self._missing or len(self._missing) < MOST_REASONS
                self._missing[reason if known else OTHER] += count

    @property
    def has_gaps(self) -> bool:
        """Whether records were lost before they arrived in, or were damaged later."""
        with self._lock:
            return self._gaps > 0

    def view(self) -> Account:
        """Return the account of the records whose outcome is known."""
        with self._lock:
            return Account(
                received=self._received - self._in_flight,
                accepted=self._accepted,
                invalid=self._invalid,
                duplicate=self._duplicate,
                dropped=MappingProxyType({k: v for k, v in self._dropped.items() if v}),
                gaps=self._gaps,
                lost=self._lost,
                kinds=self._view_kinds(),
                missing=MappingProxyType({k: v for k, v in self._missing.items() if v}),
            )

    def _view_kinds(self) -> tuple[KindAccount, ...]:
        """Return the account by kind; records taken by a release that did not count kinds have an unknown kind."""
        accepted = self._kinds + Counter({UNKNOWN_KIND: self._accepted - self._kinds.total()})
        dropped: dict[str, dict[str, int]] = {}
        for (kind, reason), count in self._dropped_kinds.items():
            dropped.setdefault(kind, {})[reason] = count
        return tuple(
            KindAccount(kind, accepted[kind], MappingProxyType(dropped.get(kind, {})))
            for kind in sorted(accepted.keys() | dropped.keys())
        )
