"""The positions of a stream at which the online miner decides something, whatever the chunks are."""

from __future__ import annotations

from dataclasses import dataclass

NEVER = 2**62
"""Later than any position."""

FIRST, EARLY = 64, 8
"""Parts of the window: the first attempt, and the end of the early ones, after which three iterations are enough."""
LONGEST_WAIT = 16
"""Windows between two attempts at most."""


@dataclass(slots=True)
class DecisionSchedule:
    """The next position of every kind of decision; positions count symbols from the start of the stream.

    Attributes:
        window: symbols that offline mining searches first; the last review but one mines this many.
        start: where the mined section begins.
        attempt: position of the next attempt to mine, while there is no loop.
        review: position at which a larger window is mined next, while there is a loop.
        watch: position of the next check whether the loop is lost, or back.
        size: symbols that the next review mines.
    """

    window: int
    start: int = 0
    attempt: int = NEVER
    review: int = NEVER
    watch: int = NEVER
    size: int = NEVER

    @property
    def due(self) -> int:
        """The next position at which anything is decided."""
        return min(self.attempt, self.review, self.watch)

    def is_early(self, at: int) -> bool:
        """Return whether so few symbols were seen that a loop is accepted only with many iterations."""
        return at - self.start < self.window // EARLY

    def plan_attempt(self, at: int) -> None:
        """Plan the next attempt after `at`: at doubling sizes of the section, later after a part of its size more."""
        elapsed, size = at - self.start, self.window // FIRST
        if self.is_early(at):
            while size <= elapsed:
                size *= 2
            self.attempt = self.start + size
        else:
            part = 4 if elapsed < 2 * self.window else 2
            self.attempt = at + min(elapsed // part, LONGEST_WAIT * self.window)

    def begin_reviews(self, at: int, *, done: bool = False) -> None:
        """Plan reviews of the section at doubling sizes, the last one of two windows; none when they are `done`."""
        self.size = NEVER if done else self.window // EARLY
        self.go_on(at)

    def next_review(self) -> None:
        """Plan the review after the one that is due."""
        self.size *= 2
        self.go_on(self.review)

    def restart(self, at: int) -> None:
        """Begin a new section, and plan to review as much of it as was planned next."""
        self.start = at
        if self.review != NEVER:
            self.go_on(at)

    def go_on(self, at: int) -> None:
        """Plan the first review after `at`."""
        while self.start + self.size <= at:
            self.size *= 2
        self.review = self.start + self.size if self.size <= 2 * self.window else NEVER
