"""Leaks of which only looks at the level are known, as `deepprof run --memory` sends them: which are found.

`python -m benchmarks.memory_looks` prints three tables. The first is of a language model that is trained under a model
of torch's allocator (`benchmarks.caching_allocator`) and keeps so many bytes of each iteration: what a look at blocks
and one at requests sees. The second is of levels drawn at random: how often a rise is found where there is none, and
where there is one. The third is the same by simpler ways to tell a rise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.caching_allocator import CachingAllocator, MemoryBlock
from deepprof.metrics.memory.rises import find_rise
from deepprof.metrics.series.growth import CHANCE
from deepprof.metrics.series.trend import Trend, chance_of, find_trend

__all__ = ["LEAKS", "QUIET", "SLOWING", "LanguageModel", "count_found", "look_at_training", "run"]

MIB = 1 << 20
ITERATIONS, WARMUP = 66, 4
Levels = npt.NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class LanguageModel:
    """A GPT-2 of so many layers that trains on so many tokens, in numbers of `value_nbytes`."""

    layers: int = 12
    width: int = 768
    words: int = 50257
    tokens: int = 2048
    value_nbytes: int = 4

    @property
    def parameters(self) -> list[int]:
        """Sizes of its parameters: the embedding, those of each layer, and the last norm's."""
        wide = self.width * self.width
        layer = [self.width] * 2 + [3 * wide, 3 * self.width, wide, self.width] + [self.width] * 2
        layer += [4 * wide, 4 * self.width, 4 * wide, self.width]
        return [4 * size for size in [self.words * self.width, *layer * self.layers, self.width, self.width]]

    @property
    def activations(self) -> list[int]:
        """Sizes of what a layer keeps for the backward pass."""
        values = self.tokens * self.width * self.value_nbytes
        return [values, 4 * self.tokens, 3 * values, values, self.tokens * self.width, values, 4 * values, 4 * values]


@dataclass
class Training:
    """A model that is trained under an allocator, and keeps `leak` bytes of each iteration."""

    model: LanguageModel
    leak: int
    memory: CachingAllocator = field(default_factory=CachingAllocator)
    gradients: list[MemoryBlock] = field(default_factory=list)
    named: list[MemoryBlock] = field(default_factory=list)  # what Python's names hold until they are bound again
    state: list[MemoryBlock] = field(default_factory=list)

    def iterate(self) -> None:
        """Run one iteration up to the optimizer's step, where the hook looks."""
        allocate, free, model = self.memory.allocate, self.memory.free, self.model
        if self.leak:
            allocate(self.leak)
        self.free_all(self.gradients)
        kept = [[allocate(size) for size in model.activations] for _ in range(model.layers)]
        output = model.tokens * model.words * model.value_nbytes
        logits, passing = allocate(output), allocate(output)
        self.free_all(self.named)
        self.named = [logits]
        values = model.tokens * model.width * model.value_nbytes
        for number, size in enumerate(reversed(model.parameters)):
            following = allocate(values * (4 if number % 5 == 0 else 1))
            self.gradients.append(allocate(size))
            free(passing)
            passing = following
            if kept and number % 12 == 0:
                self.free_all(kept.pop())
        free(passing)
        for layer in kept:
            self.free_all(layer)
        if not self.state:
            self.state = [allocate(size) for size in model.parameters for _ in range(3)]  # and the parameters

    def free_all(self, blocks: list[MemoryBlock]) -> None:
        """Give blocks back, the first first."""
        for block in blocks:
            self.memory.free(block)
        blocks.clear()


def look_at_training(model: LanguageModel, leak: int, iterations: int = ITERATIONS) -> tuple[Levels, Levels]:
    """Return blocks and requests that are in use at each look after warm-up, bytes."""
    training, looks = Training(model, leak), []
    for _ in range(iterations):
        training.iterate()
        looks.append((training.memory.allocated, training.memory.requested))
    blocks, requests = np.array(looks[WARMUP:], np.int64).T
    return blocks, requests


# ---- levels drawn at random, in units of what they vary by ----


def _scatter(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    return rng.normal(size=n)


def _walk(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    return np.cumsum(rng.normal(size=n))


def _leap(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """A walk with a few very long steps."""
    return np.cumsum(rng.standard_t(2, size=n))


def _alike(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """Neighbours that are alike."""
    values, left = np.zeros(n), rng.normal(size=n)
    for at in range(1, n):
        values[at] = 0.9 * values[at - 1] + left[at]
    return values


def _sawtooth(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """A cache that is emptied, at least twice."""
    period = int(rng.integers(3, max(4, n // 2)))
    return (np.arange(n) + rng.integers(0, period)) % period * 10.0 + _scatter(rng, n)


def _fill(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """A cache that is full at a tenth to six tenths of the time."""
    return np.minimum(np.arange(n), rng.uniform(0.1, 0.6) * n) * 10 + _scatter(rng, n)


def _settle(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """A warm-up that ends slowly."""
    return 250 * (1 - np.exp(-np.arange(n) / (rng.uniform(0.05, 0.2) * n))) + _scatter(rng, n)


def _shapes(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """A cache with something for each shape of a batch, half as many as there are looks."""
    shapes = rng.integers(0, n // 2, n)
    first = np.unique(shapes, return_index=True)[1]
    return np.isin(np.arange(n), first).cumsum() * 10.0 + _scatter(rng, n)


def _jump(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """Something large that is loaded once."""
    return (np.arange(n) >= rng.integers(1, n)) * 50.0 + _scatter(rng, n)


def _leak(times: float) -> Draw:
    return lambda rng, n: np.arange(n) * times + _scatter(rng, n)


QUIET: dict[str, Draw] = {
    "scatter": _scatter,
    "a walk": _walk,
    "a walk with long steps": _leap,
    "neighbours alike": _alike,
    "a sawtooth": _sawtooth,
    "a cache that fills": _fill,
    "a warm-up that ends slowly": _settle,
    "one jump": _jump,
}
LEAKS: dict[str, Draw] = {f"a leak of {times:g} x the scatter": _leak(times) for times in (0.5, 1, 2, 4)}
SLOWING: dict[str, Draw] = {"a cache of shapes": _shapes}
ALL = QUIET | LEAKS | SLOWING
LENGTHS = (12, 20, 66, 200, 1000)


def _has_trend(levels: Levels, chance: Callable[[Levels, Trend], float]) -> bool:
    """Return whether levels rise by a trend that is not by chance."""
    trend = find_trend(levels)
    return trend is not None and trend.slope > 0 and chance(levels, trend) < CHANCE


WAYS: dict[str, Callable[[Levels], bool]] = {
    "Mann and Kendall": lambda levels: _has_trend(levels, lambda _, trend: trend.p_value),
    "Hamed and Rao": lambda levels: _has_trend(levels, chance_of),
    "as reported": lambda levels: find_rise(levels) is not None,
}


def count_found(draw: Draw, n: int, draws: int, seed: int, way: str = "as reported") -> float:
    """Return in which share of series of `n` values a rise is found."""
    rng, base = np.random.default_rng(seed), 1 << 30
    return sum(WAYS[way]((base + MIB * draw(rng, n)).astype(np.int64)) for _ in range(draws)) / draws


def list_trainings() -> Iterator[list[str]]:
    """Yield the rows of the first table."""
    models = {
        "12 layers": LanguageModel(),
        "12 layers, 8,192 tokens of 2 bytes": LanguageModel(tokens=8192, value_nbytes=2),
        "24 layers": LanguageModel(layers=24, width=1024),
    }
    for name, model in models.items():
        for leak in (0, MIB // 8, MIB, 4 * MIB):
            cells = [name, f"{leak / MIB:g}"]
            for levels in look_at_training(model, leak):
                steps, rise = np.diff(levels) / MIB, find_rise(levels)
                cells += [f"{steps.std():.2f}", "-" if rise is None else f"{rise.per_value / MIB:.3f}"]
            yield [*cells, f"{levels[0] / MIB:,.0f}"]


def run(draws: int = 400) -> None:
    """Print all tables."""
    console = Console(width=120)
    heads = ("a GPT-2", "MiB kept of each", "blocks vary by", "found", "requests vary by", "found", "MiB in use")
    table = Table(*heads, title=f"{ITERATIONS} iterations, looked at before the step of the optimizer; MiB")
    for cells in list_trainings():
        table.add_row(*cells)
    console.print(table)
    table = Table("levels", *(f"{n:,} looks" for n in LENGTHS), title=f"share in which a rise is found, of {draws}")
    for seed, (name, draw) in enumerate(ALL.items()):
        table.add_row(name, *(f"{count_found(draw, n, draws, seed):.2%}" for n in LENGTHS))
    console.print(table)
    table = Table("levels", *WAYS, title=f"the same by other ways, {ITERATIONS} looks")
    for seed, (name, draw) in enumerate(ALL.items()):
        table.add_row(name, *(f"{count_found(draw, ITERATIONS, draws, seed, way):.2%}" for way in WAYS))
    console.print(table)


if __name__ == "__main__":
    sys.exit(run())
