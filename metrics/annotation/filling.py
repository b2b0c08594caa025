"""The stages of a row of kernels of which some are known: what is between, by what kernels are and what follows what.

An iteration runs through its stages in their order (data loading, forward, loss, backward, optimizer), some of them
several times (accumulation). Of all ways to place the stages that keep what is available, the cheapest one is taken:
each step to another stage costs, and so does each kernel that is unusual in its stage (Viterbi's algorithm)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from deepprof.metrics.annotation.stage_names import BACKWARD, FORWARD, STAGES

Int8s = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_STEPS: Mapping[tuple[str, str], float] = MappingProxyType(
    {
        ("data loading", "forward"): 1,
        ("forward", "loss"): 1,
        ("forward", "backward"): 1.5,
        ("loss", "backward"): 1,
        ("backward", "optimizer"): 1,
        ("optimizer", "data loading"): 1,
        ("optimizer", "forward"): 1,
        ("optimizer", "backward"): 3,  # after gradients were set to zero
        ("optimizer", "loss"): 3,
        ("loss", "optimizer"): 2,
        ("forward", "optimizer"): 4,
        ("backward", "forward"): 2,  # accumulation, another model
        ("backward", "data loading"): 2,
        ("forward", "data loading"): 3,
        ("loss", "forward"): 4,
    }
)
_ANY_STEP, _NO_STEP = 5.0, 0.0
KEPT = 50.0  # what it costs to leave what is available
TURNS = 3  # an iteration is read between two like itself; the middle one counts
MOST_STEPS = 60_000  # of one iteration: a longer one is read alone
CELLS = 4_000_000  # of one array
USUAL = [STAGES.index(stage) for stage in ("data loading", "forward", "loss", "backward", "optimizer")]
WHOLE = 0.9  # of the kernels of a forward pass: a shorter one inside a backward pass is a part of it, run again


def _weigh_steps() -> Floats:
    """Return what each step costs, an array of `STAGES` before × `STAGES` after."""
    steps = np.full((len(STAGES), len(STAGES)), _ANY_STEP, np.float32)
    for (before, after), cost in _STEPS.items():
        steps[STAGES.index(before), STAGES.index(after)] = cost
    np.fill_diagonal(steps, _NO_STEP)
    return steps


STEPS = _weigh_steps()


def fill(kinds: Int64s, first: Int64s, end: Int64s, costs: Floats) -> Int8s:
    """Return the stage of every row, in `STAGES`; -1 outside all iterations.

    `kinds` are rows of `costs`, which is an array of kinds × `STAGES`; iteration `i` has the rows [`first[i]`,
    `end[i]`), and no two have one in common. Equal iterations are decided once.
    """
    stages = np.full(len(kinds), -1, np.int8)
    decided: dict[bytes, Int8s] = {}
    waiting: dict[bytes, Int64s] = {}
    keys = [kinds[a:b].tobytes() for a, b in zip(first.tolist(), end.tolist(), strict=True)]
    for key, a, b in zip(keys, first.tolist(), end.tolist(), strict=True):
        if b > a:
            waiting.setdefault(key, kinds[a:b])
    for part in _split(sorted(waiting, key=len)):
        decided |= dict(zip(part, _decide([waiting[key] for key in part], costs), strict=True))
    for key, a, b in zip(keys, first.tolist(), end.tolist(), strict=True):
        if b > a:
            stages[a:b] = decided[key]
    return stages


def _split(keys: list[bytes]) -> list[list[bytes]]:
    """Return keys, sorted by length, in parts that are decided together."""
    parts: list[list[bytes]] = []
    for key in keys:
        if not parts or (len(parts[-1]) + 1) * len(key) > CELLS:
            parts.append([])
        parts[-1].append(key)
    return parts


def _decide(rows: list[Int64s], costs: Floats) -> list[Int8s]:
    """Return the stages of several iterations, each given as its kinds."""
    runs = [_compress(each) for each in rows]
    turns = TURNS if max(len(kind) for kind, _ in runs) <= MOST_STEPS else 1
    long = max(len(kind) for kind, _ in runs) * turns
    cost = np.zeros((len(runs), long, len(STAGES)), np.float32)  # nothing speaks against anything past an end
    for number, (kind, length) in enumerate(runs):
        weighed = _close_unknown(costs[kind]) * length[:, None]
        cost[number, : len(kind) * turns] = np.tile(weighed, (turns, 1))
    path = _cheapest(cost)
    found = []
    for number, (kind, length) in enumerate(runs):
        begin = len(kind) * (turns // 2)
        found.append(_join_recomputed(np.repeat(path[number, begin : begin + len(kind)], length)))
    return found


def _close_unknown(costs: Floats) -> Floats:
    """Return the costs of an iteration's kernels with stages as dear as can be that no kernel is known to be part of.

    Only those of every iteration are found without that: a short one would be cheapest as an evaluation.
    """
    closed = np.array((costs > 0).all(axis=0))
    closed[USUAL] = False
    return np.where(closed, np.float32(KEPT), costs)


def _join_recomputed(stage: Int8s) -> Int8s:
    """Return the stages of one iteration with forward passes inside a backward one as parts of it.

    Between two backward passes runs either the whole forward pass of the next micro-batch, or a part of the one that
    has been, which was not kept (activation checkpointing).
    """
    begins = np.flatnonzero(np.diff(stage, prepend=-2))
    kind, length = stage[begins], np.diff(np.append(begins, len(stage)))
    before, after = np.append(-1, kind[:-1]), np.append(kind[1:], -1)
    forward = kind == FORWARD
    whole = length[forward & (before != BACKWARD)].max(initial=0)
    again = forward & (before == BACKWARD) & (after == BACKWARD) & (length < WHOLE * whole)
    return np.repeat(np.where(again, BACKWARD, kind), length).astype(np.int8)


def _compress(kinds: Int64s) -> tuple[Int64s, Int64s]:
    begins = np.flatnonzero(np.diff(kinds, prepend=kinds[0] - 1))
    return kinds[begins], np.diff(np.append(begins, len(kinds)))


def _cheapest(cost: Floats) -> Int8s:
    """Return the cheapest ways through arrays of ways × steps × `STAGES`: ways × steps."""
    many, long, _ = cost.shape
    before = np.empty((long, many, len(STAGES)), np.int8)
    total = cost[:, 0].copy()
    for step in range(1, long):
        through = total[:, :, None] + STEPS
        before[step] = through.argmin(axis=1)
        total = through.min(axis=1) + cost[:, step]
    path = np.empty((many, long), np.int8)
    path[:, -1] = total.argmin(axis=1)
    for step in range(long - 1, 0, -1):
        path[:, step - 1] = np.take_along_axis(before[step], path[:, step, None].astype(np.int64), axis=1)[:, 0]
    return path
