"""What a daemon shows of a job, in each of its views: the iterations of every rank's devices, or the whole report."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from deepprof.commands import main
from tests.deepprof.live.service.daemons import Daemon, wait_for

__all__ = ["Counts", "diagnosed", "exported", "watched"]

LABELS = re.compile(r'(\w+)="([^"]*)"')

Counts = dict[tuple[int, int], int]  # by rank and device; none of those without an iteration


def watched(daemon: Daemon, job: str) -> Counts:
    """Return what `deepprof watch` shows, once a job's row and those of its ranks, read one after the other, agree."""
    return wait_for(lambda: look(daemon, job), "the job's row is the sum of its ranks'")[0]


def look(daemon: Daemon, job: str) -> list[Counts]:
    """Return what `deepprof watch` shows, nothing if a job's row is of another moment than those of its ranks."""
    told = io.TextIOWrapper(io.BytesIO())
    with redirect_stdout(told):
        assert main(["watch", daemon.address, "--once", "--format", "json", "--job", job]) == 0
    told.seek(0)
    [found] = json.loads(told.read())["jobs"]
    devices = [(rank["rank"], each) for rank in found["rank_states"] for each in rank["devices"]]
    counts = {(rank, each["device"]): each["iterations"] for rank, each in devices if each["iterations"]}
    return [counts] if found["iterations"] == sum(counts.values()) else []


def exported(daemon: Daemon, job: str, metric: str = "deepprof_iterations_total") -> Counts:
    """Return what Prometheus gets."""
    counts: Counts = {}
    for line in daemon.get("/metrics")[1].splitlines():
        labels = dict(LABELS.findall(line)) if line.startswith(f"{metric}{{") else {}
        if labels.get("job_id") == job and (value := int(float(line.split()[-1]))):
            counts[int(labels["rank"]), int(labels["device"])] = value
    return counts


def diagnosed(daemon: Daemon, job: str, scratch: Path) -> Any:
    """Return the report of `deepprof diagnose --daemon`, which is written to `scratch` on its way."""
    command = ["diagnose", "--daemon", daemon.address, job, "--all", "--format", "json", "-o", str(scratch)]
    assert main(command) == 0
    return json.loads(scratch.read_text())
