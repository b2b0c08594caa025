"""A wall clock that jumps, as one that is set by hand or by NTP after a long time."""

from __future__ import annotations

from benchmarks.chaos.ground import Ground

__all__ = ["move_clock"]

HOUR_NS = 3600 * 10**9
JUMPS_NS = (HOUR_NS, -HOUR_NS, 24 * HOUR_NS, -24 * HOUR_NS, 60 * 10**9, -60 * 10**9, 400 * 24 * HOUR_NS)
RESTARTS = 4  # every so often the daemon is killed while its clock is wrong


def move_clock(ground: Ground) -> str:
    """Set the daemon's wall clock forward and back, at last right; now and then it is killed in the wrong time."""
    kills = 0
    while ground.again():
        ground.plan.move_clock(ground.chance.choice(JUMPS_NS))
        ground.pause(0.5)
        if ground.times % RESTARTS == 0:
            kills += 1
            ground.daemon.kill()
            ground.daemon.start()
    ground.plan.move_clock(0)
    return f"{ground.times} jumps of the wall clock by a minute to 400 days, {kills} x kill -9 meanwhile"
