"""Every scenario, in the order of the table."""

from __future__ import annotations

from benchmarks.chaos.disk import bad_reads, bad_renames, failing_disk, full_history
from benchmarks.chaos.kills import kill_daemon, kill_senders, pause_daemon, stop_daemon
from benchmarks.chaos.trial import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS = (
    Scenario("daemon killed", kill_daemon),
    Scenario("daemon stopped", stop_daemon),
    Scenario("daemon paused", pause_daemon),
    Scenario("senders killed", kill_senders),
    Scenario("disk full", failing_disk("ENOSPC")),
    Scenario("history's disk full", full_history),
    Scenario("disk read-only", failing_disk("EROFS")),
    Scenario("EIO on write", failing_disk("EIO on write")),
    Scenario("EIO on fsync", failing_disk("EIO on fsync")),
    Scenario("EIO on read", bad_reads),
    Scenario("EIO on rename", bad_renames),
)
