"""`deepprof.attach` in programs with step markers, an agent and a daemon on: the true iterations in all views."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import deepprof
from tests.deepprof.live.agent.replaying import Node
from tests.deepprof.live.service.sending import wait_settled
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install 'deepprof[programs]')"
)

ROOT = Path(__file__).parents[4]
WAIT, WARMUP, ACTIVE, REPEAT = 5, 1, 20, 3
PROGRAM = """
import sys
import torch, deepprof
from torch.profiler import ProfilerActivity, profile, schedule
from tests.programs import mistakes
from tests.programs.recorder import Recorder

name, iterations, *cycle = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
cpu = torch.device("cpu")
loop = getattr(mistakes, name)(Recorder(device=cpu, iterations=int(iterations)))
wait, warmup, active, repeat = map(int, cycle)
plan = schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)
with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
    attached = deepprof.attach(profiler)
    loop(Recorder(device=cpu, iterations=int(iterations), profiler=profiler))
attached.detach()
"""


def train(node: Node, job: str, program: str, iterations: int, *cycle: int) -> None:
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM, program, str(iterations), *map(str, cycle)]
    known = {name: text for name, text in os.environ.items() if not name.startswith("DEEPPROF_")}
    env = known | {"DEEPPROF_SOCKET": str(node.agent.socket), "DEEPPROF_JOB": job, "PYTHONPATH": str(ROOT)}
    subprocess.run(words, cwd=ROOT, env=env, check=True, capture_output=True, timeout=PATIENCE_S)
    wait_settled(node.client, job)


@pytest.mark.parametrize(
    ("program", "iterations", "cycle", "expected"),
    [
        ("healthy", (WAIT + WARMUP + ACTIVE) * REPEAT, (WAIT, WARMUP, ACTIVE, REPEAT), REPEAT * ACTIVE),
        pytest.param("kept_graph", 30, (0, 0, 30, 1), 30, marks=pytest.mark.slow),
    ],
)
def test_the_true_number_of_iterations(
    node: Node, program: str, iterations: int, cycle: tuple[int, ...], expected: int
) -> None:
    job = f"attached-{program}"
    train(node, job, program, iterations, *cycle)
    rows = node.client.iterations(job)
    assert (rows.height, rows["complete"].sum()) == (expected, expected)
    assert rows["iteration_ns"].null_count() == (cycle[3])  # none follows the last one of a cycle
    [rank] = node.client.ranks(job)
    assert [device.iterations for device in rank.devices] == [expected]
    [trace] = node.client.window(job)
    assert [loop.iterations.height for loop in deepprof.analyze(trace).loops] == [expected]
    assert len(trace.breaks_ns) == cycle[3] - 1
