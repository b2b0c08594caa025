"""Recorded jobs replayed as GPU jobs: a mock of CUPTI, the library in the job, an agent and its daemon."""

from __future__ import annotations

import csv
import gzip
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.live.agent.injection import InjectionPlan, settings
from deepprof.live.client.daemon import Daemon as Client
from deepprof.live.client.errors import DaemonError
from tests.collectors.live.building import Built
from tests.collectors.live.reader import SANITIZED
from tests.collectors.live.recordings import Recording, record, shift
from tests.deepprof.live.agent.agents import AgentProcess, running_agent
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.sending import open_client
from tests.patience import PATIENCE_S

__all__ = [
    "Job",
    "Node",
    "Played",
    "as_collected",
    "find_files",
    "forget",
    "has_taken",
    "normal",
    "playing",
    "read_file",
    "read_line",
    "running_node",
]

DEADLINE_S = PATIENCE_S


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A recorded job under the `name` that it is replayed with: the ranks of its file, and what their devices did."""

    name: str
    traces: Sequence[Trace]
    recordings: Sequence[Recording]

    @property
    def records(self) -> int:
        """Device events of all ranks."""
        return sum(len(each.rows) for each in self.recordings)

    @property
    def span_ns(self) -> int:
        """The longest rank's."""
        return max(each.span_ns for each in self.recordings)

    @property
    def longest_ns(self) -> int:
        """The longest event's."""
        return max(int((each.rows["end"] - each.rows["start"]).max()) for each in self.recordings)


@dataclass(frozen=True, slots=True)
class Node:
    """Where jobs run: an agent and its daemon."""

    daemon: Daemon
    agent: AgentProcess
    client: Client


@contextmanager
def running_node() -> Iterator[Node]:
    """Give a daemon that does nothing unasked but settle, and its agent."""
    with (
        running(settings=["captures.count=0", "examine.every=1d"]) as daemon,
        running_agent(daemon.folder, daemon.address, "--overhead", "1") as agent,
        open_client(daemon) as client,
    ):
        yield Node(daemon, agent, client)


@dataclass(frozen=True, slots=True)
class Played:
    """What the device of a rank kept and dropped, and how long it needed to give all of it."""

    kept: int
    dropped: int
    seconds: float


# -- files --


def find_files(traces: Path) -> list[Path]:
    """Return the files of the manifest in `traces`, and of that in `more_traces` next to it, where they are."""
    manifests = [folder / "manifest.csv" for folder in (traces, traces.with_name("more_traces"))]
    lists = [(path.parent, path.read_text().splitlines()) for path in manifests if path.is_file()]
    return [folder / row["file"] for folder, lines in lists for row in csv.DictReader(lines)]


def read_file(path: Path, scratch: Path) -> Job | None:
    """Return the job of a file, None for one that cannot be read or has no kernels."""
    name = f"{path.parent.name}.{path.name.split('.')[0].rstrip('-_')}"[:100]
    if path.name.endswith(".rpd.gz"):  # which no importer opens
        packed, path = path, scratch / path.with_suffix("").name
        path.write_bytes(gzip.decompress(packed.read_bytes()))
    try:
        traces = deepprof.read_job(path)
    except deepprof.TraceError:
        return None
    if not any((trace.device_events["activity"] == "kernel").any() for trace in traces):
        return None
    return Job(name, traces, [record(trace) for trace in traces])


def as_collected(job: Job, window: Iterable[Trace]) -> list[Trace]:
    """Return the job's device events as the daemon should have them, on the clock and under the source of `window`."""
    there = {trace.rank: trace for trace in window}
    made = {recording.trace.rank or 0: recording.trace for recording in job.recordings}
    assert there.keys() == made.keys()
    return [shift(made[rank], there[rank]) for rank in sorted(made)]


# -- processes --


@contextmanager
def playing(
    built: Built, agent: AgentProcess, jobs: Sequence[Job], *, recorded_speed: bool = False
) -> Iterator[dict[str, list[Played]]]:
    """Replay jobs at once: give what their devices did once the agent has all of it, and let them end then.

    None of them ends before: a process waits a second at most for its last records, which is not for a test of them.
    """
    ranks = {job.name: start(built, agent, job, "recorded" if recorded_speed else "full") for job in jobs}
    try:
        played = {name: [read_line(rank) for rank in started] for name, started in ranks.items()}
        for job in jobs:
            wait_for(lambda job=job: has_taken(agent, job), f"the agent has {job.name}", DEADLINE_S)  # type: ignore[misc]
        yield played
        for job in jobs:
            finish(ranks[job.name])
            wait_for(lambda job=job: has_arrived(agent, job), f"all of {job.name} has arrived", DEADLINE_S)  # type: ignore[misc]
    finally:
        for started in ranks.values():
            for rank in started:
                rank.kill()


def start(built: Built, agent: AgentProcess, job: Job, speed: str) -> list[subprocess.Popen[str]]:
    """Start the ranks of a job; at full speed several are on one clock, as those of one machine do."""
    together = speed == "full" and len(job.recordings) > 1
    begin = [str(time.monotonic_ns() - job.span_ns)] if together else []
    return [start_rank(built, agent, job.name, each, speed, *begin) for each in job.recordings]


def start_rank(built: Built, agent: AgentProcess, job: str, recording: Recording, *words: str) -> subprocess.Popen[str]:
    """Start one rank with the variables that `deepprof run` sets."""
    number = recording.trace.rank or 0
    path = agent.folder / f"{job}-{number}.records"
    recording.write(path)
    plan = InjectionPlan(
        built.library, Path("/nowhere"), agent.socket, job, graphs="launches" if recording.has_graphs else None
    )
    environ = {"PATH": os.environ["PATH"], **SANITIZED, "RANK": str(number), **settings(plan)}
    environ |= {"CUDA_INJECTION64_PATH": str(built.library), "DEEPPROF_CUPTI": str(built.mock)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [str(built.replay), str(path), *words], env=environ, text=True, stdin=pipe, stdout=pipe, stderr=pipe
    )


def read_line(rank: subprocess.Popen[str]) -> Played:
    """Wait until the collector has walked all records of a rank."""
    assert rank.stdout is not None
    line = rank.stdout.readline()
    assert line, rank.communicate(timeout=DEADLINE_S)[1]
    kept, dropped, seconds = line.split()
    return Played(int(kept), int(dropped), float(seconds))


def finish(ranks: Sequence[subprocess.Popen[str]]) -> None:
    """Let ranks end, and wait until they have."""
    for rank in ranks:
        _, said = rank.communicate(timeout=DEADLINE_S)
        assert (rank.returncode, said) == (0, ""), said


def has_taken(agent: AgentProcess, job: Job) -> bool:
    """Return whether the agent has all records of a job."""
    return sum(process.records for process in agent.ask().processes if process.job == job.name) == job.records


def has_arrived(agent: AgentProcess, job: Job) -> bool:
    """Return whether all ranks of a job have ended and are durable at the daemon."""
    there = [process for process in agent.ask().processes if process.job == job.name and process.ended]
    return len(there) == len(job.recordings) and all(process.durable >= process.next > 0 for process in there)


def forget(node: Node, job: Job) -> None:
    """Have the daemon do no more for a job that has ended: it would analyse it once more, in its own process."""

    def is_forgotten() -> bool:
        try:
            node.client.forget(job.name)
        except DaemonError:  # the stream of one that has just ended may still be open
            return False
        return True

    wait_for(is_forgotten, f"the daemon lets go of {job.name}")


def normal(trace: Trace) -> pl.DataFrame:
    """Return the device events with their names in place of name ids."""
    events = trace.device_events
    return events.with_columns(name=trace.names.gather(events["name_id"])).drop("name_id")
