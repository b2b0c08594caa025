"""Ten models on two backends: every layer that multiplies has one operator that does, and sizes are as profiled."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.model_mapping import MODELS
from deepprof.backends.backend import RunOptions, load_backend
from deepprof.collectors.models.onnx_model import read_model
from deepprof.metrics.cost.fusion import GroupCosts
from deepprof.metrics.cost.model_roofline import measure_model_run
from tests.once import make_once

ROOT = Path(__file__).resolve().parents[3]
BACKENDS = ("onnxruntime", "openvino")


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the models, exported once in a test run."""
    absent = [name for name in ("torch", "torchvision", "timm") if importlib.util.find_spec(name) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed (pip install 'deepprof[programs]')")

    def export(folder: Path) -> None:
        command = [sys.executable, "-m", "tests.onnx_models", *MODELS, "-o", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]

    return make_once(tmp_path_factory, "mapped_models", export)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", MODELS)
def test_layers_of_real_models_are_mapped(model: str, backend: str, exported: Path) -> None:
    path = exported / f"{model}.onnx"
    graph = read_model(path)
    options = RunOptions({name: graph.tensors[name] for name in graph.inputs}, runs=2, warmup=1)
    run = measure_model_run(graph, load_backend(backend).profile(path, options), None)
    checks = run.checks
    assert checks.exact_layers == checks.product_layers > 30
    assert checks.mapped_products == checks.product_nodes
    assert checks.agreeing_layers == checks.sized_layers >= checks.product_layers
    assert checks.mapped_ratio is not None
    assert checks.mapped_ratio >= 0.97
    costs = GroupCosts(graph).costs
    assert run.layers["product_flops"].sum() == sum(cost.product_flops for cost in costs if cost is not None)
