"""On an NVIDIA GPU: memory of a running job, from the hook of `deepprof run --memory` and from an attached profiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import devices
from deepprof.collectors.live.inject import find_library
from deepprof.collectors.live.packets import NO_TOTAL
from tests.collectors.live.hooked import hooked_environment
from tests.collectors.live.listener import Heard, Listener

pytestmark = pytest.mark.gpu
find_gpu = cache(devices.find_gpu)
ROOT = Path(__file__).parents[2]
ITERATIONS, LEAK_NBYTES = 20, 8 << 20
TRAIN = f"""
import json, sys, torch

model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).cuda()
optimizer = torch.optim.Adam(model.parameters())
kept, seen = [], []

def count():
    return torch.cuda.memory_stats_as_nested_dict()[counted]["all"]

def train():
    for _ in range({ITERATIONS}):
        optimizer.zero_grad()
        model(torch.randn(256, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        seen.append(count()["current"])
        kept.append(torch.zeros({LEAK_NBYTES}, dtype=torch.uint8, device="cuda"))
"""
TELL = """
torch.cuda.synchronize()
size = torch.cuda.get_device_properties(0).total_memory
print(json.dumps({"seen": seen, "peak": count()["peak"], "size": size, "expected": expected}))
"""
LOOKED_AT = f"""
counted = "requested_bytes"
{TRAIN}
train()
expected = None
try:
    torch.empty(2**50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
{TELL}
"""
ATTACHED = f"""
counted = "allocated_bytes"
{TRAIN}
import deepprof
train()
with torch.profiler.profile(profile_memory=True) as profiler:
    attached = deepprof.attach(profiler)
    del seen[:]
    train()
attached.detach()
profiler.export_chrome_trace(sys.argv[1])
expected = deepprof.read(sys.argv[1]).memory_events.to_dict(as_series=False)
{TELL}
"""


@pytest.fixture(autouse=True, scope="module")
def gpu() -> None:
    """Skip without one; asked only here, since the answer costs an import of torch."""
    if (problem := find_gpu()) is not None:
        pytest.skip(f"no NVIDIA GPU: {problem}")


def hear(code: str, folder: Path, **variables: str) -> tuple[dict[str, Any], Heard]:
    """Run a program, and return what it printed, and what a listening agent heard of it."""
    library = find_library()
    assert library is not None
    listener = Listener(folder / "a.sock").start()
    environment = hooked_environment(library, listener.path) | {"CUDA_INJECTION64_PATH": str(library)}
    environment = {name: text for name, text in environment.items() if not name.startswith(("NVTX", "INTEL"))}
    if not variables:  # attached: without the hook
        environment = {name: text for name, text in environment.items() if "INJECT" not in name}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = [sys.executable, "-W", "ignore", "-c", code, str(folder / "trace.json")]
    try:
        done = subprocess.run(words, env=environment | variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        heard = listener.wait(lambda at: next((each for each in at.connections if each.ended), None))
        return json.loads(done.stdout.splitlines()[-1]), heard
    finally:
        listener.stop()


def test_the_hook_looks_around_each_step_and_hears_of_failures(tmp_path: Path) -> None:
    told, heard = hear(LOOKED_AT, tmp_path, DEEPPROF_MEMORY="1", CUDA_VISIBLE_DEVICES="0")
    looks = heard.changes[heard.changes["reserved_nbytes"] != NO_TOTAL]
    peaks = heard.changes[heard.changes["reserved_nbytes"] == NO_TOTAL]
    after = looks["allocated_nbytes"][1 : 2 * ITERATIONS : 2].tolist()
    assert len(looks) == 2 * ITERATIONS + 1  # the last with the failed allocation
    assert after == told["seen"]
    assert set(np.diff(after)[1:].tolist()) == {LEAK_NBYTES}
    assert max(peaks["allocated_nbytes"].max(initial=0), looks["allocated_nbytes"].max()) == told["peak"]
    assert set(heard.changes["device"].tolist()) == {0}
    assert set(heard.changes["device_nbytes"].tolist()) == {told["size"]}
    assert (looks["reserved_nbytes"] >= looks["allocated_nbytes"]).all()
    assert [text for text in heard.notices if "out of memory on device 0: 1,048,576.00 GiB asked for" in text]
    assert len(heard.events)  # kernels, too
    assert np.diff(heard.changes["time_ns"]).min() >= 0


def test_an_attached_profiler_sends_allocations_with_places_and_totals(tmp_path: Path) -> None:
    told, heard = hear(ATTACHED, tmp_path)
    changes, expected = heard.changes, told["expected"]
    assert len(changes) == len(expected["nbytes"]) > ITERATIONS
    for name in ("device", "nbytes", "address", "allocated_nbytes", "reserved_nbytes", "thread"):
        assert changes[name].tolist() == expected[name], name
    on_device = changes[changes["device"] == 0]
    assert set(on_device["device_nbytes"].tolist()) == {told["size"]}
    assert set(told["seen"]) <= set(on_device["allocated_nbytes"].tolist())
    assert (on_device["nbytes"] // LEAK_NBYTES == 1).sum() >= ITERATIONS
