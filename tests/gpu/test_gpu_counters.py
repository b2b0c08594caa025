"""On an NVIDIA GPU: the bytes of its memory that CUPTI counts, against the size of what is copied."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import devices
from deepprof.backends.backend import RunOptions, load_backend
from deepprof.backends.cupti_calls import LIMITS, MEANINGS, NO_LIBRARY, NO_SEARCH, OLD_LIBRARY, REASONS
from deepprof.backends.dram_counter import DramCounter
from deepprof.collectors.models.graph import TensorSpec
from tests.deepprof.backends.small_models import write_convolutions

pytestmark = pytest.mark.gpu
find_gpu = cache(devices.find_gpu)
NBYTES = 1 << 30  # far more than a cache contains
RUNS = 5
ELSEWHERE = {*REASONS.values(), *MEANINGS.values(), *LIMITS.values(), NO_LIBRARY, OLD_LIBRARY, NO_SEARCH}


@pytest.fixture(autouse=True, scope="module")
def gpu() -> None:
    """Skip without one; asked only here, since the answer costs an import of torch."""
    if (problem := find_gpu()) is not None:
        pytest.skip(f"no NVIDIA GPU: {problem}")


@pytest.fixture(scope="module")
def arrays(gpu: None) -> tuple[Any, Any]:
    """Two arrays of `NBYTES`, which were written once."""
    import torch

    source = torch.ones(NBYTES // 4, device="cuda")
    return source, source.clone()


def check(reason: str | None) -> None:
    """Skip where this machine or its user has no counters; any other reason is a failure."""
    if reason in ELSEWHERE:
        pytest.skip(str(reason))
    assert reason is None


def count(counter: DramCounter) -> int:
    """Return the bytes of a run, or skip where this machine or its user has no counters."""
    check(counter.reason)
    found = counter.count_nbytes(RUNS)
    assert found is not None
    return found


@pytest.mark.parametrize("way", ["kernel", "copy"])
def test_a_copy_reads_its_size_and_writes_it(way: str, arrays: tuple[Any, Any]) -> None:
    import torch

    source, target = arrays
    counter = DramCounter()
    with counter.count():
        for _ in range(RUNS):
            if way == "copy":
                target.copy_(source)
            else:
                torch.add(source, 1, out=target)
    assert count(counter) == pytest.approx(2 * NBYTES, rel=0.1)


def test_what_runs_before_and_after_is_not_counted(arrays: tuple[Any, Any]) -> None:
    source, target = arrays
    target.copy_(source)
    counter = DramCounter()
    with counter.count():
        pass
    target.copy_(source)
    assert count(counter) < NBYTES / RUNS / 10


def test_a_model_on_onnx_runtime_has_bytes(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no CUDA; pip install onnxruntime-gpu")
    path = write_convolutions(tmp_path / "model.onnx", side=64)
    found = load_backend("onnxruntime").profile(path, RunOptions({"x": TensorSpec((64, 3, 64, 64), "float32")}))
    check(found.uncounted_reason)
    assert found.counted_nbytes
