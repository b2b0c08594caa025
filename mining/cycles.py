"""The second level: what comes back every so many iterations, as seen in how long the iterations are.

An iteration, counted to the start of the next, is a token: its symbols beyond the period. Tokens that come back
regularly are a cycle: the optimizer after some micro-batches, evaluation, checkpoints, statistics. O(n / period).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from deepprof.mining.iterations import Iterations
from deepprof.mining.nesting import has_parameter_loop, nested_share
from deepprof.mining.symbols import SymbolArray

__all__ = ["Cycle", "Kind", "find_cycles"]

Int64s = npt.NDArray[np.int64]
Kind = Literal["accumulation", "evaluation", "checkpoint", "statistics", "unknown"]

MIN_TIMES = 3
REGULAR = 0.75  # of the places at which a cycle is due must show it
STRAY = 0.1  # of the other iterations may look alike
MAX_CYCLES = 8
MAX_TOKENS = 1 << 16  # iterations looked at
SHARED = 0.5  # of the extra's short sequences that also stand in the iteration: parts of it run, as in an evaluation
MANY_MICRO_BATCHES = 64  # more are hardly ever accumulated
STATISTICS = 0.1  # of the period: a longer stretch of kernels of its own is more than a few numbers
GRAM = 4  # symbols of a sequence that tells a part of the iteration from other uses of its kernels
LOOPED = 0.5  # of an optimizer's kernels lie in its loop over parameters


@dataclass(frozen=True, slots=True)
class Cycle:
    """Every `every` iterations `extra` more symbols run, first in or after iteration `phase`.

    `content` is the extra stretch where it was seen most clearly, `ends` where in the sequence it
    ends.
    """

    every: int
    extra: int
    kind: Kind
    phase: int
    content: SymbolArray
    ends: Int64s


def find_cycles(
    symbols: SymbolArray, rows: Iterations, template: SymbolArray, optimizer: npt.NDArray[np.bool_] | None
) -> list[Cycle]:
    """Return the cycles over the iterations, smallest distance first; none with fewer than `MIN_TIMES` times.

    `optimizer` marks symbol values whose names look like an optimizer's, where names are known.
    """
    first = rows.first[rows.complete][:MAX_TOKENS]
    extra = np.diff(first) - len(template)
    extra[extra <= noise_limit(len(template))] = 0
    found: list[Cycle] = []
    while len(found) < MAX_CYCLES and (token := find_token(extra)) is not None:
        every, phase, size = token
        due = np.arange(phase, len(extra), every)
        content, after = clearest(symbols, first, template, due[np.abs(extra[due] - size) <= tolerance(size)], size)
        kind = classify(content, template, every, optimizer)
        ends = first[due] + after + size
        found.append(Cycle(every, size, kind, phase, content, ends[ends <= len(symbols)]))
        extra[due] = np.maximum(extra[due] - size, 0)
        extra[due[extra[due] <= tolerance(size)]] = 0
    return sorted(found, key=lambda c: c.every)


def noise_limit(period: int) -> int:
    """Return how many symbols more or fewer are not worth a token."""
    return 1 if period >= 16 else 0


def tolerance(size: int) -> float:
    """Return by how many symbols two equal extras may differ."""
    return min(2 + 0.02 * size, 0.25 * size)


def find_token(extra: Int64s) -> tuple[int, int, int] | None:
    """Return (every, phase, size) of the commonest extra that comes at regular distances, None without one."""
    sizes, counts = np.unique(extra[extra > 0], return_counts=True)
    for size in sizes[np.argsort(-counts, kind="stable")][:MAX_CYCLES].tolist():
        at = np.flatnonzero(np.abs(extra - size) <= tolerance(size))
        rhythm = find_rhythm(extra, at, size) if len(at) >= MIN_TIMES else None
        if rhythm is not None:
            return *rhythm, size
    return None


def find_rhythm(extra: Int64s, at: Int64s, size: int) -> tuple[int, int] | None:
    """Return (every, phase) at which the extras of a size, or larger ones that may hold it, are due."""
    apart, votes = np.unique(np.diff(at), return_counts=True)
    every = int(apart[np.argmax(votes)])
    if every < 2:
        return None
    phases, votes = np.unique(at % every, return_counts=True)
    phase = int(phases[np.argmax(votes)])
    due = np.arange(phase, len(extra), every)
    others = np.ones(len(extra), bool)
    others[due] = False
    shown = (extra[due] >= size - tolerance(size)).mean()
    stray = (np.abs(extra[others] - size) <= tolerance(size)).mean() * every
    return (every, phase) if len(due) >= MIN_TIMES and shown >= REGULAR and stray <= STRAY * every else None


def clearest(
    symbols: SymbolArray, first: Int64s, template: SymbolArray, rows: Int64s, size: int
) -> tuple[SymbolArray, int]:
    """Return the extra stretch of the row that is otherwise most like the template, and the place it stands at.

    Without the stretch behind place a, a row is the template: its first a symbols from the left, the rest from the
    right. The place with the fewest differences is taken.
    """
    best: tuple[int, SymbolArray, int] = (len(template) + 1, symbols[:0], 0)
    for row in rows[:16].tolist():
        piece = symbols[first[row] : first[row + 1]]
        common = min(len(template), len(piece), max(0, len(piece) - size))
        left = np.append(0, np.cumsum(piece[:common] != template[:common]))
        right = np.append(0, np.cumsum(piece[::-1][:common] != template[::-1][:common]))
        differences = left + right[::-1]
        place = int(np.argmin(differences))
        if differences[place] < best[0]:
            best = int(differences[place]), piece[place : place + size], place
    return best[1], best[2]


def classify(content: SymbolArray, template: SymbolArray, every: int, optimizer: npt.NDArray[np.bool_] | None) -> Kind:
    """Return what the extra symbols are, judged by their symbols: the iteration's own, an optimizer's, or neither."""
    if not len(content):
        return "unknown"
    if is_optimizer(content, template, every, optimizer):
        return "accumulation"
    if shared_share(content, template) >= SHARED:
        return "evaluation" if len(content) > STATISTICS * len(template) else "statistics"
    return "checkpoint" if len(content) > STATISTICS * len(template) else "statistics"


def is_optimizer(
    content: SymbolArray, template: SymbolArray, every: int, optimizer: npt.NDArray[np.bool_] | None
) -> bool:
    """Return whether the extra is the optimizer, which runs once for several micro-batches and is in none of them.

    Names say so where they are known. Otherwise an optimizer has kernels of its own, and the repetition around it
    has no loop over parameters; it has one itself, or comes every 2, 4, 8 … times, as most people accumulate.
    """
    if every > MANY_MICRO_BATCHES:
        return False
    if optimizer is not None and optimizer[np.concatenate([content, template])].any():
        return bool(optimizer[content].any() and not optimizer[template].any())
    likely = nested_share(content) >= LOOPED or every & (every - 1) == 0
    return shared_share(content, template) < SHARED and likely and not has_parameter_loop(template)


def shared_share(content: SymbolArray, template: SymbolArray) -> float:
    """Return the share of the extra's short sequences that the iteration has as well."""
    size = min(GRAM, len(content), len(template))
    grams = np.lib.stride_tricks.sliding_window_view(np.resize(template, len(template) + size - 1), size)
    known = {gram.tobytes() for gram in grams.astype(np.uint32)}
    inside = np.lib.stride_tricks.sliding_window_view(content, size).astype(np.uint32)
    return sum(gram.tobytes() in known for gram in inside) / len(inside)
