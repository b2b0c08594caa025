"""A tool on a running job: fed with what a daemon receives, in the process of the command."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deepprof.commands.daemons import open_endpoint
from deepprof.commands.inputs import analyze_selected
from deepprof.commands.progress import progress
from deepprof.commands.signals import SecondInterrupt, noting_interrupt

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from deepprof.collectors.trace import Trace
    from deepprof.live.client.daemon import Daemon, JobRecords
    from deepprof.render.tool_report import ToolRecords
    from deepprof.tools import Report, Tool, ToolRun

INTERVAL_S = 1.0  # between two searches for new records
WAIT_S = 0.1  # between two checks for Ctrl-C
PATIENCE_S = 60.0  # with a daemon that is away
SETTLE_S = 30.0  # for the iterations of a job that has ended
FORGOTTEN = "the daemon no longer knows the job: the report is of what was seen until then"
CUT = "interrupted while the tool was at work: the last frame may be only partly in its figures"


def run_live(tool: Tool, args: argparse.Namespace) -> tuple[Report, ToolRecords]:
    """Return what a tool reports of a running job, and what it was given.

    It ends with the job, at the time of `--for` or on Ctrl-C; a second Ctrl-C ends the command.
    """
    endpoint = open_endpoint(args.daemon, args)
    from deepprof.live.client.daemon import Daemon
    from deepprof.tools import ToolRun

    run = ToolRun(tool)
    with Daemon(endpoint) as daemon, progress("following (Ctrl-C: report)"):
        following = _Following(daemon.follow(args.job), run)
        following.follow(args.duration)
        return _conclude(following, daemon, args), following.describe()


def _conclude(following: _Following, daemon: Daemon, args: argparse.Namespace) -> Report:
    """Return the report, with what the daemon found in the job if it has that still."""
    from deepprof.live.client.errors import DaemonError

    run = following.run
    try:
        if run.wants_iterations and following.records.ended and not _is_settled(daemon, args.job):
            following.notes.append("the iterations are those found while the job ran: the daemon still examines it")
        return run.conclude(
            lambda: analyze_selected(daemon.window(args.job), args), lambda: daemon.iterations(args.job)
        )
    except DaemonError as error:
        if not (error.absent or error.passing):
            raise
        following.notes.append(f"the tool got no iterations and no analysis: {error}")
        return run.report()


class _Following:
    """The records of a job on their way to a tool."""

    def __init__(self, records: JobRecords, run: ToolRun) -> None:
        self.records, self.run = records, run
        self.kept = 0
        self.notes: list[str] = []

    def follow(self, duration_ns: int | None) -> None:
        """Feed the tool until the job has ended, for so long, or until Ctrl-C."""
        until = None if duration_ns is None else time.monotonic() + duration_ns / 1e9
        with noting_interrupt() as interrupted:
            try:
                self.feed_until(lambda: interrupted() or (until is not None and time.monotonic() >= until))
            except SecondInterrupt:
                raise
            except KeyboardInterrupt:  # polars raises it by itself while it works
                self.notes.append(CUT)
        for trace in self.records.rest():
            self.feed(trace)

    def feed_until(self, done: Callable[[], bool]) -> None:
        """Feed the tool until the job has ended or `done` reports it; looks are `INTERVAL_S` apart."""
        from deepprof.live.client.errors import DaemonError

        seen_s = time.monotonic()
        while not done() and not self.records.ended:
            try:
                new = self.feed_new(done)
                seen_s = time.monotonic()
            except DaemonError as error:
                if not self.records.ranks or not (error.passing or error.absent):
                    raise
                if error.absent:
                    self.notes.append(FORGOTTEN)
                    return
                if time.monotonic() - seen_s > PATIENCE_S:
                    self.notes.append(f"the job was not followed to its end: {error}")
                    return
                new = False
            self.wait(0 if new else INTERVAL_S, done)

    def feed_new(self, done: Callable[[], bool]) -> bool:
        """Feed the tool with what has arrived, and return whether something has."""
        before = self.kept
        for trace in self.records.read():
            self.feed(trace)
            if done():
                break
        return self.kept > before

    def feed(self, trace: Trace) -> None:
        """Give the tool records of one rank."""
        self.run.feed(trace)
        self.kept += trace.accounting.kept

    def wait(self, seconds: float, done: Callable[[], bool]) -> None:
        """Wait, unless the job has ended or `done` reports it."""
        until = time.monotonic() + seconds
        while not self.records.ended and not done() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, WAIT_S))

    def describe(self) -> ToolRecords:
        """Return what the tool was given."""
        from deepprof.render.tool_report import ToolRecords

        return ToolRecords(
            ranks=sorted(self.records.ranks),
            read=self.kept + self.records.dropped.total(),
            kept=self.kept,
            dropped=dict(self.records.dropped),
            missed=self.records.missed,
            notes=[*self.records.notes(), *self.notes],
        )


def _is_settled(daemon: Daemon, job: str) -> bool:
    """Wait a while for the daemon's analysis of a job that has ended, whose iterations replace those found live."""
    until = time.monotonic() + SETTLE_S
    while not (settled := all(rank.settled for rank in daemon.ranks(job))) and time.monotonic() < until:
        time.sleep(WAIT_S)
    return settled
