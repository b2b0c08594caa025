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

from tests.deepprof.live.agent.examining import accepted_changes, examine, running_examiner
from tests.deepprof.live.agent.replaying import Node
from tests.deepprof.live.service.daemons import wait_for
from tests.deepprof.live.service.sending import wait_settled
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
    with running_examiner() as node:
        yield node


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


@pytest.mark.parametrize("kind", ["leaking", "healthy"])
def test_a_leak_is_found_while_the_job_runs(examining: Node, kind: str) -> None:
    job = f"memory-{kind}"
    with training(examining, job, kind) as (sent, early):
        wait_for(lambda: accepted_changes(examining, job) >= early, "the changes of memory have come")
        growth = examine(examining, job).get("memory-growth")
    assert (growth is not None) == (kind == "leaking")
    assert growth is None or growth["evidence"]["nbytes_per_iteration"] == pytest.approx(LEAK_NBYTES, rel=0.1)
    wait_settled(examining.client, job)
    [trace] = examining.client.window(job)
    assert trace.memory_events.height == sent
    assert (trace.memory_events["device"] == -1).all()


def test_a_tool_sees_the_allocations_of_a_job(examining: Node) -> None:
    with training(examining, "memory-tool", "leaking") as (_, early):
        wait_for(lambda: accepted_changes(examining, "memory-tool") >= early, "the changes of memory have come")
    words = [sys.executable, "-m", "deepprof", "tool", "memory", "--format", "json"]
    words += ["--daemon", examining.daemon.address, "--job", "memory-tool"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    timeline = json.loads(done.stdout)["report"]["timeline"]
    assert max(row["high_nbytes"] for row in timeline) > ITERATIONS * LEAK_NBYTES
