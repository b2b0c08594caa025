"""Every real trace with kernels, replayed as the GPU job that it was: all views have the iterations of the file.

A GPU job gives its device events alone, so what is expected is what the analysis states of those: the file's host side
is left out, and events are as CUPTI shows them. `python -m benchmarks.replaying` shows what whole files add to that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.live.client.daemon import Daemon as Client
from deepprof.live.client.errors import DaemonError
from tests.collectors.live.building import build
from tests.deepprof.live.agent.replaying import (
    Job,
    Node,
    as_collected,
    find_files,
    forget,
    has_taken,
    normal,
    playing,
    read_file,
    read_line,
)
from tests.deepprof.live.agent.views import Counts, diagnosed, exported, watched
from tests.deepprof.live.service.daemons import wait_for
from tests.deepprof.live.service.sending import iterations_of, wait_settled
from tests.patience import UNHURRIED
from tests.widening import slow_unless

BATCHES = 8
# Of one device, with a loop that shows while the job runs, and no event so long that the agent holds back for seconds.
LONG = {"param-linear", "param-resnet", "tb-resnet50-nw0", "tb-resnet50-nw4", "cs336-zx-2_7B-clean", "hta-diff-test"}
UNDECIDED = 3
# Of one stream and of several, with pauses, synchronisations, copies, graphs and several devices.
SHORT = {"tb-resnet50-nw4", "hta-nccl-parser", "cs336-zx-base", "tl-resnet-ckpt", "tl-jax-conv-08", "hta-diff-test"}
SHORTEST = {"tb-resnet50-nw4", "hta-nccl-parser"}
pytestmark = pytest.mark.traces


@pytest.mark.parametrize("batch", slow_unless(lambda batch: batch == 4, range(BATCHES)))
def test_at_full_speed(batch: int, traces: Path, node: Node, tmp_path: Path) -> None:
    jobs = [job for path in find_files(traces)[batch::BATCHES] if (job := read_file(path, tmp_path))]
    assert len(jobs) >= 4
    assert replay(node, jobs, tmp_path, recorded_speed=False) == {}


@pytest.mark.parametrize("folders", slow_unless(SHORTEST.__eq__, [SHORTEST, SHORT]), ids=len)
def test_at_the_recorded_speed(folders: set[str], traces: Path, node: Node, tmp_path: Path) -> None:
    jobs = read_some(traces, folders, "at-its-speed", tmp_path)
    assert replay(node, jobs, tmp_path, recorded_speed=True) == {}


def test_while_they_run(traces: Path, node: Node, tmp_path: Path) -> None:
    jobs = read_some(traces, LONG, "running", tmp_path)
    with playing(build("plain"), node.agent, jobs):
        found = {job.name: differences_live(node, job) for job in jobs}
    for job in jobs:
        forget(node, job)
    assert {name: views for name, views in found.items() if views} == {}


def read_some(traces: Path, folders: set[str], mark: str, scratch: Path) -> list[Job]:
    """Return the jobs of some folders under their own names."""
    paths = [path for path in find_files(traces) if path.parent.name in folders]
    assert {path.parent.name for path in paths} == folders
    return [replace(job, name=f"{job.name}.{mark}") for path in paths if (job := read_file(path, scratch))]


# -- a job that has ended --


def replay(node: Node, jobs: Sequence[Job], scratch: Path, *, recorded_speed: bool) -> dict[str, list[str]]:
    """Replay jobs to their end, and return in which views which of them are not what their files are."""
    with playing(build("plain"), node.agent, jobs, recorded_speed=recorded_speed) as played:
        assert [sum(each.dropped for each in ranks) for ranks in played.values()] == [0] * len(jobs)
    for job in jobs:
        wait_for(lambda job=job: accepted(node.client, job) == job.records, f"the daemon has {job.name}")  # type: ignore[misc]
    wanted = {job.name: offline(node, job) for job in jobs}
    found = {}
    for job in sorted(jobs, key=lambda job: bool(wanted[job.name].loops)):
        if wanted[job.name].loops:
            wait_settled(node.client, job.name)
        found[job.name] = differences(node, job, wanted[job.name], scratch / "report.json")
        forget(node, job)  # without a loop nothing is to be settled
    return {name: views for name, views in found.items() if views}


def offline(node: Node, job: Job) -> deepprof.Analysis:
    """Return the analysis of what a job's file has of its devices, on the clock on which the daemon has it."""
    return deepprof.analyze(as_collected(job, node.client.window(job.name)))


def differences(node: Node, job: Job, wanted: deepprof.Analysis, scratch: Path) -> list[str]:
    """Return in which views a job is not what its file is."""
    window, counts = node.client.window(job.name), count(iterations_of(wanted))
    equal = {
        "records": all(normal(live).equals(normal(made)) for live, made in zip(window, wanted.traces, strict=True)),
        "account": has_all(node.client, job),
        "iterations": in_order(node.client.iterations(job.name)).equals(in_order(iterations_of(wanted))),
        "watch": watched(node.daemon, job.name) == counts,
        "prometheus": exported(node.daemon, job.name) == counts,
        "diagnose": diagnosed(node.daemon, job.name, scratch) == json.loads(wanted.to_json()),
    }
    return [view for view, is_equal in equal.items() if not is_equal]


def has_all(client: Client, job: Job) -> bool:
    """Whether the daemon has every record, and was told of none that is lost."""
    accounts = [rank.account for rank in client.ranks(job.name)]
    whole = sum(account.accepted for account in accounts) == job.records
    return whole and not any(account.lost or account.gaps or account.invalid or account.dropped for account in accounts)


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("rank", "device", "loop", "index")


def count(iterations: pl.DataFrame) -> Counts:
    """Return how many iterations each device of every rank has."""
    found = iterations.group_by("rank", "device").len()
    return {(rank, device): number for rank, device, number in found.iter_rows()}


# -- a job that runs --


def differences_live(node: Node, job: Job) -> list[str]:
    """Return in which views the iterations of a job that still runs are not the first ones of its file.

    The last ones, which may go on, and the figures that only the end of a recording decides are left out.
    """
    wait_for(lambda: accepted(node.client, job) == job.records, f"the daemon has {job.name}")
    wanted = complete(iterations_of(offline(node, job)))
    fewest = wanted.height - UNDECIDED
    wait_for(lambda: complete(node.client.iterations(job.name)).height >= fewest, f"{job.name} has {fewest}")
    found = complete(node.client.iterations(job.name))
    equal = {
        "iterations": found.equals(wanted.head(found.height)),
        "watch": sum(watched(node.daemon, job.name).values()) >= fewest,
        "prometheus": sum(exported(node.daemon, job.name).values()) >= fewest,
    }
    return [view for view, is_equal in equal.items() if not is_equal]


def accepted(client: Client, job: Job) -> int:
    """Return how many records of a job the daemon has."""
    try:
        return sum(rank.account.accepted for rank in client.ranks(job.name))
    except DaemonError:  # it has not heard of it
        return 0


def complete(iterations: pl.DataFrame) -> pl.DataFrame:
    """Return the complete iterations of a job with one device."""
    return iterations.filter("complete").sort("start_ns").drop("index", "edits", "warmup")


# -- the command --


def test_behind_deepprof_run(traces: Path, node: Node, tmp_path: Path) -> None:
    [job] = read_some(traces, {"param-linear"}, "command", tmp_path)
    job.recordings[0].write(tmp_path / "records")
    built = build("plain")
    command = [sys.executable, "-m", "deepprof", "run", "--job", job.name, "--agent", str(node.agent.socket)]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("DEEPPROF_")}
    with subprocess.Popen(
        [*command, "--drain", "300", "--", str(built.replay), str(tmp_path / "records"), "full"],
        env=environ | UNHURRIED | {"DEEPPROF_CUPTI": str(built.mock), "RANK": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert read_line(running).kept == job.records
        wait_for(lambda: has_taken(node.agent, job), "the agent has all of it")
        _, said = running.communicate()
    assert running.returncode == 0, said
    assert f": 1 rank, {job.records:,} records kept by" in said
    assert ", 0 lost;" in said
    forget(node, job)
