"""Check whether a loop still explains what runs: another loop may share half of its iteration."""

from __future__ import annotations

from dataclasses import dataclass

THIN = 0.5  # of the symbols: when a loop matches less, another one may be there
PATIENT, MOST_PATIENT = 4, 32  # waits that it may match so little before that is examined, at first and at most


@dataclass(slots=True)
class MatchWatch:
    """What a loop matched from one check to the next.

    Attributes:
        at: the position of the last check.
        matched: symbols matched up to there.
        since: where the stretch begins in which little is matched; equal to `at` when enough is matched.
        patience: length of that stretch, in waits, at which it is examined.
    """

    at: int = 0
    matched: int = 0
    since: int = 0
    patience: int = PATIENT

    def start(self, at: int, matched: int) -> None:
        """Start again."""
        self.at, self.matched, self.since, self.patience = at, matched, at, PATIENT

    def look(self, at: int, matched: int, period: int) -> bool:
        """Return whether little was matched since the last check; the last period, not known yet, counts as matched."""
        is_thin = matched - self.matched + period < THIN * (at - self.at)
        self.since = self.since if is_thin else at
        self.at, self.matched = at, matched
        return is_thin

    def is_due(self, wait: int) -> bool:
        """Return whether the stretch is long enough to be examined; if so, the next one must be longer."""
        due = self.at - self.since >= self.patience * wait
        if due:
            self.patience = min(2 * self.patience, MOST_PATIENT)
        return due
