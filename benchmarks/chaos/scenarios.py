"""Every scenario, in the order of the table."""

from __future__ import annotations

from benchmarks.chaos.kills import kill_daemon, kill_senders, pause_daemon, stop_daemon
from benchmarks.chaos.trial import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS = (
    Scenario("daemon killed", kill_daemon),
    Scenario("daemon stopped", stop_daemon),
    Scenario("daemon paused", pause_daemon),
    Scenario("senders killed", kill_senders),
)
