"""Maps a process's clock to the Unix clock while both run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
MOST_ANCHORS = 64
ANCHOR_NS = 10**9  # between anchors: drift is slow, and more frequent readings add only noise
SLEW_RATIO = 1e-3  # if two clocks drift apart faster, one was set; NTP itself never slews by more than half of that
NOISE_NS = 50_000  # of one reading, on a busy machine
STEP_NS = 50_000_000


@dataclass(slots=True)
class ClockFollower:
    """Maps times of one clock to Unix time: piecewise linear, never backward.

    When the Unix clock is set ahead the map jumps, and `tick` returns True. When it is set back the map keeps the
    former time (`behind_ns` is how far it is then ahead of Unix), because records must not run backward.
    """

    base_local_ns: int | None = None
    base_offset_ns: int = 0
    local: list[int] = field(default_factory=list)  # of the anchors, from `base_local_ns`
    drift: list[int] = field(default_factory=list)  # of the offset, from `base_offset_ns`
    behind_ns: int = 0
    steps: int = 0

    def tick(self, local_ns: int, unix_ns: int) -> bool:
        """Take both clocks read at one moment; returns whether the Unix clock was set ahead since the last reading."""
        if self.base_local_ns is None:
            self.base_local_ns, self.base_offset_ns = local_ns, unix_ns - local_ns
        local = local_ns - self.base_local_ns
        drift = unix_ns - local_ns - self.base_offset_ns + self.behind_ns
        if not self.local:
            self.local, self.drift = [local], [drift]
            return False
        passed, moved = local - self.local[-1], drift - self.drift[-1]
        if passed <= 0:
            return False
        if abs(moved) > STEP_NS + SLEW_RATIO * passed:
            return self._step(local, moved)
        if passed >= ANCHOR_NS:
            most = int(SLEW_RATIO * passed) + NOISE_NS
            self._anchor(local, self.drift[-1] + max(-most, min(most, moved)))
        return False

    def _step(self, local: int, moved: int) -> bool:
        self.steps += 1
        if moved < 0:
            self.behind_ns -= moved
            return False
        ahead = min(moved, self.behind_ns)  # first make up for what it was set back before
        self.behind_ns -= ahead
        if moved - ahead <= STEP_NS:
            return False
        self.local, self.drift = [local], [self.drift[-1] + moved - ahead]
        return True

    def _anchor(self, local: int, drift: int) -> None:
        self.local.append(local)
        self.drift.append(drift)
        del self.local[:-MOST_ANCHORS], self.drift[:-MOST_ANCHORS]

    @property
    def is_set(self) -> bool:
        """Whether a tick has come."""
        return bool(self.local)

    def to_unix(self, times_ns: Int64s) -> Int64s:
        """Return times as Unix nanoseconds; they stay in order."""
        if self.base_local_ns is None:
            raise ValueError("no tick has come")
        moved = np.interp((times_ns - self.base_local_ns).astype(np.float64), self.local, self.drift)
        return times_ns + (self.base_offset_ns + np.rint(moved).astype(np.int64))

    def one(self, time_ns: int) -> int:
        """Return one time as Unix nanoseconds."""
        return int(self.to_unix(np.array([time_ns], np.int64))[0])

    def to_local(self, time_ns: int) -> int:
        """Return the time of this clock at a Unix time; where the map jumps, a time before the jump."""
        guess = time_ns - self.base_offset_ns
        return guess - (self.one(guess) - time_ns)
