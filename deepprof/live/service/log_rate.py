"""A limit on repeated log events: the first ones of a minute are written, the others are counted."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

BURST, WINDOW_S, MAX_LOGGED_EVENTS = 10, 60.0, 1024


@dataclass(slots=True)
class _RateWindow:
    """One event's current minute."""

    began_s: float
    seen: int = 0

    @property
    def suppressed(self) -> int:
        """How many events were left out."""
        return max(0, self.seen - BURST)


class LogRateLimiter:
    """Decides which of repeated events are written: ten a minute each. Not for several threads at a time.

    `clock` returns seconds and never goes back. At most 1,024 different events are known at a time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._windows: OrderedDict[str, _RateWindow] = OrderedDict()  # by their begin
        self._unsaid: dict[str, int] = {}

    def admit(self, key: str, level: int) -> int | None:
        """Return how many were left out since `key` was last written, or None where it is to be left out now.

        Debug messages are never left out.
        """
        if level <= logging.DEBUG:
            return 0
        now, window = self.clock(), self._windows.get(key)
        if window is None or now - window.began_s >= WINDOW_S:
            return self._begin(key, now)
        window.seen += 1
        return None if window.suppressed else 0

    def expired(self) -> dict[str, int]:
        """Return, once per event, how many were left out where its minute is over and it has not come again."""
        now = self.clock()
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if now - window.began_s < WINDOW_S:
                break
            self._forget(key)
        return self._take_unsaid()

    def drain(self) -> dict[str, int]:
        """Return, once per event, how many were left out, for all events."""
        for key in list(self._windows):
            self._forget(key)
        return self._take_unsaid()

    def _begin(self, key: str, now: float) -> int:
        former = self._windows.pop(key, None)
        if len(self._windows) >= MAX_LOGGED_EVENTS:
            self._forget(next(iter(self._windows)))
        self._windows[key] = _RateWindow(now, 1)
        return former.suppressed if former else 0

    def _forget(self, key: str) -> None:
        suppressed = self._windows.pop(key).suppressed
        if suppressed:
            self._unsaid[key] = self._unsaid.get(key, 0) + suppressed

    def _take_unsaid(self) -> dict[str, int]:
        unsaid, self._unsaid = self._unsaid, {}
        return unsaid
