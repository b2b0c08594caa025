"""A daemon under load: from the client to the durable acknowledgement on one core, a soak, and kill -9 with a restart.

Client and daemon are processes of their own that share one core (Linux). The records are kernels and copies as a
collector on a GPU makes them, 2,000 kernels an iteration, without the host's side, and, in a second row, a trace with it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.kernels import kernels_and_copies

if TYPE_CHECKING:
    from collections.abc import Iterator

SOAK_M, SHORT_M, HOST_M = 26, 5, 1.2
GOAL_M = 1.0
JOB = "bench"
TICKS = os.sysconf("SC_CLK_TCK")
CLIENT = """
import sys
from deepprof.collectors.store import open_store
from deepprof.client.channel import find_door
from deepprof.client.replay import Replay, replay
trace = open_store(sys.argv[1]).read()
print("go", flush=True)
total = replay(find_door(sys.argv[2]), [trace], Replay("bench", repeat=int(sys.argv[3])))
print(total.records, total.durable, total.seconds, flush=True)
"""


@dataclass
class Process:
    """A daemon in a folder of its own."""

    folder: Path
    core: int | None
    popen: Any = None
    log: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> float:
        """Start it, and return after how many seconds it was ready."""
        began = time.monotonic()
        self.log.clear()
        command = [sys.executable, "-m", "deepprof", "serve", "--listen", f"unix:{self.folder}/d/s"]
        command += ["--metrics", "127.0.0.1:0", "--store", str(self.folder / "store"), "--log-format", "json"]
        command += ["--set", "journal.total_nbytes=4GiB"]
        self.popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: pin(self.core))
        threading.Thread(target=self.follow, args=(self.popen.stderr,), daemon=True).start()
        while self.event("ready") is None:
            assert self.popen.poll() is None, self.log
            time.sleep(0.005)
        return time.monotonic() - began

    def follow(self, lines: Any) -> None:
        with lines:
            for line in lines:
                self.log.append(json.loads(line))

    def event(self, name: str) -> dict[str, Any] | None:
        return next((line for line in list(self.log) if line.get("event") == name), None)

    def rss_mib(self) -> float:
        text = Path(f"/proc/{self.popen.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def mined(self) -> int:
        """Return how many records have come through all of it."""
        event = self.event("listening") or {}
        with urllib.request.urlopen(f"http://{event['metrics']}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("deepprof_records_accepted_total"))

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()


def pin(core: int | None) -> None:
    """Keep this process on one core."""
    if core is not None:
        os.sched_setaffinity(0, {core})


@contextmanager
def running(core: int | None) -> Iterator[Process]:
    folder = Path(tempfile.mkdtemp(prefix="dp-"))
    (folder / "d").mkdir(mode=0o700)
    process = Process(folder, core)
    try:
        process.start()
        yield process
    finally:
        process.kill()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Load:
    """What a sending took: `seconds` to the last acknowledgement, `mined_s` until all was mined."""

    records: int
    seconds: float
    mined_s: float
    daemon_cpu_s: float
    client_cpu_s: float
    rss_mib: tuple[float, ...]  # of the daemon, once for each million records acknowledged or so


def load(daemon: Process, store: Path, repeat: int, core: int | None) -> Load:
    """Send a store so often, and watch the daemon meanwhile."""
    command = [sys.executable, "-c", CLIENT, str(store), f"unix:{daemon.folder}/d/s", str(repeat)]
    before, usage = daemon.mined(), os.times()
    client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: pin(core))
    assert client.stdout is not None
    assert client.stdout.readline() == "go\n"
    began, cpu = time.monotonic(), daemon.cpu_s()
    samples: list[float] = []
    while client.poll() is None:
        samples.append(daemon.rss_mib())
        time.sleep(0.5)
    records, durable, seconds = client.stdout.read().split()
    assert records == durable
    while daemon.mined() - before < int(records):
        time.sleep(0.02)
    after = os.times()
    used = after.children_user + after.children_system - usage.children_user - usage.children_system
    return Load(
        int(records),
        float(seconds),
        time.monotonic() - began,
        daemon.cpu_s() - cpu,
        used,
        (*samples, daemon.rss_mib()),
    )


def recover(store: Path) -> tuple[float, float, int]:
    """Kill a daemon that is loaded; return how long an empty one and this one take to be ready, and what it mined."""
    with running(None) as daemon:
        empty = daemon_restart(daemon)
        command = [sys.executable, "-c", CLIENT, str(store), f"unix:{daemon.folder}/d/s", "3"]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None
        client.stdout.readline()
        while daemon.mined() < 1_500_000:
            time.sleep(0.02)
        loaded = daemon_restart(daemon)
        found = daemon.event("ready") or {}
        client.wait()
        return empty, loaded, int(found["records"])


def daemon_restart(daemon: Process) -> float:
    daemon.kill()
    return daemon.start()


def write_store(folder: Path, iterations: int) -> Path:
    """Write the trace that is sent to a store, so that reading it costs the client little."""
    from deepprof.collectors.store import replace_store, write_index
    from deepprof.collectors.store.rank import write_rank

    with replace_store(folder / "trace") as part:
        write_rank(kernels_and_copies(iterations, 2000), part / "rank=0")
        write_index(part, [0])
    return folder / "trace"


def run(console: Console, quick: bool) -> None:
    core = 0 if hasattr(os, "sched_setaffinity") else None
    table = Table("what", "figure", "goal", title="A daemon under load")
    with tempfile.TemporaryDirectory() as scratch:
        store = write_store(Path(scratch), 100 if quick else 500)
        repeats = (2, 3) if quick else (SHORT_M, SOAK_M)
        with running(core) as daemon:
            add_load(table, load(daemon, store, repeats[0], core))
        with running(None) as daemon:
            add_soak(table, load(daemon, store, repeats[1], None))
        if not quick:
            add_recovery(table, *recover(store))
    console.print(table)


def add_load(table: Table, found: Load) -> None:
    million = found.records / 1e6
    rate = million / found.seconds
    table.add_row("client → durable ack, both on one core", f"{rate:.2f} M records/s", f"≥ {GOAL_M:.0f} M")
    table.add_row("… until all of it is mined", f"{million / found.mined_s:.2f} M records/s", "")
    table.add_row("CPU of the daemon for a million records", f"{found.daemon_cpu_s / million:.2f} s", "")
    table.add_row("CPU of the client, its start included", f"{found.client_cpu_s / million:.2f} s", "")


def add_soak(table: Table, found: Load) -> None:
    million = found.records / 1e6
    first, *_ = found.rss_mib[max(1, round(len(found.rss_mib) / million)) :]
    table.add_row(f"soak of {million:.0f} M records, two cores", f"{million / found.seconds:.2f} M records/s", "")
    table.add_row("memory after the first million", f"{first:.0f} MiB", "")
    table.add_row("… largest after that", f"{max(found.rss_mib):.0f} MiB", "flat")
    table.add_row("… at the end", f"{found.rss_mib[-1]:.0f} MiB", "flat")


def add_recovery(table: Table, empty: float, loaded: float, records: int) -> None:
    table.add_row("start, empty store", f"{empty:.2f} s", "")
    table.add_row(f"start after kill -9, {records / 1e6:.2f} M records to be mined again", f"{loaded:.2f} s", "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    run(Console(width=110), parser.parse_args().quick)
