"""On an NVIDIA GPU: what each calling context launched, live, equals what torch.profiler records of the same program.

`benchmarks.gpu_overhead --only contexts`, which test_gpu_collecting.py runs, compares operators; here are whole paths.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from benchmarks.gpu import devices
from deepprof.live.agent.device_times import SYNC
from tests.collectors.live.building import build
from tests.collectors.live.conftest import hooked  # noqa: F401
from tests.collectors.live.context_paths import (
    count_launched_live,
    count_launched_recorded,
    count_live,
    count_recorded,
)
from tests.collectors.live.hooked import Done, run_plain

pytestmark = pytest.mark.gpu
find_gpu = cache(devices.find_gpu)
ITERATIONS = "5"
ON_GPU = {"CONTEXTS_ON": "cuda", "CUDA_VISIBLE_DEVICES": "0"}


@pytest.fixture(autouse=True, scope="module")
def gpu() -> None:
    """Skip without one; asked only here, since the answer costs an import of torch."""
    if (problem := find_gpu()) is not None:
        pytest.skip(f"no NVIDIA GPU: {problem}")


def collect(hooked: Callable[..., Done], name: str, mode: str) -> Done:  # noqa: F811
    settings = {"CUDA_INJECTION64_PATH": str(build("plain").library), "DEEPPROF_CONTEXTS_BUDGET": "100"}
    done = hooked("contexts.py", name, ITERATIONS, DEEPPROF_CONTEXTS=mode, **settings, **ON_GPU)
    assert done.process.returncode == 0, done.process.stderr
    return done


@pytest.mark.parametrize("name", ["resnet", "lstm", "transformer"])
def test_contexts_launch_what_is_recorded_of_them(hooked: Callable[..., Done], tmp_path: Path, name: str) -> None:  # noqa: F811
    (heard,) = collect(hooked, name, "python").heard
    recorded = run_plain("contexts.py", name, ITERATIONS, str(tmp_path / "trace.json"), **ON_GPU)
    assert recorded.returncode == 0, recorded.stderr
    assert count_live(heard) == count_recorded(tmp_path / "trace.json")
    launched, _ = count_launched_live(heard)
    assert sum(launched.values()) > 100
    assert launched == count_launched_recorded(tmp_path / "trace.json")


@pytest.mark.parametrize("mode", ["operators", "python"])
def test_all_time_of_the_device_is_some_contexts(hooked: Callable[..., Done], mode: str) -> None:  # noqa: F811
    (heard,) = collect(hooked, "resnet", mode).heard
    _, context_ns = count_launched_live(heard)
    first = heard.launches["correlation"].min()  # CUPTI is requested records a moment before it is for launches
    work = heard.events[(heard.events["activity"] != SYNC) & (heard.events["correlation"] >= first)]
    assert context_ns == int((work["end_ns"] - work["start_ns"]).sum()) > 0
