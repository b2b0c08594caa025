"""Real traces replayed as the GPU jobs that they were: what each view of a daemon shows, next to what the file states.

    python -m benchmarks.replaying [--recorded] [FOLDER ...]

A mock of CUPTI gives the records of a trace to the real library as a driver would; agent and daemon are their own
processes. A GPU job gives its device events alone: "devices" is the analysis of those of the file, "file" that of the
whole file with its host side. With `--recorded` the records come when they arrived, else as fast as they are taken."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

import deepprof
from deepprof.live.client.errors import DaemonError
from tests.collectors.live.building import build
from tests.deepprof.live.agent.replaying import Job, Node, as_collected, find_files, playing, read_file, running_node
from tests.deepprof.live.agent.views import diagnosed, exported, watched
from tests.deepprof.live.service.sending import iterations_of, wait_settled

TRACES = Path(os.environ.get("DEEPPROF_TRACES", Path(__file__).resolve().parents[1] / "../shared/traces")).resolve()
AT_ONCE = 8
HOLD_S = 13.0  # the agent holds records back for ten seconds at most, and states something every second
OUTLINE = ("rank", "device", "stream", "kernels", "complete")


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a job. Iterations: of the file, of its devices, of every view; `live` before its end."""

    job: Job
    whole: deepprof.Analysis
    devices: deepprof.Analysis
    watch: int
    prometheus: int
    diagnose: int
    report: str
    lost: int
    live: int
    seconds: float


def replay(node: Node, jobs: Sequence[Job], *, recorded_speed: bool) -> Iterable[Found]:
    """Replay jobs at once, and yield what came of each."""
    with playing(build("plain"), node.agent, jobs, recorded_speed=recorded_speed) as played:
        wait_for_all(node, jobs)
        live = {job.name: sum(watched(node.daemon, job.name).values()) for job in jobs}
    for job in jobs:
        wait_settled(node.client, job.name)
        yield look(node, job, live[job.name], max(each.seconds for each in played[job.name]))


def wait_for_all(node: Node, jobs: Sequence[Job]) -> None:
    """Wait until the daemon has all records of jobs that still run, or the agent holds some back without need."""
    until_s = time.monotonic() + HOLD_S
    while time.monotonic() < until_s and any(accepted(node, job) < job.records for job in jobs):
        time.sleep(0.1)


def accepted(node: Node, job: Job) -> int:
    """Return how many records of a job the daemon has."""
    try:
        return sum(rank.account.accepted for rank in node.client.ranks(job.name))
    except DaemonError:
        return 0


def look(node: Node, job: Job, live: int, seconds: float) -> Found:
    """Return what a job that has ended is in every view."""
    devices = deepprof.analyze(as_collected(job, node.client.window(job.name)))
    accounts = [rank.account for rank in node.client.ranks(job.name)]
    with tempfile.NamedTemporaryFile() as file:
        report = diagnosed(node.daemon, job.name, Path(file.name))
    return Found(
        job=job,
        whole=deepprof.analyze(job.traces),
        devices=devices,
        watch=sum(watched(node.daemon, job.name).values()),
        prometheus=sum(exported(node.daemon, job.name).values()),
        diagnose=sum(len(loop["iterations"]) for loop in report["loops"]),
        report="equal" if report == json.loads(devices.to_json()) else drift(node.client.iterations(job.name), devices),
        lost=job.records - sum(account.accepted for account in accounts) + sum(account.lost for account in accounts),
        live=live,
        seconds=seconds,
    )


def drift(live: pl.DataFrame, devices: deepprof.Analysis) -> str:
    """Return by how much the same iterations begin at other times: the agent lays two clocks on each other."""
    found, wanted = (rows.sort("rank", "device", "loop", "index") for rows in (live, iterations_of(devices)))
    if not found.select(OUTLINE).equals(wanted.select(OUTLINE)):
        return "differs"
    moved = (found["start_ns"] - wanted["start_ns"]).abs().max() or 0
    return f"within {moved:,} ns"


def compare(found: Found) -> str:
    """Return how the iterations of the file's devices are those of the whole file."""
    whole, devices = (iterations_of(each) for each in (found.whole, found.devices))
    if from_first(whole).equals(from_first(devices)):
        return "equal"
    periods = [sorted(loop.period for loop in each.loops) for each in (found.whole, found.devices)]
    sources = " ".join(dict.fromkeys(loop.boundary_source for loop in found.whole.loops)) or "none"
    what = "begin elsewhere" if periods[0] == periods[1] else f"{periods[1]} kernels, not {periods[0]}"
    return f"{what}: the file's begin by {sources}, its devices' by the order of kernels"


def from_first(iterations: pl.DataFrame) -> pl.DataFrame:
    """Return where iterations are, with their starts from the first one's."""
    shown = iterations.sort("rank", "device", "start_ns").select(*OUTLINE, "start_ns")
    return shown.with_columns(pl.col("start_ns") - pl.col("start_ns").min())


def describe(found: Found) -> list[str]:
    """Return the cells of a job."""
    job = found.job
    whole, devices = found.whole.iterations.height, found.devices.iterations.height
    views = found.watch, found.prometheus, found.diagnose
    return [
        job.name,
        f"{job.records:,}",
        f"{job.span_ns / 1e9:.2f}",
        f"{whole}",
        f"{devices}",
        " ".join(f"{view}" for view in views),
        found.report,
        f"{found.lost}",
        f"{found.live}",
        f"{found.seconds * 1e3:.1f}",
        compare(found),
    ]


def run(console: Console, folders: Sequence[str], *, recorded_speed: bool) -> None:
    columns = ("trace", "records", "span, s", "file", "devices", "watch, Prometheus, diagnose", "report", "lost")
    table = Table(*columns, "live", "given in, ms", "devices and file", title="Iterations of replayed traces")
    with tempfile.TemporaryDirectory() as scratch, running_node() as node:
        paths = [path for path in find_files(TRACES) if not folders or path.parent.name in folders]
        read = (job for path in paths if (job := read_file(path, Path(scratch))))
        while jobs := list(islice(read, AT_ONCE)):
            for found in replay(node, jobs, recorded_speed=recorded_speed):
                table.add_row(*describe(found))
                node.client.forget(found.job.name)
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", action="store_true", help="records come when they came")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="of these folders only")
    given = parser.parse_args()
    run(Console(width=220), given.folders, recorded_speed=given.recorded)
