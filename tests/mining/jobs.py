"""Kernel sequences of made-up training jobs, with the truth: where each iteration begins and ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass
class Job:
    """A transformer-like job; `p_*` are probabilities per iteration, `eval_every` and `growth` in iterations."""

    iterations: int = 30
    layers: int = 12
    forward: int = 11
    backward: int = 19
    ends: int = 7
    optimizer: int = 24
    alphabet: int = 90
    prologue: int = 200
    cut: int = 0  # kernels missing at the start
    p_insert: float = 0.0
    p_delete: float = 0.0
    p_substitute: float = 0.0
    eval_every: int = 0
    growth: int = 0
    seed: int = 0
    starts: list[int] = field(default_factory=list)
    period: int = 0

    def symbols(self) -> npt.NDArray[np.int64]:
        """Return the sequence, and fill in `starts` and `period`."""
        rng = np.random.default_rng(self.seed)
        block = {
            name: rng.integers(low, high, size)
            for name, low, high, size in (
                ("pre", 0, 20, self.ends),
                ("forward", 5, 40, self.forward),
                ("loss", 40, 48, self.ends),
                ("backward", 20, 70, self.backward),
                ("step", 70, 80, max(1, self.optimizer // 4)),
            )
        }
        body = [block["pre"], *[block["forward"]] * self.layers, block["loss"]]
        iteration = np.concatenate([*body, *[block["backward"]] * self.layers, *[block["step"]] * 4])
        evaluation = np.concatenate([*body, rng.integers(80, 84, 3)])
        self.period, self.starts = len(iteration), []
        parts = [rng.integers(0, self.alphabet, self.prologue)]
        length = self.prologue
        for j in range(self.iterations):
            one = self.edited(iteration, j, rng)
            self.starts.append(length)
            parts.append(one)
            if self.eval_every and j % self.eval_every == self.eval_every - 1:
                parts += [evaluation] * 6
            length = sum(map(len, parts))
        self.starts = [s - self.cut for s in self.starts if s >= self.cut]
        return np.concatenate(parts)[self.cut :]

    def edited(self, iteration: npt.NDArray[np.int64], j: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Return the j-th iteration with its noise."""
        at = self.ends + 2
        if self.growth:
            iteration = np.concatenate([iteration[:at], np.full(j // self.growth, 85), iteration[at:]])
        if rng.random() < self.p_insert:
            place = int(rng.integers(1, len(iteration)))
            iteration = np.insert(iteration, place, rng.integers(86, 90, int(rng.integers(1, 15))))
        if rng.random() < self.p_delete:
            place = int(rng.integers(1, len(iteration) - 4))
            iteration = np.delete(iteration, np.s_[place : place + int(rng.integers(1, 4))])
        if self.p_substitute:
            where = rng.random(len(iteration)) < self.p_substitute
            iteration = np.where(where, iteration + self.alphabet, iteration)
        return iteration


def score(found: npt.NDArray[np.int64], truth: list[int], tolerance: int = 2) -> float:
    """Return the F1 of boundaries at the best constant rotation."""
    if not len(found) or not truth:
        return 0.0
    wanted = np.array(truth)
    index = np.searchsorted(wanted, found, side="right") - 1
    shifts, votes = np.unique((found - wanted[np.maximum(index, 0)])[index >= 0], return_counts=True)
    if not len(shifts):
        return 0.0
    shifted = found - shifts[np.argmax(votes)]
    near = np.abs(shifted[:, None] - wanted[None, :]) <= tolerance
    hits = min(near.any(0).sum(), near.any(1).sum())
    return float(2 * hits / (len(found) + len(wanted)))
