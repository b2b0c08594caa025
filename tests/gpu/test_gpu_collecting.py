"""On an NVIDIA GPU: the same functions as `benchmarks.gpu_overhead`, and the collectors in Python on real kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from benchmarks import gpu_overhead
from benchmarks.gpu.reader import Reader, Session
from benchmarks.gpu_overhead import Outcome, Plan

pytestmark = pytest.mark.gpu
find_gpu = cache(gpu_overhead.find_gpu)


@pytest.fixture(autouse=True)
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


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(tmp_path, gpu_overhead.build(tmp_path))


@pytest.mark.parametrize("part", [gpu_overhead.check_counts, gpu_overhead.check_graphs, gpu_overhead.check_coexistence])
def test_records_are_those_of_torch_profiler(plan: Plan, part: Callable[[Plan, Outcome], None]) -> None:
    outcome = Outcome()
    part(plan, outcome)
    assert outcome.good, outcome.lines


def test_what_it_costs(plan: Plan) -> None:
    outcome = gpu_overhead.compare(plan)
    assert outcome.good, outcome.lines


def collect(code: str, folder: Path) -> Session:
    with Reader(folder / "a.sock", keep=True) as reader:
        variables = {**os.environ, "DEEPPROF_SOCKET": str(folder / "a.sock"), "PYTHONPATH": str(gpu_overhead.ROOT)}
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert reader.main.ended
    return reader.main


def kinds(session: Session) -> Counter[str]:
    found = Counter[str]()
    for (activity, _), count in session.count(0, 2**63 - 1).items():
        found[activity] += count
    return found


def test_attach_sends_kernels_and_copies(tmp_path: Path) -> None:
    session = collect(ATTACHED, tmp_path)
    found = kinds(session)
    assert found["memcpy"] == ITERATIONS
    assert found["kernel"] >= ITERATIONS * KERNELS
    assert "stand_in" not in session.hello


def test_cupti_python_sends_kernels_and_copies(tmp_path: Path) -> None:
    pytest.importorskip("cupti", reason='cupti-python is not installed (pip install "deepprof[cupti]")')
    found = kinds(collect(CUPTI, tmp_path))
    assert found["memcpy"] == ITERATIONS
    assert found["kernel"] >= ITERATIONS * KERNELS
