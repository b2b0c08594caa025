"""How much is collected of a process: everything, complete windows, or nothing, so that collecting stays cheap.

A pure state machine: every second it needs the cost of collecting and whether records were lost, and returns whether to
collect. Records are never sampled one by one, which would destroy their sequence: windows are whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

SPOOL_FULL = "spool-full"  # a reason
FULL_WINDOW_S = 10.0  # over which a full effort is judged: shorter peaks, such as a start, are tolerated
OVERFLOWS = 3  # seconds with losses, of the last ten, after which windows begin
LONGEST_PAUSE_S = 120.0
REST_S = 300.0  # after which a process that is off is tried again
CALM_S = 60.0  # of windows so cheap that a full effort would be within half of the budget


class Effort(IntEnum):
    """What is collected."""

    OFF = 0
    DUTY = 1
    FULL = 2


@dataclass(frozen=True, slots=True)
class Pacing:
    """The limits. `overhead_ratio` is what collecting may use of one core on average; windows last `window_s`."""

    overhead_ratio: float = 0.05
    window_s: float = 2.0
    pause_s: float = 8.0


@dataclass(frozen=True, slots=True)
class CostSample:
    """One second of a process: `cpu_s` of collecting in `wall_s`; whether records were lost, or the spool is full."""

    wall_s: float
    cpu_s: float
    overflowed: bool = False
    spool_full: bool = False


@dataclass(frozen=True, slots=True)
class _EffortChange:
    """The effort from now on, and its reason, as a word."""

    effort: Effort
    reason: str
    at_s: float


@dataclass(slots=True)
class Pacer:
    """Decides for one process; `now_s` never falls. `changes` are the latest 32, the initial effort not among them."""

    pacing: Pacing
    effort: Effort = Effort.FULL
    reason: str = "begin"
    since_s: float = 0.0
    pause_s: float = 0.0
    is_collecting: bool = True
    turn_s: float = 0.0  # when the present window or pause began
    seconds: list[CostSample] = field(default_factory=list)  # the latest seconds of collecting
    calm_since_s: float | None = None
    changes: list[_EffortChange] = field(default_factory=list)
    changed: int = 0

    @property
    def duty_ratio(self) -> float:
        """The share of the time that is collected."""
        if self.effort is not Effort.DUTY:
            return float(self.effort is Effort.FULL)
        return self.pacing.window_s / (self.pacing.window_s + self.pause_s)

    @property
    def overhead_ratio(self) -> float:
        """What collecting costs of one core while it is on, over the latest ten seconds of it."""
        wall_s = sum(sample.wall_s for sample in self.seconds)
        return sum(sample.cpu_s for sample in self.seconds) / wall_s if wall_s > 0 else 0.0

    def hear(self, now_s: float, sample: CostSample) -> bool:
        """Take the sample of the last second, and return whether to collect in the next one."""
        if self.is_collecting:
            self.seconds.append(sample)
            while sum(each.wall_s for each in self.seconds[1:]) >= FULL_WINDOW_S:
                del self.seconds[0]
        if self.effort is Effort.FULL:
            self._judge_full(now_s, sample)
        elif self.effort is Effort.DUTY:
            self._judge_windows(now_s, sample)
        elif now_s - self.since_s >= REST_S and not sample.spool_full:
            self._go(now_s, Effort.DUTY, "tried-again")
        return self.is_collecting

    def _judge_full(self, now_s: float, sample: CostSample) -> None:
        if sample.spool_full:
            self._go(now_s, Effort.DUTY, SPOOL_FULL)
        elif sum(each.overflowed for each in self.seconds) >= OVERFLOWS:
            self._go(now_s, Effort.DUTY, "buffer-full")
        elif self._has_seen_enough() and self.overhead_ratio > self.pacing.overhead_ratio:
            self._go(now_s, Effort.DUTY, "overhead")

    def _has_seen_enough(self) -> bool:
        return sum(sample.wall_s for sample in self.seconds) >= FULL_WINDOW_S - 1

    def _judge_windows(self, now_s: float, sample: CostSample) -> None:
        if self.is_collecting and now_s - self.turn_s >= self.pacing.window_s:
            self.is_collecting, self.turn_s = False, now_s
            self._judge_one(now_s, sample)
        elif not self.is_collecting and now_s - self.turn_s >= self.pause_s:
            self.is_collecting, self.turn_s = True, now_s
            self.seconds.clear()

    def _judge_one(self, now_s: float, sample: CostSample) -> None:
        """Decide after a window: a longer pause, off, or back to full effort."""
        dear = self.overhead_ratio * self.duty_ratio > self.pacing.overhead_ratio
        if dear or sample.spool_full:
            self.calm_since_s = None
            self.pause_s *= 2
            if self.pause_s > LONGEST_PAUSE_S:
                self._go(now_s, Effort.OFF, SPOOL_FULL if sample.spool_full else "overhead")
            return
        cheap = self.overhead_ratio <= self.pacing.overhead_ratio / 2
        if not cheap or any(each.overflowed for each in self.seconds):
            self.calm_since_s = None
        elif self.calm_since_s is None:
            self.calm_since_s = now_s
        elif now_s - self.calm_since_s >= CALM_S:
            self._go(now_s, Effort.FULL, "calm")

    def _go(self, now_s: float, effort: Effort, reason: str) -> None:
        self.effort, self.reason, self.since_s, self.turn_s = effort, reason, now_s, now_s
        self.is_collecting = effort is not Effort.OFF
        self.pause_s, self.calm_since_s = self.pacing.pause_s, None
        self.seconds.clear()
        self.changed += 1
        self.changes = [*self.changes, _EffortChange(effort, reason, now_s)][-32:]
