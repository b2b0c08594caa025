"""The network and the data that all programs share, large enough that a GPU computes longer than it is launched for."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tests.programs.recorder import Recorder

__all__ = ["BATCH", "BLOCK", "FEATURES", "Blocks", "build_model", "draw_batch", "each_batch", "load_batches", "train"]

BATCH, BLOCK, FEATURES, CLASSES = 512, 32, 64, 10  # a batch is loaded in blocks of 32 rows
WIDTHS = {"cpu": 128, "cuda": 4096}


def build_model(recorder: Recorder, width: int | None = None) -> nn.Sequential:
    """Return a network of four layers whose first pass is over, so that what libraries set up is not recorded."""
    width = width or WIDTHS[recorder.device.type]
    layers: list[nn.Module] = []
    for inputs in (FEATURES, width, width):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES)).to(recorder.device)


def draw_batch(rows: int = BATCH) -> tuple[Tensor, Tensor]:
    """Return made-up features and labels in host memory."""
    return torch.randn(rows, FEATURES), torch.randint(CLASSES, (rows,))


def load_batches(blocks: Dataset[tuple[Tensor, Tensor]]) -> DataLoader[tuple[Tensor, Tensor]]:
    """Return a loader without workers over blocks of rows."""
    return DataLoader(blocks, batch_size=BATCH // BLOCK)


class Blocks(Dataset[tuple[Tensor, Tensor]]):
    """Blocks that are tensors already."""

    def __init__(self, iterations: int) -> None:
        rows = iterations * BATCH
        self.features, self.labels = (whole.split(BLOCK) for whole in draw_batch(rows))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.features[index], self.labels[index]


def each_batch(recorder: Recorder, loader: DataLoader[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches on the device, one per iteration; loading one is part of its iteration."""
    batches = iter(loader)
    for _ in recorder.numbers():
        features, labels = next(batches)
        yield features.flatten(0, 1).to(recorder.device), labels.flatten().to(recorder.device)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, features: Tensor, labels: Tensor) -> Tensor:
    """Take one step and return the loss, on its device."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(features), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()
