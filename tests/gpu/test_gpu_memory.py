"""On an NVIDIA GPU: a real memory snapshot of PyTorch, against torch's own counters."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import deepprof
from benchmarks.gpu import devices
from deepprof.collectors.trace import Trace

pytestmark = pytest.mark.gpu
find_gpu = cache(devices.find_gpu)
PROGRAM = """
import json, sys, torch
torch.cuda.init()
before = [torch.ones(300_000, device="cuda") for _ in range(3)]
torch.cuda.memory._record_memory_history(max_entries=100_000)
torch.cuda.reset_peak_memory_stats()
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    with torch.profiler.record_function("step"):
        model(torch.randn(256, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
try:
    torch.empty(2**50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
torch.cuda.memory._dump_snapshot(sys.argv[1])
names = ("requested_bytes.all.current", "requested_bytes.all.peak", "reserved_bytes.all.current")
print(json.dumps({name: stats[name] for name in names}))
"""


@pytest.fixture(autouse=True, scope="module")
def gpu() -> None:
    """Skip without one; asked only here, since the answer costs an import of torch."""
    if (problem := find_gpu()) is not None:
        pytest.skip(f"no NVIDIA GPU: {problem}")


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"])
def test_a_real_snapshot_has_torchs_own_totals(allocator: str, tmp_path: Path) -> None:
    import os

    path = tmp_path / "snapshot.pickle"
    environment = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": allocator, "PYTORCH_ALLOC_CONF": allocator}
    command = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=300)
    stats: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    trace = deepprof.read(path, details=True)
    rows = trace.memory_events
    assert rows["allocated_nbytes"][-1] == stats["requested_bytes.all.current"]
    assert rows["allocated_nbytes"].max() == stats["requested_bytes.all.peak"]
    assert trace.segments["nbytes"].sum() == stats["reserved_bytes.all.current"]
    assert trace.failed_allocations["nbytes"].to_list() == [2**50]
    assert trace.accounting.flagged == {}
    assert trace.clock == "unix"
    check_stacks(trace)
    check_json(path, trace)


def check_stacks(trace: Trace) -> None:
    """Assert that allocations have the line of their module, and no start of the process is between functions."""
    known = trace.allocations.join(trace.stacks, on="stack_id").filter(pl.col("frames").str.contains("linear.py"))
    assert known.height
    assert not trace.stacks["frames"].str.contains(r"(^|;)_start;.*\.py\(").any()


def check_json(path: Path, trace: Trace) -> None:
    """Assert that the same snapshot as JSON is the same trace."""
    again = path.with_suffix(".json")
    again.write_text(json.dumps(pickle.loads(path.read_bytes())))  # noqa: S301  our own
    read = deepprof.read(again, details=True)
    for name in ("memory_events", "segments", "failed_allocations", "allocations", "stacks"):
        assert getattr(read, name).equals(getattr(trace, name))
