"""Programs whose operations PyTorch itself counts: `python -m tests.metrics.cost.counted_programs DIR`.

Writes for every program the profiler's trace `NAME.json` of a forward and a backward pass on the CPU, and `counts.json`
with what `FlopCounterMode` counts, by program and operator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode


class Residual(nn.Module):
    """A block of a small ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, given: Tensor) -> Tensor:
        inner = functional.relu(self.norms[0](self.first(given)))
        return functional.relu(self.norms[1](self.second(inner)) + self.shortcut(given))


class Block(nn.Module):
    """A block of a transformer, with attention of PyTorch's own."""

    def __init__(self, size: int, heads: int, *, causal: bool = False, plain: bool = False) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.heads, self.causal, self.plain = heads, causal, plain

    def forward(self, given: Tensor) -> Tensor:
        batch, length, size = given.shape
        split = self.qkv(self.norms[0](given)).view(batch, length, 3, self.heads, size // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.MATH if self.plain else SDPBackend.FLASH_ATTENTION):
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        between = given + self.out(seen.transpose(1, 2).reshape(batch, length, size))
        return between + self.mlp(self.norms[1](between))


class Last(nn.Module):
    """The result of a recurrent network without its state."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, given: Tensor) -> Tensor:
        result: Tensor = self.network(given)[0]
        return result


def resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 32, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding="same"),
        nn.Conv2d(8, 8, 3, stride=2, dilation=2, padding=1),
        nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1),
        nn.Conv2d(6, 12, (1, 5), bias=False),
    )


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=2),
        nn.ConvTranspose2d(8, 6, (2, 3), stride=(1, 2), groups=2),
        nn.Conv2d(6, 12, (1, 5), groups=2, bias=False),
    )


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet": (resnet, (2, 3, 48, 48)),
    "mlp": (lambda: nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5, bias=False)), (7, 20)),
    "transformer": (lambda: Block(32, 4), (2, 9, 32)),
    "plain attention": (lambda: Block(32, 4, plain=True), (2, 9, 32)),
    "causal": (lambda: Block(32, 4, causal=True), (2, 9, 32)),
    "convolutions": (convolutions, (2, 4, 11, 13)),
    "grouped": (grouped, (2, 4, 11, 13)),
    "line": (lambda: nn.Sequential(nn.Conv1d(3, 4, 5, 2, 2), nn.ConvTranspose1d(4, 2, 4, 3)), (2, 3, 17)),
    "volume": (lambda: nn.Conv3d(2, 3, (1, 2, 3), stride=(1, 1, 2)), (2, 2, 4, 5, 6)),
    "lstm": (lambda: Last(nn.LSTM(6, 8, num_layers=2)), (5, 3, 6)),
    "gru": (lambda: Last(nn.GRU(6, 8)), (5, 3, 6)),
}


def run(network: nn.Module, given: Tensor) -> None:
    network(given).sum().backward()


def count(name: str, folder: Path) -> dict[str, int]:
    """Return the operations of a program by operator, and write its trace."""
    build, shape = PROGRAMS[name]
    torch.manual_seed(0)
    network, given = build(), torch.randn(shape, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        run(network, given)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        run(network, given)
    recorded.export_chrome_trace(str(folder / f"{name}.json"))
    found = counter.get_flop_counts().get("Global", {})
    return {f"aten::{operator.__name__}": flops for operator, flops in found.items()}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    counts = {name: count(name, folder) for name in PROGRAMS}
    (folder / "counts.json").write_text(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
