"""Repetition inside a template: for example 24 layers, or the optimizer's loop over parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from deepprof.mining.symbols import SymbolArray, as_symbols

MAX_LAG = 4096
MAX_TWICE = 1 << 15  # symbols examined of a template repeated twice, to find loops across its ends
SMALL = 16  # symbols: the longest body of a loop over parameters
MIN_NESTED_SYMBOLS = 8  # symbols: the shortest section of such a loop, all repetitions together
NESTED = 0.3  # of a period that is in its own loops; with less, the period may be a layer
LOOPED = 0.5  # of an optimizer's kernels that are in loops
MOSTLY = 0.5  # of the iteration: a longer section is its layers, if there are no others
LAYER = 4  # symbols: a layer has at least this many
OWN = 0.45  # of a parameter loop's kernels that run nowhere else in the iteration


@dataclass(frozen=True, slots=True)
class NestedBlock:
    """A block of `events` symbols that occurs `repeats` times in a row from `first` on."""

    first: int
    events: int
    repeats: int


def find_nested(template: SymbolArray) -> list[NestedBlock]:
    """Return the blocks that repeat at least three times in a row, the longest sections first, none overlapping.

    Compares the template with itself shifted by every lag up to a third of it: O(p · min(p/3, 4096)).
    """
    found = [block for lag in range(1, min(len(template) // 3, MAX_LAG) + 1) for block in _runs_at(template, lag)]
    found.sort(key=lambda b: (-b.events * b.repeats, b.events))
    taken = np.zeros(len(template), bool)
    kept = []
    for block in found:
        place = slice(block.first, block.first + block.events * block.repeats)
        if not taken[place].any():
            taken[place] = True
            kept.append(block)
    return kept


def _runs_at(template: SymbolArray, lag: int) -> list[NestedBlock]:
    """Return the sections in which the template repeats itself at `lag` three times or more."""
    equal = template[lag:] == template[:-lag]
    if np.count_nonzero(equal) < 2 * lag:
        return []
    edge = np.flatnonzero(np.diff(np.concatenate(([0], equal.view(np.int8), [0]))))
    first, length = edge[::2], edge[1::2] - edge[::2]
    long = length >= 2 * lag
    return [NestedBlock(int(a), lag, int(size) // lag + 1) for a, size in zip(first[long], length[long], strict=True)]


def nested_share(template: SymbolArray) -> float:
    """Return the share of the template that is in blocks repeated three times or more."""
    if not len(template):
        return 0.0
    inside: npt.NDArray[np.bool_] = np.zeros(len(template), bool)
    for block in find_nested(template):
        inside[block.first : block.first + block.events * block.repeats] = True
    return float(inside.mean())


def is_looped(content: SymbolArray) -> bool:
    """Return whether a section of symbols is mostly in loops, as an optimizer's does in loops over parameters."""
    return len(content) >= MIN_NESTED_SYMBOLS and nested_share(content) >= LOOPED


def find_cyclic(template: SymbolArray) -> tuple[NestedBlock, ...]:
    """Return the blocks of a cyclic template, also those across its ends; `first` is a place in the period."""
    return _cyclic_blocks(template.tobytes(), template.dtype.str)


@lru_cache(maxsize=32)  # several functions need the blocks of one template
def _cyclic_blocks(data: bytes, kind: str) -> tuple[NestedBlock, ...]:
    template = as_symbols(np.frombuffer(data, kind))
    period = len(template)
    taken, kept = np.zeros(period, bool), []
    for block in find_nested(as_symbols(np.tile(template, 2)[: max(period, MAX_TWICE)])):
        size = min(block.events * block.repeats, period)
        places = (block.first + np.arange(size)) % period
        if not taken[places].any():  # else it is a part of a longer block across the ends
            taken[places] = True
            kept.append(NestedBlock(block.first % period, block.events, block.repeats))
    return tuple(kept)


def parameter_loops(template: SymbolArray) -> list[tuple[NestedBlock, float]]:
    """Return the loops of few kernels, like an optimizer's over parameters, each with its share of its own kernels.

    Loops over small layers do not count: the forward and the backward pass run them equally often.
    """
    count, blocks = np.bincount(template), find_cyclic(template)
    layers = [b for b in blocks if b.events >= LAYER]
    most = MOSTLY * len(template) if len(layers) <= 1 else len(template)
    small = [b for b in blocks if b.events <= SMALL and MIN_NESTED_SYMBOLS <= size_of(b) <= most]
    alone = [b for b in small if b.events < LAYER or sum(are_as_many(b, layer) for layer in layers) <= 1]
    return [(b, _own_share(template, b, count)) for b in alone]


def has_layers(template: SymbolArray) -> bool:
    """Return whether half of a template is two runs with equally many parts: layers, forward and backward."""
    return any(size_of(a) + size_of(b) >= 0.5 * len(template) for a, b in layer_pairs(template))


def layer_pairs(template: SymbolArray) -> list[tuple[NestedBlock, NestedBlock]]:
    """Return the pairs of layer runs with equally many parts, the longer run first, the longest pairs first."""
    runs = sorted((b for b in find_cyclic(template) if b.events >= LAYER), key=size_of, reverse=True)
    return [(a, b) for i, a in enumerate(runs) for b in runs[i + 1 :] if are_as_many(a, b)]


def are_as_many(one: NestedBlock, other: NestedBlock) -> bool:
    """Return whether two runs have equally many parts; one more is allowed, as another beginning may add it."""
    return abs(one.repeats - other.repeats) <= 1


def size_of(block: NestedBlock) -> int:
    """Return the symbols in all repetitions of a block."""
    return block.events * block.repeats


def _own_share(template: SymbolArray, block: NestedBlock, count: npt.NDArray[np.int64]) -> float:
    """Return the share of a block's symbols that occur nowhere else in the template."""
    body = template[(block.first + np.arange(block.events)) % len(template)]
    inside = np.bincount(body, minlength=len(count)) * block.repeats
    return float((inside[body] >= count[body]).mean())


def has_inner_loops(template: SymbolArray) -> bool:
    """Return whether a period has inner loops over layers or parameters, as an iteration has."""
    return nested_share(template) >= NESTED or has_parameter_loop(template)


def has_parameter_loop(template: SymbolArray) -> bool:
    """Return whether there is a loop of few kernels, most of which run nowhere else in the iteration."""
    return any(own >= OWN for _, own in parameter_loops(template))
