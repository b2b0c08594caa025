"""What reports state about jobs that keep their devices busy, or about which nothing is to be stated.

`working_jobs.toml` has the jobs, kernel by kernel. What must be stated was written down before a rule had seen them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import deepprof
from deepprof.analysis import Analysis
from tests.kineto_jobs import DeviceOfJob, KinetoJob, TimedKernel

FILE = Path(__file__).with_name("working_jobs.toml")
BACKWARD = r"autograd::engine::evaluate_function: \1/\1/"
COLLECTIVE = re.compile("nccl", re.IGNORECASE)
WAITING = {  # rules on waiting, and on single iterations: jobs that compute may have a little of it
    "hotspot",
    "host-bound",
    "sync-bound",
    "dependency-bound",
    "launch-bound",
    "small-kernels",
    "slow-iterations",
    "communication-bound",
}
TOLERANCE = 0.011  # of the computing time: shares are in words with a digit behind the point

Entry = dict[str, Any]


@cache
def read_jobs() -> dict[str, Entry]:
    """Return the jobs by their titles; those with another's kernels have them."""
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    jobs: dict[str, Entry] = {job["title"]: job for job in document["jobs"]}
    for job in jobs.values():
        shared = jobs[job["runs_of"]] if "runs_of" in job else job
        job["kernels"] = list(_list_kernels(shared["runs"], document["names"]))
    return jobs


def _list_kernels(runs: list[Entry], names: dict[str, str]) -> Iterator[tuple[str, TimedKernel]]:
    """Yield the kernels of runs that repeat, with their keys."""
    for run in runs:
        for line in list(run["kernels"]) * run["times"]:
            yield line.split(" ", 2)[1], _read_kernel(line, names)


def _read_kernel(line: str, names: dict[str, str]) -> TimedKernel:
    """Return the kernel of a line: `time key operators stream=… blocks=…`."""
    us, key, *rest = line.split(" ")
    options = dict(part.split("=") for part in rest if "=" in part)
    operators = " ".join(part for part in rest if "=" not in part)
    return TimedKernel(
        re.sub(r"\^(\w+)/", BACKWARD, operators),
        names[key],
        float(us),
        dims=_read_dims(options.get("dims")),
        types=("c10::BFloat16", "c10::BFloat16") if "dims" in options else (),
        stream=int(options.get("stream", 7)),
        grid=(int(options.get("blocks", 1024)), 1, 1),
    )


def _read_dims(text: str | None) -> list[list[int]] | None:
    """Return recorded sides of operands, such as `[[8,4],[4,2]]`."""
    return tomllib.loads(f"dims = {text}")["dims"] if text else None


def make_job(job: Entry) -> KinetoJob:
    """Return the job as it is recorded."""
    major, minor = job.get("capability", (0, 0))
    device = DeviceOfJob(job["device"], major, minor, job.get("multiprocessors", 0))
    ranks = job.get("ranks", 1)
    return KinetoJob(
        [kernel for _, kernel in job["kernels"]],
        devices=(device,),
        iterations=job.get("iterations", 6),
        wait_us=job.get("wait_us", 40.0),
        slow=job.get("slow", ()),
        steps=job.get("steps", True),
        rank=0 if ranks > 1 else None,
        ranks=ranks,
    )


@pytest.fixture
def analysis(request: pytest.FixtureRequest, tmp_path: Path) -> Analysis:
    """Return what was found in the job of this title."""
    path = make_job(read_jobs()[request.param]).write(tmp_path / "job.json")
    return deepprof.analyze(deepprof.read(str(path)))


@pytest.mark.parametrize(("analysis", "title"), [(title, title) for title in read_jobs()], indirect=["analysis"])
def test_reports_state_what_an_expert_would(analysis: Analysis, title: str) -> None:
    job = read_jobs()[title]
    spoke = {finding.rule for finding in analysis.findings}
    must = [set(rule.split("|")) for rule in job["rules"]]
    assert all(spoke & each for each in must), spoke
    assert spoke - WAITING <= set(job.get("also", ())).union(*must)
    stated = " ".join(f"{each.title} {each.summary} {each.advice}" for each in analysis.findings)
    assert all(re.search(word, stated) for word in job.get("words", ()))
    for rule, keys in job.get("claims", {}).items():
        assert _share_of(analysis, rule) == pytest.approx(_compute_share(job, keys), abs=TOLERANCE), rule


def _share_of(analysis: Analysis, rule: str) -> float:
    """Return the share of the computing time that a finding is about."""
    finding = next(finding for finding in analysis.findings if finding.rule == rule)
    return float(str(finding.evidence["work_share_ratio"]))


def _compute_share(job: Entry, keys: list[str]) -> float:
    """Return the share that kernels of these keys have of the time of all but collectives."""
    computing = [(key, kernel.us) for key, kernel in job["kernels"] if not COLLECTIVE.match(kernel.name)]
    claimed, whole = (sum(us for key, us in computing if key in chosen) for chosen in (keys, dict(computing)))
    return float(claimed / whole)


@pytest.mark.parametrize("title", ["fp32 llm A100", "resnet fp32 T4", "fp64 RTX 3090"])
def test_what_saves_most_comes_first(title: str, tmp_path: Path) -> None:
    job = read_jobs()[title]
    findings = deepprof.analyze(deepprof.read(str(make_job(job).write(tmp_path / "job.json")))).findings
    assert findings[0].rule in job["rules"]
    assert findings[0].severity == "critical"
