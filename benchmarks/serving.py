"""A daemon under load: to the durable acknowledgement on one core, a soak, a thousand ranks, kill -9 with a restart.

Client and daemon are their own processes; for the first rows they share one core (Linux). The records are kernels
and copies as a collector on a GPU makes them, without the host's side: 2,000 kernels an iteration, 500 for the ranks
that are many.
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

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.fleet import Fleet, Waits
from benchmarks.kernels import kernels_and_copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOAK_M, SHORT_M = 26, 5
FLEET = Fleet(ranks=1000, pace=0.2, records=500, seconds=40)  # a batch of every rank every five seconds
SMALL_FLEET = Fleet(ranks=100, pace=1, records=500, seconds=3)
GOAL_M = 1.0
JOB = "bench"
TICKS = os.sysconf("SC_CLK_TCK")
CLIENT = """
import sys
from deepprof.collectors.store import open_store
from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.client.replay import TraceReplay, replay
trace = open_store(sys.argv[1]).read()
print("go", flush=True)
total = replay(find_endpoint(sys.argv[2]), [trace], TraceReplay("bench", repeat=int(sys.argv[3])))
print(total.records, total.durable, total.seconds, flush=True)
"""


@dataclass
class Process:
    """A daemon in its own folder."""

    folder: Path
    core: int | None
    popen: Any = None
    log: list[dict[str, Any]] = field(default_factory=list)
    settings: tuple[str, ...] = ()
    reader: threading.Thread | None = None

    def start(self) -> float:
        """Start it, and return after how many seconds it was ready."""
        began = time.monotonic()
        self.log.clear()
        command = [*pinned(self.core), sys.executable, "-m", "deepprof", "serve", "--listen", f"unix:{self.folder}/d/s"]
        command += ["--metrics", "127.0.0.1:0", "--store", str(self.folder / "store"), "--log-format", "json"]
        command += ["--set", "journal.total_nbytes=4GiB", *self.settings]
        self.popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.follow, args=(self.popen.stderr,), daemon=True)
        self.reader.start()
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

    def scrape(self) -> str:
        """Return what Prometheus gets."""
        event = self.event("listening") or {}
        with urllib.request.urlopen(f"http://{event['metrics']}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    def written_mib(self) -> float:
        """Return what it has had written to the disk."""
        text = Path(f"/proc/{self.popen.pid}/io").read_text()
        return int(text.split("\nwrite_bytes:")[1].split()[0]) / (1 << 20)

    def mined(self) -> int:
        """Return how many records have come through all of it."""
        lines = self.scrape().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("deepprof_records_accepted_total"))

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        if self.reader is not None:
            self.reader.join()


def pinned(core: int | None) -> list[str]:
    """Return what comes before a command to keep it on one core."""
    return [] if core is None else ["taskset", "-c", str(core)]


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
    rss_mib: tuple[float, ...]  # of the daemon, once for every million records acknowledged or so


def load(daemon: Process, store: Path, repeat: int, core: int | None) -> Load:
    """Send a store so often, and watch the daemon meanwhile."""
    command = [*pinned(core), sys.executable, "-c", CLIENT, str(store), f"unix:{daemon.folder}/d/s", str(repeat)]
    before, usage = daemon.mined(), os.times()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
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


@dataclass(frozen=True, slots=True)
class Looks:
    """What a fleet's sending looked like from outside, in seconds and MiB."""

    waits: Waits
    health_s: list[float]
    scrapes_s: list[float]
    cpu_s: float
    rss_mib: float
    written_mib: float


def follow_fleet(daemon: Process, fleet: Fleet) -> Looks:
    """Have a fleet send, and ask the daemon how it is meanwhile, five times a second."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    address, numbers = f"unix:{daemon.folder}/d/s", (fleet.ranks, fleet.pace, fleet.records, fleet.seconds)
    command = [sys.executable, "-m", "benchmarks.fleet", address, *map(str, numbers)]
    clients = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert clients.stdout is not None
    assert clients.stdout.readline() == "go\n"
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(clients.stdout.read() if clients.stdout else ""))
    reader.start()
    cpu, written = daemon.cpu_s(), daemon.written_mib()
    health, scrapes = list[float](), list[float]()
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while reader.is_alive():
            health.append(timed(lambda: stub.Check(health_pb2.HealthCheckRequest())))
            scrapes.append(timed(daemon.scrape))
            reader.join(0.2)
    waits = Waits(**json.loads(said[0]))
    return Looks(waits, health, scrapes, daemon.cpu_s() - cpu, daemon.rss_mib(), daemon.written_mib() - written)


def timed(what: Callable[[], object]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


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
    core = 0 if shutil.which("taskset") else None
    table = Table("what", "figure", "goal", title="A daemon under load")
    with tempfile.TemporaryDirectory() as scratch:
        store = write_store(Path(scratch), 100 if quick else 500)
        repeats = (2, 3) if quick else (SHORT_M, SOAK_M)
        with running(core) as daemon:
            add_load(table, load(daemon, store, repeats[0], core))
        with running(None) as daemon:
            add_soak(table, load(daemon, store, repeats[1], None))
        with running(None) as daemon:
            fleet = SMALL_FLEET if quick else FLEET
            add_fleet(table, fleet, follow_fleet(daemon, fleet))
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
    later = found.rss_mib[min(len(found.rss_mib) - 1, max(1, round(len(found.rss_mib) / million))) :]
    table.add_row(f"soak of {million:.0f} M records, two cores", f"{million / found.seconds:.2f} M records/s", "")
    figures = f"{min(later):.0f} … {np.median(later):.0f} … {max(later):.0f} MiB"
    table.add_row("memory after the first million: least … median … most", figures, "flat")
    half = len(later) // 2
    drift = np.median(later[half:]) - np.median(later[: half or 1])
    table.add_row("… the second half's median against the first's", f"{drift:+.0f} MiB", "0")


def add_fleet(table: Table, fleet: Fleet, found: Looks) -> None:
    waits, million = found.waits, found.waits.records / 1e6
    rate = fleet.ranks * fleet.pace
    title = f"{fleet.ranks} ranks, {rate:.0f} batches/s of {fleet.records}: wait for the acknowledgement"
    table.add_row(title, quantiles(waits.acks_s), "")
    table.add_row("… how late the clients themselves were", quantiles(waits.late_s), "")
    table.add_row("… health RPC meanwhile", quantiles(found.health_s), "")
    table.add_row("… /metrics meanwhile", quantiles(found.scrapes_s), "")
    table.add_row("… CPU of the daemon for a batch", f"{found.cpu_s / len(waits.acks_s) * 1e3:.1f} ms", "")
    table.add_row("… CPU of the daemon for a million records", f"{found.cpu_s / million:.1f} s", "")
    table.add_row("… memory of the daemon", f"{found.rss_mib:.0f} MiB", "")
    table.add_row("… written to the disk, journal and states", f"{found.written_mib:.0f} MiB", "")


def quantiles(values_s: list[float]) -> str:
    """Return the median, the 99th percentile and the largest."""
    half, most, all_ = np.quantile(values_s, [0.5, 0.99, 1.0]) * 1e3
    return f"p50 {half:.0f} ms, p99 {most:.0f} ms, most {all_:.0f} ms"


def add_recovery(table: Table, empty: float, loaded: float, records: int) -> None:
    table.add_row("start, empty store", f"{empty:.2f} s", "")
    table.add_row(f"start after kill -9, {records / 1e6:.2f} M records to be mined again", f"{loaded:.2f} s", "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    run(Console(width=110), parser.parse_args().quick)
