"""Collecting: records from C into the agent, to the daemon's durable acknowledgement, and over a long time.

A job loads the real library as a driver would, and a made-up CUPTI gives it kernels at a fixed pace; job, agent and
daemon are processes of their own. What collecting costs a job on a GPU `benchmarks.gpu_overhead` measures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.serving import TICKS, Process, running
from deepprof.agent.asking import NotAnsweredError, ask
from tests.collectors.live.building import Built, build

if TYPE_CHECKING:
    from deepprof.agent import answers

TO_AGENT, TO_DAEMON = 3_300_000, 1_150_000  # records/s that the job makes
GOALS = "≥ 3 M", "≥ 1 M"
SOAK, QUICK = 25_000_000, 500_000
JOB = "bench"
MEMORY = Path("/dev/shm")  # noqa: S108  # a folder of our own in it


@dataclass
class Agent:
    """An agent in a folder of its own, which collects whatever it costs."""

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

    def look(self) -> answers.Process | None:
        """Return how the only process does."""
        found = ask(self.socket).processes
        return found[0] if found else None

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
    """Give an agent that sends to `to`; what waits lies on a disk in memory if there is one and it is wanted."""
    memory = MEMORY if in_memory and MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="dp-", dir=memory))
    agent = Agent(folder, to)
    try:
        yield agent.start()
    finally:
        agent.kill()
        shutil.rmtree(folder, ignore_errors=True)


def start_job(built: Built, agent: Agent, records: int, pace: int) -> subprocess.Popen[bytes]:
    """Start a job that launches kernels at a pace."""
    told = {
        "JOB_LIBRARY": str(built.library),
        "DEEPPROF_CUPTI": str(built.mock),
        "DEEPPROF_SOCKET": str(agent.socket),
        "DEEPPROF_JOB": JOB,
        "DEEPPROF_RANK": "0",
        "MOCK_PATIENT": "1",
    }
    command = [str(built.job), "burst", str(records), str(pace)]
    return subprocess.Popen(command, env={**os.environ, **told}, stdout=subprocess.DEVNULL)


@dataclass
class Found:
    """What a job's records went through: seconds from the first to the last, losses, costs, memory in MiB."""

    records: int
    seconds: float = 0.0
    lost: int = 0
    agent_cpu_s: float = 0.0
    agent_mib: list[float] = field(default_factory=list)
    job_mib: list[float] = field(default_factory=list)

    @property
    def rate_m(self) -> float:
        """Million records a second."""
        return self.records / self.seconds / 1e6


def follow(built: Built, agent: Agent, records: int, pace: int, *, durable: bool) -> Found:
    """Run a job to its end, and watch until the agent has its records, or the daemon (`durable`)."""
    found, began, cpu = Found(records), 0.0, cpu_s(agent.pid)
    job = start_job(built, agent, records, pace)
    while True:
        process = agent.look()
        now = time.monotonic()
        began = began or (now if process is not None and process.records else 0.0)
        if process is not None and process.ended and (not durable or process.durable >= process.next):
            break
        found.agent_mib.append(rss_mib(agent.pid))
        found.job_mib.append(rss_mib(job.pid))
        time.sleep(0.02)
    found.seconds, found.lost, found.agent_cpu_s = now - began, process.lost, cpu_s(agent.pid) - cpu
    assert job.wait() == 0
    assert process.records == records, (process.records, records)
    return found


def measure_agent(built: Built, records: int) -> Found:
    """From C to the agent, which has them in order in its spool; no daemon is there, and 1.4 GB are no disk's test."""
    with collecting("unix:/nowhere/deepprof.sock", in_memory=True) as agent:
        return follow(built, agent, records, TO_AGENT, durable=False)


def measure_daemon(built: Built, records: int) -> tuple[Found, Process]:
    """From C to the daemon's durable acknowledgement."""
    with running(None) as daemon, collecting(f"unix:{daemon.folder}/d/s") as agent:
        return follow(built, agent, records, TO_DAEMON, durable=True), daemon


def eighths(samples: list[float]) -> str:
    """Return the median of each eighth of the time."""
    parts = np.array_split([each for each in samples if each], 8)
    return " ".join(f"{np.median(part):.0f}" for part in parts if len(part))


def run(console: Console, quick: bool, soak: int = SOAK) -> None:
    built = build("plain")
    table = Table("what", "figure", "goal", title="Collecting, a made-up CUPTI, two cores")
    found = measure_agent(built, QUICK if quick else 20_000_000)
    add(table, "C → agent, in order in its spool", found, GOALS[0])
    found, _ = measure_daemon(built, QUICK if quick else soak)
    add(table, "C → durable acknowledgement", found, GOALS[1])
    for who, samples in (("agent", found.agent_mib), ("job, the library in it", found.job_mib)):
        table.add_row(f"… memory of the {who}, MiB, medians of eighths", eighths(samples), "flat in the end")
    console.print(table)


def add(table: Table, what: str, found: Found, goal: str) -> None:
    table.add_row(f"{what}, {found.records / 1e6:g} M records", f"{found.rate_m:.2f} M records/s", goal)
    table.add_row("… lost", f"{found.lost:,}", "0")
    table.add_row("… CPU of the agent for a million", f"{found.agent_cpu_s / found.records * 1e6:.2f} s", "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--soak", type=int, metavar="M", default=SOAK // 10**6, help="million records to the daemon")
    given = parser.parse_args()
    run(Console(width=110), given.quick, given.soak * 10**6)
