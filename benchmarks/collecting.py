"""Collecting: from C into the agent and to the daemon's durable acknowledgement, next to a bare socket; what is lost.

A job loads the real library as a driver would, and a made-up CUPTI gives it kernels at a fixed pace; job, agent and
daemon are their own processes. For each path the pace is searched at which nothing is lost, between unthrottled and
none; a loss is a row with its reasons. A bare socket carries the same bytes in packets of the same size to a reader in
Python that does nothing else: what the kernel allows. What collecting costs a job on a GPU `benchmarks.gpu_overhead`
measures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.serving import TICKS, Process, running
from deepprof.collectors.live.packets import EVENT, HEAD, RECORDS_HEAD
from deepprof.live.agent.asking import NotAnsweredError, ask
from tests.collectors.live.building import Built, build

if TYPE_CHECKING:
    from deepprof.live.agent import answers

JOB = "bench"
MEMORY = Path("/dev/shm")  # noqa: S108  # a folder of our own in it
GOALS = "≥ 3 M", "≥ 1 M"
FIRST, NEAR = 0.8, 1.1  # of the unthrottled rate, the first pace tried; a search ends where its bounds are so close
STEADY = 0.9  # of the highest rate without a loss: the long run's pace
LEAST_RECORDS = 100_000
UNREACHED = 100_000_000  # a second: no job makes as many
PACKET_NBYTES = 192 << 10  # of a full packet of the library (FULL in inject/queue.c)
PACKET_RECORDS = (PACKET_NBYTES - HEAD.itemsize - RECORDS_HEAD.itemsize) // EVENT.itemsize
NOWHERE = "unix:/nowhere/deepprof.sock"
WRITER = """
import socket, sys
with socket.socket(fileno=int(sys.argv[1])) as door:
    packet = bytes(int(sys.argv[2]))
    for _ in range(int(sys.argv[3])):
        door.sendall(packet)
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: records unthrottled, seconds of every paced run and how many, records of the long run."""

    unthrottled: int = 10_000_000
    run_s: float = 3.0
    runs: int = 7
    soak: int = 25_000_000
    bare: int = 30_000_000


QUICK = Sizes(unthrottled=300_000, run_s=0.2, runs=2, soak=500_000, bare=1_000_000)


@dataclass
class Agent:
    """An agent in its own folder, which collects whatever it costs."""

    folder: Path
    to: str
    popen: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "agent.sock"

    def start(self) -> Agent:
        command = [sys.executable, "-m", "deepprof", "agent", "--socket", str(self.socket), "--to", self.to]
        command += ["--spool", str(self.folder / "spool"), "--spool-limit", "4GiB", "--overhead", "1"]
        with (self.folder / "agent.log").open("wb") as log:
            self.popen = subprocess.Popen(command, stderr=log)
        while not self.answers():
            assert self.popen.poll() is None, (self.folder / "agent.log").read_text()
            time.sleep(0.01)
        return self

    def answers(self) -> bool:
        try:
            ask(self.socket)
        except NotAnsweredError:
            return False
        return True

    def look(self) -> answers.ProcessStatus | None:
        """Return how the only process does, None where no one has: a busy agent may not answer in time."""
        with suppress(NotAnsweredError):
            found = ask(self.socket).processes
            return found[0] if found else None
        return None

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    def kill(self) -> None:
        if self.popen is not None:
            self.popen.kill()
            self.popen.wait()


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mib(pid: int) -> float:
    """Return a process's resident memory, 0 once it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return int(text.split("VmRSS:")[1].split()[0]) / 1024 if "VmRSS:" in text else 0.0


@contextmanager
def collecting(to: str, *, in_memory: bool = False) -> Iterator[Agent]:
    """Give an agent that sends to `to`; what waits is on a disk in memory if there is one and it is wanted."""
    memory = MEMORY if in_memory and MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="dp-", dir=memory))
    agent = Agent(folder, to)
    try:
        yield agent.start()
    finally:
        agent.kill()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Load:
    """What a job is to make: records, and how many a second, 0 for as fast as it can."""

    records: int
    pace: int = 0


def start_job(built: Built, agent: Agent, load: Load) -> subprocess.Popen[str]:
    """Start a job that launches kernels at a pace."""
    told = {
        "JOB_LIBRARY": str(built.library),
        "DEEPPROF_CUPTI": str(built.mock),
        "DEEPPROF_SOCKET": str(agent.socket),
        "DEEPPROF_JOB": JOB,
        "DEEPPROF_RANK": "0",
        "MOCK_PATIENT": "1",
    }
    command = [str(built.job), "burst", str(load.records), str(load.pace or UNREACHED)]
    return subprocess.Popen(command, env={**os.environ, **told}, stdout=subprocess.PIPE, text=True)


@dataclass
class Passage:
    """What became of a job's records: seconds from the first to the last, losses, costs, memory in MiB.

    `made` of them the device gave in `made_s` seconds, `driver_dropped` it had no place for, `numbered` the agent has
    of, `gaps` of these were lost on the way, by reason. `arrived` is whether the last one did.
    """

    load: Load
    seconds: float = 0.0
    made: int = 0
    made_s: float = 0.0
    driver_dropped: int = 0
    numbered: int = 0
    gaps: dict[str, int] = field(default_factory=dict)
    arrived: bool = True
    agent_cpu_s: float = 0.0
    agent_mib: list[float] = field(default_factory=list)
    job_mib: list[float] = field(default_factory=list)

    @property
    def kept(self) -> int:
        """Records that the agent took."""
        return self.numbered - sum(self.gaps.values())

    @property
    def rate_m(self) -> float:
        """Million records a second, those that were kept."""
        return self.kept / self.seconds / 1e6

    @property
    def made_rate_m(self) -> float:
        """Million records a second that the device gave."""
        return self.made / max(self.made_s, 1e-3) / 1e6

    @property
    def losses(self) -> dict[str, int]:
        """The records that did not arrive by reason; together with `kept` they are all that were requested."""
        made = self.made + self.driver_dropped
        counts = {
            "made while collecting was off": self.load.records - made,
            **self.gaps,
            "not heard before the job's end": made - self.numbered,
        }
        return {reason: count for reason, count in counts.items() if count}

    @property
    def lost(self) -> int:
        return sum(self.losses.values())

    def describe_losses(self) -> str:
        """Return the share of lost records by reason."""
        shares = [f"{count / self.load.records:.1%} {reason}" for reason, count in self.losses.items()]
        late = "" if self.arrived else "; not all of the rest arrived in time"
        return (", ".join(shares) or "nothing") + late


def follow(built: Built, agent: Agent, load: Load, *, durable: bool) -> Passage:
    """Run a job to its end, and watch until the agent has its records, or the daemon (`durable`), or time is out."""
    found, began, cpu = Passage(load), 0.0, cpu_s(agent.pid)
    job = start_job(built, agent, load)
    patience_s = time.monotonic() + 60 + load.records / 100_000
    while True:
        process = agent.look()
        now = time.monotonic()
        began = began or (now if process is not None and process.records else 0.0)
        if process is not None and process.ended and (not durable or process.durable >= process.next):
            break
        if now > patience_s or job.poll():
            job.kill()
            found.arrived = False
            break
        found.agent_mib.append(rss_mib(agent.pid))
        found.job_mib.append(rss_mib(job.pid))
        time.sleep(0.02)
    found.seconds, found.agent_cpu_s = max(now - (began or now), 1e-3), cpu_s(agent.pid) - cpu
    fill(found, process, job)
    return found


def fill(found: Passage, process: answers.ProcessStatus | None, job: subprocess.Popen[str]) -> None:
    """Add what agent and job counted. Raises `RuntimeError` for a job that failed: that is no loss but a bug."""
    if process is not None:
        found.numbered, found.gaps = process.records, process.books.reasons
    said, _ = job.communicate()
    if job.returncode > 0:
        raise RuntimeError(f"the job ended with {job.returncode}")
    if said:
        made, dropped, seconds = said.split()
        found.made, found.driver_dropped, found.made_s = int(made), int(dropped), float(seconds)


def measure_agent(built: Built, load: Load) -> Passage:
    """From C to the agent, which has them in order in its spool; no daemon is there, and 1.4 GB are no disk's test."""
    with collecting(NOWHERE, in_memory=True) as agent:
        return follow(built, agent, load, durable=False)


def measure_daemon(built: Built, load: Load) -> Passage:
    """From C to the daemon's durable acknowledgement."""
    with running(None) as daemon, collecting(f"unix:{daemon.folder}/d/s") as agent:
        return follow(built, agent, load, durable=True)


def measure_soak(built: Built, load: Load) -> tuple[Passage, dict[str, int]]:
    """Do as `measure_daemon`, and return what the daemon counted: `accepted`, and what it left out by reason."""
    with running(None) as daemon, collecting(f"unix:{daemon.folder}/d/s") as agent:
        found = follow(built, agent, load, durable=True)
        return found, wait_for_daemon(daemon, found.kept)


def wait_for_daemon(daemon: Process, records: int) -> dict[str, int]:
    """Return how the daemon counted `records`, once it has examined all of them, or after a while."""
    until_s = time.monotonic() + 60 + records / 300_000
    while sum((counts := count_mined(daemon)).values()) < records and time.monotonic() < until_s:
        time.sleep(0.2)
    return counts


def count_mined(daemon: Process) -> dict[str, int]:
    """Return how many records the daemon has accepted, and how many it left out by reason."""
    counts = {"accepted": daemon.mined()}
    for line in daemon.scrape().splitlines():
        if line.startswith("deepprof_records_dropped_total"):
            reason = line.partition('reason="')[2].partition('"')[0]
            counts[reason] = counts.get(reason, 0) + int(float(line.split()[-1]))
    return {reason: count for reason, count in counts.items() if count or reason == "accepted"}


def search(measure: Callable[[int], Passage], unthrottled: Passage, most_runs: int) -> list[Passage]:
    """Return runs at paces between none and the unthrottled rate: each halves where the highest lossless one can be."""
    if not unthrottled.lost:
        return []
    low, high = 0.0, unthrottled.made_rate_m * 1e6
    pace, tried = FIRST * high, list[Passage]()
    while len(tried) < most_runs and (not low or high / low > NEAR):
        tried.append(measure(int(pace)))
        if tried[-1].lost:
            high = pace
        else:
            low = pace
        pace = (low + high) / 2
    return tried


def find_best(tried: list[Passage]) -> Passage | None:
    """Return the fastest run that lost nothing."""
    return max((each for each in tried if not each.lost), key=lambda each: each.rate_m, default=None)


def measure_bare_socket(records: int) -> tuple[float, float]:
    """Send records through a unix socket of usual size to a reader that only reads.

    Returns million records a second, and the reader's seconds of processor time for a million.
    """
    ours, theirs = socket.socketpair()
    count, buffer = -(-records // PACKET_RECORDS), bytearray(1 << 20)
    command = [sys.executable, "-c", WRITER, str(theirs.fileno()), str(PACKET_NBYTES), str(count)]
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()]):
        theirs.close()
        got = ours.recv_into(buffer)
        began, cpu = time.perf_counter(), time.process_time()
        while nbytes := ours.recv_into(buffer):
            got += nbytes
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
    read_m = got / PACKET_NBYTES * PACKET_RECORDS / 1e6
    return read_m / seconds, used / read_m


def eighths(samples: list[float]) -> str:
    """Return the median of every eighth of the time."""
    parts = np.array_split([each for each in samples if each], 8)
    return " ".join(f"{np.median(part):.0f}" for part in parts if len(part))


def add_path(table: Table, what: str, measure: Callable[[Load], Passage], sizes: Sizes, goal: str) -> Passage:
    """Measure a bare socket and a path, add their rows, and return the best run; one without a loss, if any."""
    bare_m, bare_s = measure_bare_socket(sizes.bare)
    table.add_row(f"a bare socket, packets of {PACKET_NBYTES >> 10} KiB", f"{bare_m:.2f} M records/s", "")
    table.add_row("… CPU of its reader for a million", f"{bare_s:.3f} s", "")
    unthrottled = measure(Load(sizes.unthrottled))
    tried = search(lambda pace: measure(paced(pace, sizes.run_s)), unthrottled, sizes.runs)
    best = find_best([unthrottled, *tried])
    table.add_row(f"{what}, highest rate without a loss", describe_rate(best, bare_m), goal)
    if best is not None:
        table.add_row("… CPU of the agent for a million", f"{best.agent_cpu_s / best.kept * 1e6:.2f} s", "")
    table.add_row("… paces tried, M records/s, and what was lost", describe_tries(tried), "")
    table.add_row(f"… unthrottled, {unthrottled.made_rate_m:.2f} M records/s made", "", "")
    table.add_row("… lost of those", unthrottled.describe_losses(), "")
    return best or min(tried, key=lambda each: each.lost / each.load.records, default=unthrottled)


def paced(pace: int, seconds: float) -> Load:
    """Return a load that lasts about so long."""
    return Load(max(LEAST_RECORDS, int(pace * seconds)), pace)


def describe_rate(best: Passage | None, bare_m: float) -> str:
    """Return a rate, and its share of what the kernel allows."""
    if best is None:
        return "none: something was lost at every pace tried"
    return f"{best.rate_m:.2f} M records/s, {best.rate_m / bare_m:.1%} of a bare socket"


def describe_tries(tried: list[Passage]) -> str:
    """Return the paces of a search in the order tried."""
    found = [f"{each.load.pace / 1e6:.2f}: {each.lost / each.load.records:.1%}" for each in tried]
    return "; ".join(found) or "none: nothing is lost unthrottled"


def add_soak(table: Table, built: Built, load: Load) -> None:
    """Add the rows of a long run at a steady pace."""
    found, counts = measure_soak(built, load)
    what = f"{load.records / 1e6:g} M records at {load.pace / 1e6:.2f} M/s, to the durable acknowledgement"
    table.add_row(what, f"{found.rate_m:.2f} M records/s", GOALS[1])
    table.add_row("… lost", found.describe_losses(), "nothing")
    said = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
    table.add_row(f"… counted by the daemon, of {found.kept:,}", said, "accepted")
    for who, samples in (("agent", found.agent_mib), ("job, the library in it", found.job_mib)):
        table.add_row(f"… memory of the {who}, MiB, medians of eighths", eighths(samples), "flat in the end")


def run(console: Console, quick: bool, soak: int | None = None) -> None:
    """Measure both paths and a long run, and print one table."""
    built, sizes = build("plain"), QUICK if quick else Sizes()
    table = Table("what", "figure", "goal", title=f"Collecting, a made-up CUPTI, {os.cpu_count()} cores for everybody")
    add_path(table, "C → agent, in order in its spool", partial(measure_agent, built), sizes, GOALS[0])
    best = add_path(table, "C → durable acknowledgement", partial(measure_daemon, built), sizes, GOALS[1])
    add_soak(table, built, Load(soak or sizes.soak, int(STEADY * best.rate_m * 1e6)))
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--soak", type=int, metavar="M", help="million records of the long run to the daemon")
    given = parser.parse_args()
    run(Console(width=110), given.quick, given.soak and given.soak * 10**6)
