"""Programs that keep memory from every iteration, and their twins that do not: `python -m tests.programs.keeping DIR`.

Each is recorded by torch.profiler with memory and stacks on the CPU, as `NAME.json`; what torch's own memory profiler
states of the healthy one is written next to it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

__all__ = ["ITERATIONS", "KEEPING"]

ITERATIONS = 20
ROWS, FEATURES, CLASSES = 256, 64, 10


class Job:
    """A model that is trained on made-up batches."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.kept: list[Tensor] = []
        self.recent: list[Tensor] = []

    def load_batch(self) -> tuple[Tensor, Tensor]:
        return torch.randn(ROWS, FEATURES), torch.randint(CLASSES, (ROWS,))

    def compute_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.model(features), labels)

    def train_step(self) -> tuple[Tensor, Tensor]:
        features, labels = self.load_batch()
        self.optimizer.zero_grad()
        loss = self.compute_loss(features, labels)
        loss.backward()
        self.optimizer.step()
        return loss, features


def healthy(job: Job) -> None:
    """Nothing is kept."""
    job.train_step()


def kept_losses(job: Job) -> None:
    """A loss is computed once more for a list of statistics, and kept with its graph."""
    job.train_step()
    job.kept.append(job.compute_loss(*job.load_batch()))


def noted_losses(job: Job) -> None:
    """The same, put right: the list contains numbers."""
    job.train_step()
    job.kept.append(job.compute_loss(*job.load_batch()).detach())


def copy_features(features: Tensor) -> Tensor:
    return features.clone()


def cached_features(job: Job) -> None:
    """A copy of every batch goes into a cache without a limit."""
    _, features = job.train_step()
    job.kept.append(copy_features(features))


def limited_cache(job: Job) -> None:
    """The same, put right: the cache contains the last three."""
    _, features = job.train_step()
    job.recent = [*job.recent[-2:], copy_features(features)]


def filling_cache(job: Job) -> None:
    """A cache that is full after the first third of the iterations: no leak."""
    _, features = job.train_step()
    if len(job.kept) < ITERATIONS // 3:
        job.kept.append(copy_features(features))


KEEPING: dict[str, Callable[[Job], None]] = {
    each.__name__: each for each in (healthy, kept_losses, noted_losses, cached_features, limited_cache, filling_cache)
}


def record(step: Callable[[Job], None], path: Path) -> None:
    """Record `ITERATIONS` iterations, the first of a fresh job among them."""
    torch.manual_seed(0)
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True, record_shapes=True
    ) as profiler:
        job = Job()
        for _ in range(ITERATIONS):
            step(job)
    profiler.export_chrome_trace(str(path))
    path.with_suffix(".torch").write_text(json.dumps(_ask_torch(profiler)))


def _ask_torch(profiler: profile) -> list[dict[str, int]]:
    """Return the memory of the CPU over time by category, as torch's own memory profiler has it."""
    from torch.profiler._memory_profiler import _CATEGORY_TO_INDEX, MemoryProfileTimeline

    names = {index: "none" if category is None else category.name for category, index in _CATEGORY_TO_INDEX.items()}
    _, sizes = MemoryProfileTimeline(profiler._memory_profile())._coalesce_timeline("cpu")
    return [{names.get(place - 1, "none"): size for place, size in enumerate(row) if size} for row in sizes]


def main() -> None:
    """Record all programs into the folder that is named."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for name, step in KEEPING.items():
        record(step, folder / f"{name}.json")


if __name__ == "__main__":
    main()
