"""When a window is due, and the configuration that requests it.

Windows of all processes begin together, at whole multiples of the time between them on the Unix clock: ranks can be
compared, also across nodes whose agents never communicate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from deepprof.collectors.errors import UsageError

POLL_S = 5.0  # how often a process asks
WARMUP_S = 2  # Kineto records and discards for so long, until the driver's first allocations are over
# A start is emitted so early that Kineto can warm up, and so late that each process asks once: a process that exits
# with a window ahead waits for that window first, and PyTorch 2.13 was seen to crash in such an exit.
LEAST_AHEAD_S = WARMUP_S + 2.0
MOST_AHEAD_S = LEAST_AHEAD_S + 1.2 * POLL_S
LEAST_EVERY_S, MOST_EVERY_S = 1.0, 86_400.0
LEAST_WINDOW_MS, MOST_WINDOW_MS = 50, 60_000


@dataclass(frozen=True, slots=True)
class WindowSchedule:
    """A window of `window_ms` every `every_s`."""

    every_s: float = 60.0
    window_ms: int = 2000

    @property
    def together(self) -> bool:
        """Whether there is time to give all processes the same start."""
        return self.every_s >= 2 * MOST_AHEAD_S

    def next_start_s(self, now_s: float, last_s: float | None) -> float | None:
        """Return the Unix time of a window that may be emitted at `now_s` after one at `last_s`, else None."""
        if not self.together:
            start_s = now_s + LEAST_AHEAD_S
            return start_s if last_s is None or start_s - last_s >= self.every_s else None
        start_s = (math.floor((now_s + LEAST_AHEAD_S) / self.every_s) + 1) * self.every_s
        due = start_s - now_s <= MOST_AHEAD_S and (last_s is None or start_s > last_s + self.every_s / 2)
        return start_s if due else None


def make_config(path: Path, start_s: float, schedule: WindowSchedule) -> str:
    """Return Kineto's configuration: a trace from the Unix time `start_s` on, into `path` with the pid added."""
    lines = (
        f"ACTIVITIES_LOG_FILE={path}",
        f"PROFILE_START_TIME={round(start_s * 1000)}",
        f"ACTIVITIES_DURATION_MSECS={schedule.window_ms}",
        f"ACTIVITIES_WARMUP_PERIOD_SECS={WARMUP_S}",
    )
    return "".join(f"{line}\n" for line in lines)


def parse_schedule(text: str) -> WindowSchedule:
    """Return the schedule for a text `EVERY_S:WINDOW_MS` or `EVERY_S`; raises `UsageError`."""
    every, _, window = text.partition(":")
    try:
        schedule = WindowSchedule(float(every), int(window)) if window else WindowSchedule(float(every))
    except ValueError as error:
        raise UsageError(f"{text!r} is no EVERY_S:WINDOW_MS such as 60:2000") from error
    if not LEAST_EVERY_S <= schedule.every_s <= MOST_EVERY_S:
        raise UsageError(f"{text!r}: a window each {every} s is none of 1 to 86,400 s")
    if not LEAST_WINDOW_MS <= schedule.window_ms <= min(MOST_WINDOW_MS, schedule.every_s * 1000):
        raise UsageError(f"{text!r}: a window takes 50 ms to 60 s, and no longer than the time between two")
    return schedule
