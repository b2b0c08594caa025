"""Find cycles mistaken for iterations: several iterations and an evaluation, with forward passes of the same model.

Such a cycle comes back as regularly as an iteration, and explains more of the sequence. The difference: it holds
several passes of a part that has all an iteration has, and beside them only what these passes have as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from deepprof.mining.matching import Matches, match
from deepprof.mining.nesting import find_cyclic, has_inner_loops, has_parameter_loop
from deepprof.mining.symbols import SymbolArray, as_symbols

MIN_PART_SYMBOLS = 64  # symbols: a shorter part of a period may be its layer
TWICE = 2  # fewest iterations in a cycle
WHOLE, PART = 0.9, 0.3  # share of a part that must match in a whole pass, and in one of which noise left only some
SCRAPS = 0.02  # of the period: if no more lies beside the passes, those that are cut short are examined
MIN_EVALUATION_SHARE = 0.15  # of the part: less beside the passes is no evaluation
KNOWN = 0.8  # of the short sequences beside the passes that must occur within them as well
OWN = 0.15  # of the short sequences within a pass that must occur only there: its backward pass and the update
NEW = 0.1  # of the part's different symbols, or two, may be new: an evaluation may count its correct results
LEFT = 0.5  # of the part's optimizer kernels, one in place of many: a second model's update is whole
GRAM = 2  # symbols: longer sequences are broken by what an evaluation leaves out
MOST_SYMBOLS = 1 << 17  # of the longest period examined


def iteration_within(
    template: SymbolArray, others: Iterable[SymbolArray], optimizer: npt.NDArray[np.bool_] | None
) -> SymbolArray | None:
    """Return the iteration that a period repeats besides forward passes of the same model, None when it is no cycle.

    `others` are shorter periods found in the same sequence, `optimizer` marks symbols named like an optimizer's.
    """
    if not 2 * MIN_PART_SYMBOLS <= len(template) <= MOST_SYMBOLS:
        return None
    inner = [
        as_symbols(np.take(template, block.first + np.arange(block.events), mode="wrap"))
        for block in find_cyclic(template)
        if block.events >= MIN_PART_SYMBOLS
    ]
    parts = [*inner, *(part for part in others if MIN_PART_SYMBOLS <= len(part) <= len(template) / TWICE)]
    whole = [part for part in parts if has_inner_loops(part) and _repeats_in(template, part, optimizer)]
    return max(whole, key=len, default=None)


def _repeats_in(template: SymbolArray, part: SymbolArray, optimizer: npt.NDArray[np.bool_] | None) -> bool:
    """Return whether the period consists of passes of `part` and, beside them, forward passes of it."""
    turned = as_symbols(np.tile(template, 2))
    passes = match(turned, part)
    good = passes.matched >= WHOLE * len(part)
    if good.sum() < 2 * TWICE - 1:
        return False
    seen = passes.matched >= PART * len(part)
    change = np.zeros(len(turned) + 1, np.int64)
    np.add.at(change, passes.first[seen], 1)
    np.add.at(change, passes.end[seen], -1)
    beside = turned[np.cumsum(change[:-1]) == 0]
    beside = beside[: len(beside) // 2 + 1]
    if optimizer is not None and _updates_beside(optimizer, template, part, beside):
        return False
    if len(beside) <= SCRAPS * len(template) and _updates(part, optimizer):
        beside = _within(turned, passes, seen & ~good)
    return len(beside) >= MIN_EVALUATION_SHARE * len(part) and _is_forward_of(part, as_symbols(beside))


def _within(symbols: SymbolArray, passes: Matches, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.integer]:
    """Return the symbols of the first half of the chosen passes, because the period was repeated twice."""
    bounds = list(zip(passes.first[chosen].tolist(), passes.end[chosen].tolist(), strict=True))
    return np.concatenate([symbols[:0], *(symbols[first:end] for first, end in bounds[: (len(bounds) + 1) // 2])])


def _updates(part: SymbolArray, optimizer: npt.NDArray[np.bool_] | None) -> bool:
    """Return whether a part holds an update: layers that run forward again in the backward pass do not."""
    return bool(optimizer[part].any()) if optimizer is not None else has_parameter_loop(part)


def _updates_beside(
    optimizer: npt.NDArray[np.bool_], template: SymbolArray, part: SymbolArray, beside: npt.NDArray[np.integer]
) -> bool:
    """Return whether more of the optimizer runs beside the part than an edited pass may leave there."""
    own = int(optimizer[part].sum())
    return int(optimizer[beside].sum()) > LEFT * own or (not own and bool(optimizer[template].any()))


def _is_forward_of(part: SymbolArray, beside: SymbolArray) -> bool:
    """Return whether a stretch holds only what the part has too, and the part has something that the stretch lacks."""
    new = np.setdiff1d(beside, part)
    if len(new) > max(2.0, NEW * len(np.unique(part))):
        return False
    within, outside = _grams(np.resize(part, len(part) + GRAM - 1)), _grams(beside)
    if not len(outside):
        return False
    shared = np.isin(within, outside)
    return bool(np.isin(outside, within).mean() >= KNOWN and shared.mean() <= 1 - OWN)


def _grams(symbols: npt.NDArray[np.integer]) -> npt.NDArray[np.void]:
    """Return the pairs of neighbours, one for each place."""
    if len(symbols) < GRAM:
        return np.zeros(0, f"V{4 * GRAM}")
    windows = np.lib.stride_tricks.sliding_window_view(symbols.astype(np.uint32), GRAM)
    return np.ascontiguousarray(windows).view(f"V{4 * GRAM}").ravel()
