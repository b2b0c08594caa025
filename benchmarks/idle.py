"""What a daemon keeps of its memory once many ranks have sent and are quiet: `python -m benchmarks.idle [--ranks N …]`.

Each row is a daemon of its own: its resident memory before anybody came, its highest while ranks sent as fast as it
took it, and after half a minute in which nobody did. The ranks stay known, each with a loop that is followed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.fleet import Fleet
from benchmarks.serving import Process, running

FLEETS = (100, 400)
IDLE_S = 30.0


@dataclass(frozen=True, slots=True)
class Kept:
    """Resident memory of a daemon, in MiB."""

    ranks: int
    begin_mib: float
    highest_mib: float
    idle_mib: float

    @property
    def rank_mib(self) -> float:
        """What each rank takes of what is kept."""
        return (self.idle_mib - self.begin_mib) / self.ranks


def measure(ranks: int, idle_s: float) -> Kept:
    """Return what a daemon keeps of so many ranks."""
    with running(None) as daemon:
        begin_mib = daemon.rss_mib()
        highest_mib = send(daemon, Fleet(ranks, pace=1.0, records=4000, seconds=8))
        time.sleep(idle_s)
        return Kept(ranks, begin_mib, highest_mib, daemon.rss_mib())


def send(daemon: Process, fleet: Fleet) -> float:
    """Send a fleet, and return the highest memory until all of it was mined."""
    words = [str(value) for value in (fleet.ranks, fleet.pace, fleet.records, fleet.seconds)]
    command = [sys.executable, "-m", "benchmarks.fleet", f"unix:{daemon.folder}/d/s", *words]
    highest = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        while client.poll() is None:
            highest = max(highest, daemon.rss_mib())
            time.sleep(0.1)
        assert client.returncode == 0
    while "deepprof_pipeline_queue_bytes 0" not in daemon.scrape():
        highest = max(highest, daemon.rss_mib())
        time.sleep(0.5)
    return highest


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=FLEETS)
    parser.add_argument("--idle", type=float, default=IDLE_S, metavar="SECONDS")
    args = parser.parse_args()
    table = Table("ranks", "before", "highest", f"after {args.idle:g} s idle", "a rank", title="daemon's memory, MiB")
    for ranks in args.ranks:
        kept = measure(ranks, args.idle)
        figures = (kept.begin_mib, kept.highest_mib, kept.idle_mib)
        table.add_row(str(ranks), *(f"{figure:.0f}" for figure in figures), f"{kept.rank_mib:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
