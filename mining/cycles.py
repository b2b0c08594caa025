"""The second level: what comes back every this many iterations, found from the lengths of the iterations.

The token of an iteration is the number of its symbols beyond the period, counted to the start of the next iteration.
Tokens that come back regularly are a cycle: the optimizer after some micro-batches, evaluation, checkpoints,
statistics. O(n / period).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from deepprof.mining.iterations import Iterations
from deepprof.mining.nesting import has_parameter_loop, is_looped
from deepprof.mining.symbols import SymbolArray, as_symbols

Int64s = npt.NDArray[np.int64]
Kind = Literal["accumulation", "evaluation", "checkpoint", "statistics", "unknown"]

MIN_TIMES = 3  # occurrences; two suffice for an optimizer's loop: three iterations show it twice between micro-batches
ALTERNATING = 0.3  # of the iterations that must be shorter by the same size: every other one, with some lost
REGULAR = 0.75  # of the distances between occurrences that must be the same, or multiples
IN_STEP = 6  # this many occurrences in the same phase are no accident, whatever else looks like them
ALIKE = 0.7  # of the median size: smaller extras are something else
MIN_EXPECTED_SHARE = 0.3  # of the occurrences expected at a distance that must be present
MAX_CYCLES = 8
MAX_TOKENS = 1 << 16  # iterations examined
SHARED = 0.5  # of the extra's short sequences: if more occur in the iteration too, its parts run, as in an evaluation
MANY_MICRO_BATCHES = 64  # micro-batches: more are hardly ever accumulated
STATISTICS = 0.1  # of the period: a longer section of its own kernels computes more than a few numbers
MAX_LOGGED_SYMBOLS = 16  # symbols between iterations that may be a logged loss
NO_UPDATES: Int64s = np.empty(0, np.int64)
GRAM = 4  # symbols of a sequence that distinguishes a part of the iteration from other uses of its kernels


@dataclass(frozen=True, slots=True)
class LoopCycle:
    """Every `every` iterations `extra` more symbols run, first in or after iteration `phase`.

    `content` is the extra section where it was seen most clearly. `whole` is one whole cycle from the end of that
    section on: the iterations and the extra.
    """

    every: int
    extra: int
    kind: Kind
    phase: int
    content: SymbolArray
    whole: SymbolArray


def find_cycles(
    symbols: SymbolArray,
    rows: Iterations,
    template: SymbolArray,
    optimizer: npt.NDArray[np.bool_] | None,
    updates: Int64s = NO_UPDATES,
) -> list[LoopCycle]:
    """Return the cycles over the iterations, smallest distance first.

    A cycle must be seen three times, or twice where `_is_enough` accepts it, as for an optimizer.

    `optimizer` marks symbol values whose names look like an optimizer's, where names are available; `updates` are
    places where the framework's ranges show an update of the weights."""
    first = rows.first[rows.complete][:MAX_TOKENS]
    updated = _are_updated(first, updates)
    template, extra = _shortest(symbols, first, template)
    extra[extra < 0] = 0
    found: list[LoopCycle] = []
    while len(found) < MAX_CYCLES and (token := _find_token(extra, STATISTICS * len(template))) is not None:
        every, size, due = token
        content, after = _clearest(symbols, first, template, due[np.abs(extra[due] - size) <= _tolerance(size)], size)
        accumulated = not updated and _is_optimizer(content, template, every, optimizer)
        kind = "accumulation" if accumulated else _classify(content, after, template)
        enough = len(due) >= MIN_TIMES or _is_enough(kind, content, due, every, extra)
        extra[due] = np.maximum(extra[due] - size, 0)
        extra[due[extra[due] <= _tolerance(size)]] = 0
        if not enough:
            continue
        whole = np.concatenate([np.tile(np.roll(template, -after), every), content])
        found.append(LoopCycle(every, size, kind, int(due[0]), content, as_symbols(whole)))
    return sorted(found, key=lambda c: c.every)


def _shortest(symbols: SymbolArray, first: Int64s, template: SymbolArray) -> tuple[SymbolArray, Int64s]:
    """Return the template without what every other iteration lacks, and how much longer each iteration is.

    Of two micro-batches one is followed by the optimizer, and the template may be either of them.
    """
    extra = np.diff(first) - len(template)
    sizes, counts = np.unique(extra[extra < 0], return_counts=True)
    if not len(sizes):
        return template, extra
    size = -int(sizes[np.argmax(counts)])
    lacking = np.flatnonzero(extra <= -0.5 * size)  # noise may make up for some of it
    if len(lacking) < max(2.0, ALTERNATING * len(extra)) or size >= len(template):
        return template, extra
    if (np.diff(lacking) == 2).mean() < REGULAR:
        return template, extra
    short = np.flatnonzero(extra == -size)
    piece = symbols[first[short[0]] : first[short[0] + 1]]
    place = insertion_place(template, piece, size)[0]
    return as_symbols(np.delete(template, np.arange(place, place + size))), extra + size


def _tolerance(size: int) -> float:
    """Return by how many symbols two equal extras may differ."""
    return min(2 + 0.02 * size, 0.25 * size)


def _find_token(extra: Int64s, large: float) -> tuple[int, int, Int64s] | None:
    """Return (every, size, rows) of an extra that comes at regular distances, None without one.

    The commonest small sizes are tried first, then large sizes, whatever else coincides with them, then all sizes.
    """
    return _find_small(extra, large) or _find_large(extra, large) or _find_small(extra, float(extra.max(initial=0)))


def _find_small(extra: Int64s, most: float) -> tuple[int, int, Int64s] | None:
    """Return (every, size, rows) of the commonest size up to `most` that comes regularly."""
    sizes, counts = np.unique(extra[(extra > 0) & (extra <= most)], return_counts=True)
    for size in sizes[np.argsort(-counts, kind="stable")][:MAX_CYCLES].tolist():
        for off in (0.0, _tolerance(size)):  # noise of about the same size must not hide what is always the same
            at = np.flatnonzero(np.abs(extra - size) <= off)
            found = rhythm(at, len(extra)) if len(at) >= 2 else None
            if found is not None:
                return found[0], size, _due_rows(extra, found[1], found[0], size)
    return None


def _find_large(extra: Int64s, least: float) -> tuple[int, int, Int64s] | None:
    """Return (every, size, rows) of extras above `least` at regular distances; nearly all of them reach that size."""
    at = np.flatnonzero(extra > least)
    found = rhythm(at, len(extra)) if len(at) >= MIN_TIMES else None
    if found is None:
        return None
    sizes = extra[found[1]]
    size = int(np.quantile(sizes, 0.1, method="lower"))
    return (found[0], size, found[1]) if size >= ALIKE * np.median(sizes) else None


def _is_enough(kind: Kind, content: SymbolArray, due: Int64s, every: int, extra: Int64s) -> bool:
    """Return whether an extra that was seen only twice is more than chance.

    The distance must allow no more than these two. Then an optimizer's loop is accepted. Anything else must first come
    at the end of a whole cycle from the first iteration on, and no other iteration may differ.
    """
    if len(due) != 2 or due[0] >= every or len(extra) - due[-1] > every:
        return False
    if kind == "accumulation" and is_looped(content):
        return True
    return int((extra > 0).sum()) == len(due) and int(due[0]) >= every - 2


def rhythm(at: Int64s, length: int) -> tuple[int, Int64s] | None:
    """Return the distance at which most of the rows follow each other, and those rows; None when they are irregular.

    Either most rows are in the same phase, apart from a few others, or most follow each other at that distance or
    multiples of it: a row that is lost or found twice shifts all rows after it, and a row in which two extras coincide
    looks different.
    """
    apart = np.diff(at)
    distances, votes = np.unique(apart, return_counts=True)
    every = int(distances[np.argmax(votes)])
    if every < 2 or votes.max() < 0.4 * len(apart) or len(at) * every < MIN_EXPECTED_SHARE * length:
        return None
    steps, counts = np.unique(at % every, return_counts=True)
    if counts.max() >= max(REGULAR * len(at), IN_STEP):
        return every, at[at % every == steps[np.argmax(counts)]]
    regular = (apart % every == 0) & (apart <= 4 * every)
    return (every, at) if regular.mean() >= REGULAR else None


def _due_rows(extra: Int64s, at: Int64s, every: int, size: int) -> Int64s:
    """Return the rows that show the extra, and the rows due between them that hold at least as much."""
    between = [
        np.arange(a, b, every) for a, b in zip(at[:-1].tolist(), at[1:].tolist(), strict=True) if (b - a) % every == 0
    ]
    due = np.unique(np.concatenate([at, *between]))
    return np.asarray(due[extra[due] >= size - _tolerance(size)])


def _clearest(
    symbols: SymbolArray, first: Int64s, template: SymbolArray, rows: Int64s, size: int
) -> tuple[SymbolArray, int]:
    """Return the extra section of the row that is otherwise most like the template, and the section's place.

    Without the section at place a, a row is the template: its first a symbols are compared from the left, the rest from
    the right. The place with the fewest differences is taken.
    """
    best: tuple[int, SymbolArray, int] = (len(template) + 1, symbols[:0], 0)
    for row in rows[:16].tolist():
        piece = symbols[first[row] : first[row + 1]]
        place, differences = insertion_place(piece, template, size)
        if differences < best[0]:
            best = differences, piece[place : place + size], place
    return best[1], best[2]


def insertion_place(longer: SymbolArray, shorter: SymbolArray, size: int) -> tuple[int, int]:
    """Return the place where `longer` has `size` symbols more than `shorter`, and how many other symbols differ."""
    common = min(len(shorter), max(0, len(longer) - size))
    left = np.append(0, np.cumsum(longer[:common] != shorter[:common]))
    right = np.append(0, np.cumsum(longer[::-1][:common] != shorter[::-1][:common]))
    differences = left + right[::-1]
    place = int(np.argmin(differences))
    return place, int(differences[place])


def _are_updated(first: Int64s, updates: Int64s) -> bool:
    """Return whether most iterations, which begin at `first`, have an update of the weights, so that they are whole.

    Updates are counted over all iterations together: where an extra follows, two updates can be between two
    beginnings, and none between the next two.
    """
    if len(first) < 2:
        return False
    held = int(np.searchsorted(updates, first[-1]) - np.searchsorted(updates, first[0]))
    return held >= REGULAR * (len(first) - 1)


def _classify(content: SymbolArray, after: int, template: SymbolArray) -> Kind:
    """Return the kind of an extra that is no optimizer, by whether the iteration has the same symbols.

    Kernels that the iteration does not have are a checkpoint when they are many, or more than a few between iterations;
    else they are statistics.
    """
    if not len(content):
        return "unknown"
    large = len(content) > STATISTICS * len(template)
    if _shared_share(content, template) >= SHARED:
        return "evaluation" if large else "statistics"
    near = max(2, int(0.01 * len(template)))
    between = min(after, max(0, len(template) - after)) <= near and len(content) >= MAX_LOGGED_SYMBOLS
    return "checkpoint" if large or between else "statistics"


def _is_optimizer(
    content: SymbolArray, template: SymbolArray, every: int, optimizer: npt.NDArray[np.bool_] | None
) -> bool:
    """Return whether the extra is the optimizer, which runs once for several micro-batches and is in none of them.

    Kernel names decide where available. Otherwise an optimizer has its own kernels, and the repetition around
    it has no loop over parameters; the extra has one itself of some size, or comes every 2, 4, 8 … times, the usual
    numbers of micro-batches.
    """
    if every > MANY_MICRO_BATCHES:
        return False
    if optimizer is not None and optimizer[np.concatenate([content, template])].any():
        return bool(optimizer[content].any() and not optimizer[template].any())
    looped = is_looped(content) and len(content) > STATISTICS * len(template)
    likely = looped or every & (every - 1) == 0
    return _shared_share(content, template) < SHARED and likely and not has_parameter_loop(template)


def _shared_share(content: SymbolArray, template: SymbolArray) -> float:
    """Return the share of the extra's short sequences that the iteration has as well."""
    size = min(GRAM, len(content), len(template))
    grams = np.lib.stride_tricks.sliding_window_view(np.resize(template, len(template) + size - 1), size)
    known = {gram.tobytes() for gram in grams.astype(np.uint32)}
    inside = np.lib.stride_tricks.sliding_window_view(content, size).astype(np.uint32)
    return sum(gram.tobytes() in known for gram in inside) / len(inside)
