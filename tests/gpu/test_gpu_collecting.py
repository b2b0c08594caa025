"""On an NVIDIA GPU: the same functions as `benchmarks.gpu_overhead`, and the collectors in Python on real kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from benchmarks.gpu import devices, programs
from benchmarks.gpu.programs import Plan
from benchmarks.gpu.reader import EventLog, Reader, Session
from benchmarks.gpu.rows import Verdict
from benchmarks.gpu_overhead import CHECKS
from deepprof.collectors.errors import UsageError
from deepprof.collectors.live import cupti_python

pytestmark = pytest.mark.gpu
find_gpu = cache(devices.find_gpu)


@pytest.fixture(autouse=True, scope="module")
def gpu() -> None:
    """Skip without one; asked only here, since the answer costs an import of torch."""
    if (problem := find_gpu()) is not None:
        pytest.skip(f"no NVIDIA GPU: {problem}")


ITERATIONS, KERNELS = 20, 30
WORK = f"""
def work():
    import torch
    small, host = torch.ones(64, device="cuda"), torch.ones(4096).pin_memory()
    for _ in range({ITERATIONS}):
        host.cuda(non_blocking=True)
        for _ in range({KERNELS}):
            small.add_(1)
    torch.cuda.synchronize()
"""
ATTACHED = f"""
import deepprof, torch
{WORK}
work()
with torch.profiler.profile() as profiler:
    attachment = deepprof.attach(profiler)
    work()
"""
CUPTI = f"""
from deepprof.collectors.live import cupti_python
collector = cupti_python.start()
{WORK}
import time
while not collector.on:
    time.sleep(0.01)
work()
collector.stop()
"""


@pytest.fixture(scope="module")
def plan(gpu: None, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("built")
    return Plan(folder, programs.build(folder), rounds=3, graph_records=3_000_000, graph_s=60)


@pytest.mark.parametrize("name", CHECKS)
def test_no_check_of_the_benchmark_fails(plan: Plan, name: str) -> None:
    rows = list(CHECKS[name](plan))
    assert rows
    assert [row for row in rows if row.verdict is Verdict.FAILED] == []


def collect(code: str, folder: Path) -> Session:
    with Reader(folder / "a.sock", make_consumer=EventLog) as reader:
        path = os.pathsep.join([str(programs.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        variables = {**os.environ, "DEEPPROF_SOCKET": str(folder / "a.sock"), "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert reader.main.ended
    return reader.main


def kinds(session: Session) -> Counter[str]:
    found = Counter[str]()
    assert isinstance(session.consumer, EventLog)
    for (activity, _), count in session.count(session.consumer.events).items():
        found[activity] += count
    return found


def test_attach_sends_kernels_and_copies(tmp_path: Path) -> None:
    session = collect(ATTACHED, tmp_path)
    found = kinds(session)
    assert found["memcpy"] == ITERATIONS
    assert found["kernel"] >= ITERATIONS * KERNELS
    assert "stand_in" not in session.hello


def test_cupti_python_sends_kernels_and_copies(tmp_path: Path) -> None:
    try:
        cupti_python.load()
    except UsageError as error:  # it states what is missing: the package itself, or what it needs
        pytest.skip(str(error))
    found = kinds(collect(CUPTI, tmp_path))
    assert found["memcpy"] == ITERATIONS
    assert found["kernel"] >= ITERATIONS * KERNELS
