"""Find the window of a sequence that shows its iteration, and the candidate of that window that is the iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from deepprof.mining.acceptance import MIN_PASSES, MORE_THAN_LAYERS, AcceptanceVerdict, are_layers, judge, refuse_layers
from deepprof.mining.candidates import Candidate, follow, measure, propose
from deepprof.mining.choice import MAX_EDITS, is_flat, is_run_of, select
from deepprof.mining.cycles import LoopCycle, find_cycles
from deepprof.mining.evidence import Evidence
from deepprof.mining.iterations import to_iterations
from deepprof.mining.nesting import LAYER
from deepprof.mining.ranges import TILING, by_trust, find_multiple
from deepprof.mining.symbols import SymbolArray, as_symbols
from deepprof.mining.template import Template, merge_variants

Int64s = npt.NDArray[np.int64]

WINDOWS = (1 << 16, 1 << 18, 1 << 20)  # symbols searched; a larger window only if the smaller one shows no clear loop
ENOUGH_PASSES = 8
ENOUGH_COVERAGE = 0.7
MIN_COVERAGE = 0.5  # of the window, for a candidate that replaces one refused as a layer
VARIANT_ROUNDS = 3
NEARLY = 0.7  # of the micro-batches' coverage, which the iteration made of them must reach
FEW = 0.1  # of the passes that may lack their range or copy, or have a second one
MOST_PASSES, SECOND = 16, 0.5  # most passes of a critic, and least size of its generator's pass relative to one of them
NOTHING = AcceptanceVerdict(False, 0.0, "no sequence of kernels repeats at regular distances three times or more")


@dataclass(frozen=True, slots=True)
class WindowSearch:
    """What one window shows: its best candidate, if any, and the verdict; `symbols` is all, with variants merged."""

    symbols: SymbolArray
    window: SymbolArray
    evidence: Evidence  # of the window
    candidate: Candidate | None
    verdict: AcceptanceVerdict

    @property
    def explained(self) -> int:
        """Symbols of the window that the candidate's passes match."""
        return 0 if self.candidate is None else int(self.candidate.matches.matched.sum())

    @property
    def coverage(self) -> float:
        """Share of the window that the candidate's passes match."""
        return 0.0 if self.candidate is None else self.candidate.coverage

    @property
    def is_clear(self) -> bool:
        """Whether a larger window would hardly change the choice."""
        enough = self.candidate is not None and self.candidate.passes >= ENOUGH_PASSES
        return enough and self.coverage > ENOUGH_COVERAGE


def search(symbols: SymbolArray, evidence: Evidence, windows: Sequence[tuple[int, int]]) -> WindowSearch:
    """Return the first window's result that is accepted and clear, else the best accepted, else the first refused one.

    `windows` are the bounds [first, end) to search. A clear loop in a small window is enough. Later windows are for
    loops that begin late; such a loop must explain more of the whole sequence than the candidate refused at first, else
    it is an inner loop of that candidate.
    """
    refused: WindowSearch | None = None
    best: WindowSearch | None = None
    for first, end in windows:
        look = _with_what_is_before(_look_at(symbols, evidence, first, end), first, end)
        if not look.verdict.accepted:
            refused = look if refused is None or refused.candidate is None else refused
        elif first and refused and _explains_less(look, refused):
            continue
        elif best is None or look.coverage > best.coverage:
            best = look
        if best is not None and (best.is_clear or first > 0 or end == len(symbols)):
            break
        if best is None and look.verdict.final:
            break
    return best or refused or WindowSearch(symbols, symbols, evidence, None, NOTHING)


def _with_what_is_before(look: WindowSearch, first: int, end: int) -> WindowSearch:
    """Return a later window's result, refused if what runs before it shows its passes to be layers of one iteration."""
    if not first or look.candidate is None or not look.verdict.accepted:
        return look
    whole = measure(look.symbols[:end], look.candidate.template)
    if not are_layers(look.candidate, whole, look.evidence):
        return look
    return replace(look, candidate=whole, verdict=refuse_layers(whole))


def _explains_less(look: WindowSearch, refused: WindowSearch) -> bool:
    """Return whether a loop found in a later window matches no more of the sequence than what was refused before."""
    if look.candidate is None:
        return True
    matches = follow(look.symbols, look.candidate.template.symbols)[1]
    return int(matches.matched.sum()) <= refused.explained


def windows_of(n: int, growing: Sequence[int] = WINDOWS) -> list[tuple[int, int]]:
    """Return the parts of a sequence to search: growing ones from its start, then later ones."""
    sizes = [size for size in growing if size < n] + [min(n, growing[-1])]
    later = [(n // 2, n), (n // 4, 3 * n // 4), (3 * n // 4, n)]
    return [(0, size) for size in dict.fromkeys(sizes)] + [(a, min(b, a + WINDOWS[1])) for a, b in later if n >= 64]


def _look_at(symbols: SymbolArray, evidence: Evidence, first: int, end: int) -> WindowSearch:
    """Return the result of the window [first, end).

    When the choice is refused for what it is, a larger candidate may still be the iteration: with few iterations, one
    bad one makes the climb stop at the layers.
    """
    shown = _with_updates(evidence.between(first, end), symbols[first:end])
    candidates = propose(symbols[first:end], shown)
    pick = select(symbols[first:end], candidates, shown)
    if pick is None:
        return WindowSearch(symbols, symbols[first:end], shown, None, NOTHING)
    pick = _promote(symbols[first:end], pick, shown)
    pick = _fed_multiple(symbols[first:end], pick, shown)
    verdict = judge(pick, shown)
    larger = [c for c in candidates if c.period >= 2 * pick.period and c.coverage >= MIN_COVERAGE]
    for other in larger if verdict.final else []:
        if is_run_of(other.template.symbols, pick.template.symbols):
            continue
        if (second := judge(other, shown)).accepted:
            pick, verdict = other, second
            break
    if verdict.layers:  # joining kernels would hide that these are layers
        return WindowSearch(symbols, symbols[first:end], shown, pick, verdict)
    joined, better = _join_variants(symbols, pick, shown, first, end)
    return WindowSearch(joined, joined[first:end], shown, better, verdict if better is pick else judge(better, shown))


def _with_updates(evidence: Evidence, symbols: SymbolArray) -> Evidence:
    """Return the evidence on a window with `updates`: where its optimizer's kernels are."""
    return evidence if evidence.optimizer is None else replace(evidence, updates=evidence.optimizer[symbols])


def _promote(symbols: SymbolArray, pick: Candidate, evidence: Evidence) -> Candidate:
    """Return the iteration of several micro-batches and the optimizer where `pick` is only a micro-batch."""
    rows, updates = to_iterations(pick.matches, pick.period), evidence.update_ranges
    cycles = find_cycles(symbols, rows, pick.template.symbols, evidence.optimizer, updates)
    for cycle in (c for c in cycles if c.kind == "accumulation" or _is_second_half(c, pick.period)):
        whole = measure(symbols, Template(cycle.whole, pick.template.variants))
        fits = whole.passes >= 2 and whole.edit_share <= MAX_EDITS and whole.coverage >= NEARLY * pick.coverage
        if fits and not _is_epoch(whole, cycle, updates):
            return whole
    return pick


def _fed_multiple(symbols: SymbolArray, pick: Candidate, evidence: Evidence) -> Candidate:
    """Return the iteration of several equal passes that are fed together where `pick` is only one of its layers.

    Kernels alone do not distinguish a model's layers from iterations. Ranges of the framework or copies from the host
    do, once in a fixed number of passes.
    """
    may_be_layer = is_flat(pick.template.symbols) and pick.period >= LAYER and pick.passes < MORE_THAN_LAYERS - 1
    if not may_be_layer:
        return pick
    loops = [f.positions for f in by_trust(evidence, "step", "loop") if f.trust == "loop" or f.coverage >= TILING]
    copied = [] if evidence.copies is None else [np.flatnonzero(evidence.copies)]
    for places in (*loops, *copied):
        parts = find_multiple(places, pick.period)
        if parts < 2:
            continue
        whole = measure(symbols, Template(as_symbols(np.tile(pick.template.symbols, parts)), pick.template.variants))
        wanted = whole.passes * (1 - evidence.start / len(symbols))  # what the capture saw launched
        if whole.passes >= MIN_PASSES and abs(len(np.unique(places)) - wanted) <= 1 + FEW * wanted:
            return whole
    return pick


def _is_epoch(whole: Candidate, cycle: LoopCycle, updates: Int64s) -> bool:
    """Return whether each pass of a cycle updates the weights and the extra does not: iterations and an evaluation.

    A second model would have its own update.
    """
    return bool(len(updates) and np.median(whole.count(updates)) == cycle.every)


def _is_second_half(cycle: LoopCycle, period: int) -> bool:
    """Return whether an apparent checkpoint every few passes is so large that it is a second model's part."""
    return cycle.kind == "checkpoint" and cycle.every <= MOST_PASSES and cycle.extra >= SECOND * period


def _join_variants(
    symbols: SymbolArray, pick: Candidate, shown: Evidence, first: int, end: int
) -> tuple[SymbolArray, Candidate]:
    """Return symbols and candidate with kernel variants joined while that explains more of the window."""
    for _ in range(VARIANT_ROUNDS - 1):
        merged = merge_variants(pick.template.variants, int(symbols.max()) + 1) if pick.template.variants else None
        if merged is None:
            break
        joined = as_symbols(merged[symbols])
        better = select(joined[first:end], propose(joined[first:end], shown), shown)
        better = better and _promote(joined[first:end], better, shown)
        better = better and _fed_multiple(joined[first:end], better, shown)
        if better is None or better.coverage <= pick.coverage:
            break
        symbols, pick = joined, better
    return symbols, pick
