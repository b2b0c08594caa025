"""Programs of several loops: what one loop leaves unexplained is searched for the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from deepprof.mining.candidates import Candidate, follow
from deepprof.mining.choice import LAYER_SIZES
from deepprof.mining.evidence import Evidence
from deepprof.mining.iterations import Iterations, to_iterations
from deepprof.mining.loops import MinedLoop, MiningResult, find_posed, make_loop, pose
from deepprof.mining.matching import match
from deepprof.mining.search import WINDOWS, search
from deepprof.mining.symbols import SymbolArray, Symbols, as_symbols

STRANGE = 0.1  # of the period that is edited, or added or missing up to the next iteration; variants have less

JUMP = 0.05  # of the period: growth adds less at a time

IN_A_ROW = 3


MAX_LOOPS = 6
MAX_TRIES = 8  # sections searched
WORTH = 0.05  # of the sequence: a loop on less is a detail around the main loop
TWICE = 3  # matches in two iterations, one of them broken: a layer has more, as it occurs several times in each
ALL = 0.95  # of a cut iteration that iterations of another loop must match
MIN_STRETCH = 3 * LAYER_SIZES[0]  # symbols in a section worth searching: three of the shortest iterations


def find_loops(
    sequence: Symbols,
    evidence: Evidence | None = None,
    *,
    coarse: npt.NDArray[np.integer] | None = None,
    windows: Sequence[int] = WINDOWS,
) -> MiningResult:
    """Find all loops of a program that runs several: training and validation, two models in turn or in sequence.

    The first loop is that of `find_loop`. Then the longest sections that no loop explains are searched, as long as
    they may contain a loop on a twentieth of the sequence. Arguments and errors are those of `find_loop`.
    """
    main, problem = find_posed(pose(sequence, evidence, coarse, windows))
    if main.loop is None:
        return main
    loops = [main.loop]
    for _ in range(MAX_LOOPS - 1):
        more = _find_another(problem.symbols, problem.evidence, loops)
        if more is None:
            break
        loops = more
    loops = settle_ends(problem.symbols, loops)
    return problem.named(MiningResult(tuple(sorted(loops, key=lambda loop: -int(loop.iterations.matched.sum())))))


def settle_ends(symbols: SymbolArray, loops: list[MinedLoop]) -> list[MinedLoop]:
    """Return the loops; a cut iteration at an end moves to another loop if it consists of that loop's whole iterations.

    The last forward pass of an evaluation looks like the beginning of one more training iteration.
    """
    for one in range(len(loops)):
        for row in (0, len(loops[one].iterations.first) - 1):
            for other in range(len(loops)):
                taken = None if other == one else _taken_over(symbols, loops[one].iterations, row, loops[other])
                if taken is not None:
                    left = np.arange(len(loops[one].iterations.first)) != row
                    loops[one] = _with_rows(loops[one], loops[one].iterations.select(left), len(symbols))
                    loops[other] = _with_rows(loops[other], taken, len(symbols))
                    break
    return loops


def _taken_over(symbols: SymbolArray, rows: Iterations, row: int, other: MinedLoop) -> Iterations | None:
    """Return the other loop's iterations with those in an incomplete row added, None if they do not fill the row."""
    if row >= len(rows.first) or rows.complete[row] or row < 0 or len(rows.first) < 2:
        return None
    first, end, known = int(rows.first[row]), int(rows.end[row]), other.iterations
    # Iterations of the other loop right before the row may begin elsewhere in a pass: it is matched again from there.
    kept = (known.end <= first - other.period) | (known.first >= end)
    begin = int(known.first[~kept].min(initial=first))
    found = to_iterations(follow(symbols[begin:end], other.template)[1], other.period)
    if not found.complete.any() or int(found.matched.sum()) < ALL * (end - begin):
        return None
    shifted = replace(found, first=found.first + begin, end=found.end + begin)
    return in_order(known.select(kept), shifted)


def in_order(one: Iterations, other: Iterations) -> Iterations:
    """Return the iterations of both, ordered by their beginning."""
    order = np.argsort(np.concatenate([one.first, other.first]), kind="stable")
    columns = (np.concatenate([getattr(one, name), getattr(other, name)]) for name in Iterations.__slots__)
    return Iterations(*(column[order] for column in columns))


def _find_another(symbols: SymbolArray, evidence: Evidence, loops: list[MinedLoop]) -> list[MinedLoop] | None:
    """Return the loops with one more, and without iterations of theirs that belong to it; None when there is none.

    First the sections that no loop covers are searched, then also those that loops cover only badly.
    """
    kept = [_without_strangers(loop, len(symbols)) for loop in loops]
    for candidates in (loops, kept) if any(a is not b for a, b in zip(loops, kept, strict=True)) else (loops,):
        free = uncovered(len(symbols), candidates)
        if free.sum() >= WORTH * len(symbols):
            found = _search_stretches(symbols, evidence, free, candidates)
            if found is not None:
                return [*candidates, found]
    return None


def _without_strangers(loop: MinedLoop, length: int) -> MinedLoop:
    """Return the loop without the sections of iterations that are not its own, the same loop when there are none."""
    strange = find_strangers(loop.iterations, loop.period)
    return loop if not strange.any() or strange.all() else _with_rows(loop, loop.iterations.select(~strange), length)


def _with_rows(loop: MinedLoop, rows: Iterations, length: int) -> MinedLoop:
    first, end = (int(rows.first[0]), int(rows.end[-1])) if len(rows.first) else (0, 0)
    return replace(loop, iterations=rows, prologue=first, epilogue=length - end)


def _apart(loop: MinedLoop, free: npt.NDArray[np.bool_]) -> MinedLoop:
    """Return the loop with its iterations ended where another loop's begin, without those that this would break."""
    rows, length = loop.iterations, len(free)
    covered = np.append(np.where(free, length, np.arange(length)), length)
    following = np.minimum.accumulate(covered[::-1])[::-1]
    end = np.minimum(rows.end, following[rows.first])
    edits = np.maximum(rows.edits - (rows.end - end), 0)
    cut = Iterations(rows.first, end, rows.matched, edits, rows.complete)
    return _with_rows(loop, cut.select(end - rows.first >= rows.matched), length)


def uncovered(length: int, loops: list[MinedLoop]) -> npt.NDArray[np.bool_]:
    """Return which symbols are in no iteration of any loop."""
    change = np.zeros(length + 1, np.int64)
    for loop in loops:
        np.add.at(change, loop.iterations.first, 1)
        np.add.at(change, loop.iterations.end, -1)
    free: npt.NDArray[np.bool_] = np.cumsum(change[:-1]) == 0
    return free


def stretches(free: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the longest uncovered sections [first, end), the longest first."""
    edge = np.flatnonzero(np.diff(np.concatenate(([0], free.view(np.int8), [0]))))
    first, end = edge[::2], edge[1::2]
    for row in np.argsort(first - end, kind="stable")[:MAX_TRIES].tolist():
        if end[row] - first[row] >= MIN_STRETCH:
            yield int(first[row]), int(end[row])


def _search_stretches(
    symbols: SymbolArray, evidence: Evidence, free: npt.NDArray[np.bool_], loops: list[MinedLoop]
) -> MinedLoop | None:
    """Return the first loop found in one of the sections that matches enough of the sequence, else None."""
    hidden = as_symbols(np.where(free, symbols, np.uint32(symbols.max()) + np.uint32(1)))
    if evidence.optimizer is not None:
        evidence = replace(evidence, optimizer=np.append(evidence.optimizer, False))
    for first, end in stretches(free):
        look = search(hidden, evidence, [(first, min(end, first + WINDOWS[1]))])
        if look.candidate is None or not look.verdict.accepted or _is_detail(look.candidate, loops):
            continue
        loop = _apart(_without_others(make_loop(look, look.candidate, evidence), int(hidden.max())), free)
        if loop.iterations.complete.sum() >= 3 and loop.iterations.matched.sum() >= WORTH * len(symbols):
            return loop
    return None


def _without_others(loop: MinedLoop, hidden: int) -> MinedLoop:
    """Return the loop without the cycles that are other loops, which appear as hidden symbols."""
    return replace(loop, cycles=tuple(c for c in loop.cycles if hidden not in c.content))


def _is_detail(candidate: Candidate, loops: list[MinedLoop]) -> bool:
    """Return whether a repetition is too short to be its own loop, or a layer of one found before."""
    template = candidate.template.symbols
    if len(template) < LAYER_SIZES[0]:
        return True
    for loop in loops:
        passes = match(np.tile(loop.template, 2), template)
        if int((2 * passes.matched >= len(template)).sum()) > TWICE:
            return True
    return False


def find_strangers(rows: Iterations, period: int) -> npt.NDArray[np.bool_]:
    """Return which iterations belong to sections of three or more that differ strongly, beginning with a jump."""
    longer = np.append(np.diff(rows.first) - period, 0)[: len(rows.first)]
    odds = np.where(rows.complete, np.maximum(rows.edits, np.abs(longer)), period)
    strange = odds > STRANGE * period
    before = np.append(0, odds[:-1])
    begins = np.flatnonzero(strange & ~np.append(False, strange[:-1]))
    found: npt.NDArray[np.bool_] = np.zeros(len(strange), bool)
    for begin in begins.tolist():
        ordinary = np.flatnonzero(~strange[begin:])
        end = begin + (int(ordinary[0]) if len(ordinary) else len(strange) - begin)
        jumped = odds[begin] - before[begin] > JUMP * period
        found[begin:end] = end - begin >= IN_A_ROW and jumped
    return found
