"""Layers of ONNX Runtime and OpenVINO mapped to the operators of ten models: how far that holds.

Each layer that multiplies must hold exactly one operator that does (or one attention), tensors must have as many
elements as the backend states, and the layers' time must belong to operators of the model (`mapped`), or to conversions
of its tensors that the backend inserted (`all` with those). Predicted bytes is next to those of the backend's own
tensors, which is what can be measured without a counter of the memory's.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.importing import verdict
from deepprof.backends.backend import RunOptions, load_backend
from deepprof.collectors.errors import UsageError
from deepprof.collectors.models.onnx_model import read_model
from deepprof.metrics.cost.model_roofline import ModelRun, measure_model_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

MODELS = ("resnet50", "resnet34", "mobilenet_v2", "shufflenet_x1_0", "efficientnet_b0", "efficientnetv2_t")
MODELS += ("vit_tiny", "swin_tiny", "mixer_b16", "distilbert")
QUICK = MODELS[3:4]
BACKENDS = ("onnxruntime", "openvino")
RUNS, WARMUP = 10, 3
LEAST_MAPPED = 0.97
HEAD = ("model", "layers", "one product", "found", "elements", "mapped", "all", "bytes", "tensors", "layers", "run")
ROOT = Path(__file__).resolve().parents[1]


def run(console: Console, quick: bool = False) -> None:
    """Print a table for every backend."""
    absent = [name for name in ("torch", "torchvision", "timm") if find_spec(name) is None]
    if absent:
        console.print(f"mapping of models: {', '.join(absent)} not installed, which export them")
        return
    models = QUICK if quick else MODELS
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.onnx_models", *models, "-o", folder]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        for backend in BACKENDS:
            try:
                _print_backend(console, backend, [Path(folder, f"{name}.onnx") for name in models])
            except UsageError as error:
                console.print(str(error))


def _print_backend(console: Console, backend: str, paths: Iterable[Path]) -> None:
    table = Table(*HEAD)
    runs = []
    for path, found in _measure(backend, paths):
        runs.append(found)
        table.add_row(path.stem, *_list_cells(found))
    profile = runs[0].profile
    table.title = f"{profile.backend} {profile.version}, batch 1, {RUNS} runs, {profile.device}"
    console.print(table)
    checks = [each.checks for each in runs]
    exact = min(
        min(each.exact_layers / each.product_layers, each.mapped_products / each.product_nodes) for each in checks
    )
    agreeing = min(each.agreeing_layers / each.sized_layers for each in checks)
    mapped = min(each.mapped_ratio or 0.0 for each in checks)
    console.print(verdict("least share of layers with one product, and of products found", exact, "1", exact == 1))
    console.print(verdict("least share of layers with elements as profiled", agreeing, "1", agreeing == 1))
    console.print(verdict("least share of latency mapped", mapped, f"at least {LEAST_MAPPED}", mapped >= LEAST_MAPPED))


def _measure(backend: str, paths: Iterable[Path]) -> Iterator[tuple[Path, ModelRun]]:
    runner = load_backend(backend)
    for path in paths:
        graph = read_model(path)
        options = RunOptions({name: graph.tensors[name] for name in graph.inputs}, runs=RUNS, warmup=WARMUP)
        yield path, measure_model_run(graph, runner.profile(path, options), None)


def _list_cells(run: ModelRun) -> Iterator[str]:
    checks = run.checks
    whole = run.layers.drop_nulls(["nbytes", "tensors_nbytes"])
    yield str(len(run.layers))
    yield f"{checks.exact_layers}/{checks.product_layers}"
    yield f"{checks.mapped_products}/{checks.product_nodes}"
    yield f"{checks.agreeing_layers}/{checks.sized_layers}"
    yield f"{checks.nodes_ns / checks.layers_ns:.1%}"
    yield f"{checks.mapped_ratio:.1%}"
    yield f"{whole['nbytes'].sum() / 1e6:.1f} MB"
    yield f"{run.difference_ratio:+.1%}"
    yield f"{checks.layers_ns / 1e6:.1f} ms"
    yield f"{(run.profile.latency_ns or 0) / 1e6:.1f} ms"
