"""Models as ONNX files for tests: networks of torchvision, timm and our own with random weights, exported here.

`python -m tests.onnx_models NAME… -o FOLDER` exports each as `NAME.onnx`; `--batch N`, and `--dynamo` for PyTorch's
newer exporter. A its own process keeps torch, and what its exporters warn of, out of the tests.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.once import make_once

ROOT = Path(__file__).parents[1]
NEEDED = ("torch", "torchvision", "timm", "onnx", "onnxscript")
QUICK = ("resnet50", "shufflenet_open")  # exported together, for tests of the normal suite
OPSET, DYNAMO_OPSET = 13, 18
IMAGE = (3, 224, 224)


@dataclass(frozen=True)
class Source:
    """How a network is built, and the shape of its input without the batch."""

    build: Callable[[], Any]
    shape: tuple[int, ...] = IMAGE
    words: int = 0  # of the vocabulary, where the input has words
    has_open_batch: bool = False  # in the file: then its shapes are computed at run time


@cache
def declare_operators() -> Any:
    """Declare operators that torchvision needs to be imported, and lacks next to a torch without CUDA."""
    import torch

    if torch.version.cuda is not None:
        return None
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library  # whose declarations go when it does


def vision(name: str, has_open_batch: bool = False) -> Source:
    """Return a network of torchvision."""

    def build() -> Any:
        import torchvision

        return getattr(torchvision.models, name)(weights=None)

    return Source(build, has_open_batch=has_open_batch)


def image_model(name: str, size: int = 224) -> Source:
    """Return a network of timm."""

    def build() -> Any:
        import timm

        return timm.create_model(name, pretrained=False)

    return Source(build, (3, size, size))


def distilbert() -> Source:
    """Return DistilBERT's encoder over 512 words, from its published sizes."""

    def build() -> Any:
        from tests.onnx_networks import DistilBert

        return DistilBert()

    return Source(build, (512,), words=30522)


def changed_shufflenet() -> Source:
    """Return ShuffleNetV2 1.0 without channel shuffles."""

    def build() -> Any:
        from tests.onnx_networks import change_shufflenet

        return change_shufflenet(vision("shufflenet_v2_x1_0").build())

    return Source(build, has_open_batch=True)


SOURCES: dict[str, Source] = {
    **{name: vision(name) for name in ("resnet34", "resnet50")},
    "shufflenet_x1_0": vision("shufflenet_v2_x1_0"),
    "shufflenet_open": vision("shufflenet_v2_x1_0", has_open_batch=True),
    "shufflenet_x0_5": vision("shufflenet_v2_x0_5"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "mobilenet_v2_x0_5": image_model("mobilenetv2_050"),
    "efficientnet_b0": image_model("efficientnet_b0"),
    "efficientnet_b4": image_model("efficientnet_b4"),
    "efficientnetv2_t": image_model("efficientnetv2_rw_t"),
    "efficientnetv2_s": image_model("efficientnetv2_rw_s"),
    "mixer_b16": image_model("mixer_b16_224"),
    **{f"vit_{size}": image_model(f"vit_{size}_patch16_224") for size in ("tiny", "small", "base")},
    **{f"swin_{size}": image_model(f"swin_{size}_patch4_window7_224") for size in ("tiny", "small", "base")},
    **{"distilbert": distilbert(), "shufflenet_changed": changed_shufflenet()},
}


def export(name: str, path: Path, batch: int = 1, dynamo: bool = False) -> None:
    """Write a model with random weights as an ONNX file, and next to it what PyTorch counts of its operations."""
    os.environ["TIMM_FUSED_ATTN"] = "0"  # the exporters need attention as products and a softmax
    import torch

    declare_operators()
    source = SOURCES[name]
    torch.manual_seed(0)
    model = source.build().eval()
    shape = (batch, *source.shape)
    example = torch.randint(source.words, shape) if source.words else torch.rand(shape)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        path.with_suffix(".flops").write_text(str(count_flops(model, example)))
        names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
        if dynamo:
            torch.onnx.export(model, (example,), str(path), dynamo=True, opset_version=DYNAMO_OPSET, **names)
        else:
            axes = {"x": {0: "batch"}} if source.has_open_batch else None
            kept = {"dynamo": False, "opset_version": OPSET, "dynamic_axes": axes}
            torch.onnx.export(model, (example,), str(path), **kept, **names)


def count_flops(model: Any, example: Any) -> int:
    """Return the operations of a forward pass that PyTorch's own counter has rules for."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        model(example)
    total: int = counter.get_total_flops()
    return total


def exported(factory: pytest.TempPathFactory, name: str, batch: int = 1, dynamo: bool = False) -> Path:
    """Return the file of a model, exported once in a test run; skip the test where what that needs is not installed."""
    for module in NEEDED:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (pip install 'deepprof[programs]')")
    group = QUICK if name in QUICK and batch == 1 and not dynamo else (name,)

    def make(folder: Path) -> None:
        words = [*group, f"--batch={batch}", *(["--dynamo"] if dynamo else []), "-o", str(folder)]
        command = [sys.executable, "-m", "tests.onnx_models", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]

    return make_once(factory, f"onnx-{group[0]}-{batch}-{dynamo}", make) / f"{name}.onnx"


def main() -> None:
    """Export what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=SOURCES)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dynamo", action="store_true")
    parser.add_argument("-o", dest="folder", type=Path, required=True)
    args = parser.parse_args()
    for name in args.names:
        export(name, args.folder / f"{name}.onnx", args.batch, args.dynamo)


if __name__ == "__main__":
    main()
