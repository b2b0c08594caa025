"""`deepprof.attach` with `profile_memory`: a leak is found while the job runs, and without it nothing is."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deepprof.live.client.values import Findings
from tests.deepprof.live.agent.agents import running_agent
from tests.deepprof.live.agent.replaying import Node
from tests.deepprof.live.service.daemons import running, wait_for
from tests.deepprof.live.service.sending import open_client, wait_settled
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install 'deepprof[programs]')"
)

ROOT = Path(__file__).parents[4]
ITERATIONS, LEAK_NBYTES = 40, 1 << 18
PROGRAM = f"""
import sys, time
import torch, deepprof
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []

def keep(statistics):
    kept.append(statistics) if sys.argv[1] == "leaking" else None

def train(iterations):
    for _ in range(iterations):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        keep(torch.zeros({LEAK_NBYTES}, dtype=torch.uint8))

with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    attached = deepprof.attach(profiler)
    train({ITERATIONS})
    trained_ns = time.time_ns()
    time.sleep(0.5)  # longer than an agent holds records back, in case earlier ones come
    train(1)
changes = [event.start_ns() for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
print(len(changes), sum(start_ns < trained_ns for start_ns in changes), flush=True)
sys.stdin.readline()
attached.detach()
"""


@pytest.fixture(scope="module")
def examining() -> Iterator[Node]:
    """Give a daemon that examines jobs all the time, and its agent."""
    with (
        running(settings=["captures.count=0", "examine.every=1s"]) as daemon,
        running_agent(daemon.folder, daemon.address) as agent,
        open_client(daemon) as client,
    ):
        yield Node(daemon, agent, client)


@contextmanager
def training(node: Node, job: str, kind: str) -> Iterator[tuple[int, int]]:
    """Give how many changes of memory a job has sent that still runs, and how many of these must arrive by now."""
    known = {name: text for name, text in os.environ.items() if not name.startswith("DEEPPROF_")}
    env = known | {"DEEPPROF_SOCKET": str(node.agent.socket), "DEEPPROF_JOB": job, "PYTHONPATH": str(ROOT)}
    words, pipe = [sys.executable, "-W", "ignore", "-c", PROGRAM, kind], subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            made, early = map(int, process.stdout.readline().split())
            yield made, early
            assert process.poll() is None
            _, problem = process.communicate("\n", timeout=PATIENCE_S)
            assert process.returncode == 0, problem
        finally:
            process.kill()


def accepted(node: Node, job: str) -> int:
    """Return how many changes of memory the daemon has of a job."""
    if job not in {each.job for each in node.client.jobs()}:
        return 0
    kinds = [kind for rank in node.client.ranks(job) for kind in rank.account.kinds]
    return sum(kind.accepted for kind in kinds if kind.kind == "memory_events")


def examined(node: Node, job: str) -> Findings:
    """Return the findings of an examination of all records of a job that have come."""

    def find() -> Findings | None:
        found = node.client.findings(job)
        report = json.loads(found.report or "{}")
        read = report.get("trace", {}).get("accounting", {}).get("kept", 0)
        return found if read and read == sum(rank.account.accepted for rank in node.client.ranks(job)) else None

    return wait_for(find, "the rules have looked at all records")


@pytest.mark.parametrize("kind", ["leaking", "healthy"])
def test_a_leak_is_found_while_the_job_runs(examining: Node, kind: str) -> None:
    job = f"memory-{kind}"
    with training(examining, job, kind) as (sent, early):
        wait_for(lambda: accepted(examining, job) >= early, "the changes of memory have come")
        found = [each for each in examined(examining, job).findings if each.rule == "memory-growth"]
        assert len(found) == (kind == "leaking")
    report = json.loads(examining.client.findings(job).report)
    for growth in (each for each in report["findings"] if each["rule"] == "memory-growth"):
        assert growth["evidence"]["nbytes_per_iteration"] == pytest.approx(LEAK_NBYTES, rel=0.1)
    wait_settled(examining.client, job)
    [trace] = examining.client.window(job)
    assert trace.memory_events.height == sent
    assert (trace.memory_events["device"] == -1).all()


def test_a_tool_sees_the_allocations_of_a_job(examining: Node) -> None:
    with training(examining, "memory-tool", "leaking") as (_, early):
        wait_for(lambda: accepted(examining, "memory-tool") >= early, "the changes of memory have come")
    words = [sys.executable, "-m", "deepprof", "tool", "memory", "--format", "json"]
    words += ["--daemon", examining.daemon.address, "--job", "memory-tool"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    timeline = json.loads(done.stdout)["report"]["timeline"]
    assert max(row["high_nbytes"] for row in timeline) > ITERATIONS * LEAK_NBYTES
