"""Every scenario, in the order of the table."""

from __future__ import annotations

from benchmarks.chaos.beside import HELD_S, fall_silent, overload, with_hostile
from benchmarks.chaos.clock import move_clock
from benchmarks.chaos.disk import bad_reads, bad_renames, failing_disk, full_history, killed_when
from benchmarks.chaos.fleet import Size
from benchmarks.chaos.hostile import ATTACKS
from benchmarks.chaos.kills import kill_daemon, kill_senders, pause_daemon, stop_daemon
from benchmarks.chaos.trial import Scenario

__all__ = ["SCENARIOS"]

SMALL = ("limits.jobs=32", "limits.streams=64")  # so that hostile ones use up what there is within seconds
TIGHT = ("limits.queue_nbytes=16MiB", "limits.rank_queue_nbytes=1MiB")
LOAD = Size(senders=50, ranks=4, pace=0.5, records=100, window_nbytes=256 << 10)
BESIDE = Size(pace=8.0, records=50)  # twice as many waits to take a percentile of

SCENARIOS = (
    Scenario("daemon killed", kill_daemon),
    Scenario("daemon stopped", stop_daemon),
    Scenario("daemon paused", pause_daemon),
    Scenario("senders killed", kill_senders),
    Scenario("disk full", failing_disk("ENOSPC")),
    Scenario("history's disk full", full_history),
    Scenario("killed when full", killed_when("ENOSPC", "full")),
    Scenario("disk read-only", failing_disk("EROFS")),
    Scenario("killed when read-only", killed_when("EROFS", "read-only")),
    Scenario("EIO on write", failing_disk("EIO on write")),
    Scenario("EIO on fsync", failing_disk("EIO on fsync")),
    Scenario("EIO on read", bad_reads),
    Scenario("EIO on rename", bad_renames),
    Scenario("clock jumps", move_clock),
    Scenario("links fall silent", fall_silent, policy={"silence_s": 2.0}, proxied=True),
    *(Scenario(name, with_hostile(name), BESIDE, SMALL, quiet=0.0, weight=2.0) for name in ATTACKS),
    Scenario("more load than is taken", overload(HELD_S), LOAD, TIGHT, {"silence_s": 8.0}, weight=2.0),
)
