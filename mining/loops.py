"""Finding the iteration of a symbol sequence: levels, choice, phase, match, and the rule that accepts it or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from deepprof.mining.acceptance import Verdict, judge
from deepprof.mining.choice import Candidate, propose, select
from deepprof.mining.evidence import Evidence
from deepprof.mining.matching import Matches, match
from deepprof.mining.nesting import Nested, find_nested
from deepprof.mining.phase import Phase, Source, find_phase
from deepprof.mining.symbols import SymbolArray, as_symbols
from deepprof.mining.template import merge_variants

__all__ = ["Iterations", "Loop", "Mined", "find_loop"]

Int64s = npt.NDArray[np.int64]

WINDOWS = (1 << 16, 1 << 18, 1 << 20)  # symbols looked at; more only while the smaller window shows no clear loop
ENOUGH_PASSES = 8
ENOUGH_COVERAGE = 0.7
VARIANT_ROUNDS = 3
WHOLE = 0.99  # of the period: the last iteration may lack what prepares the next


@dataclass(frozen=True, slots=True)
class Iterations:
    """Arrays of one row per iteration: symbols [first, end), `matched` of them as in the template, `edits` not.

    `complete` is false for an iteration that the capture's start or end cuts.
    """

    first: Int64s
    end: Int64s
    matched: Int64s
    edits: Int64s
    complete: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Loop:
    """A repeated iteration: its template from its first symbol on, where it stands, and how sure this is."""

    template: SymbolArray
    iterations: Iterations
    confidence: float
    evidence: str
    source: Source
    family: str | None
    nested: tuple[Nested, ...]

    @property
    def period(self) -> int:
        """SymbolArray per iteration."""
        return len(self.template)


@dataclass(frozen=True, slots=True)
class Mined:
    """The loop that was found, or why there is none (exactly one of the two)."""

    loop: Loop | None
    reason: str | None = None


def find_loop(sequence: Sequence[int] | npt.NDArray[np.integer], evidence: Evidence | None = None) -> Mined:
    """Find the iteration that `sequence` repeats, without its count.

    `sequence` holds non-negative integers, one per kernel. Raises `ValueError` for anything else. Time is
    O(w log w) for a window of at most 2^20 symbols and O(n) to match the rest; memory is 8 bytes per symbol of
    the window for each of the depths looked at.
    """
    symbols, evidence = as_symbols(sequence), evidence or Evidence()
    if len(symbols) < 3:
        return Mined(None, f"only {len(symbols)} kernels on the main stream: nothing can repeat three times")
    found = search(symbols, evidence)
    if found is None:
        return Mined(None, "no sequence of kernels comes back at regular distances three times or more")
    symbols, candidate, window = found
    verdict = judge(symbols[:window], candidate, evidence.window(window))
    if not verdict.accepted:
        return Mined(None, verdict.reason)
    phase = find_phase(symbols[:window], candidate, evidence.window(window))
    return Mined(make_loop(symbols, candidate, phase, verdict))


def search(symbols: SymbolArray, evidence: Evidence) -> tuple[SymbolArray, Candidate, int] | None:
    """Return the chosen candidate of the smallest window that shows it clearly, with the symbols it was found in."""
    best: tuple[SymbolArray, Candidate, int] | None = None
    for size in WINDOWS:
        window = min(size, len(symbols))
        found = search_window(symbols, evidence, window)
        if found is not None and (best is None or found[1].coverage > best[1].coverage):
            best = (*found, window)
        if window == len(symbols) or (best is not None and is_clear(best[1])):
            break
    return best


def is_clear(candidate: Candidate) -> bool:
    """Return whether a larger window would hardly change the choice."""
    return candidate.passes >= ENOUGH_PASSES and candidate.coverage > ENOUGH_COVERAGE


def search_window(symbols: SymbolArray, evidence: Evidence, window: int) -> tuple[SymbolArray, Candidate] | None:
    """Return the candidate found in the first `window` symbols, variants of one kernel merged on the way."""
    shown = evidence.window(window)
    pick = select(symbols[:window], propose(symbols[:window], shown), shown)
    for _ in range(VARIANT_ROUNDS - 1):
        if pick is None or not pick.template.variants:
            break
        merged = merge_variants(pick.template.variants, int(symbols.max()) + 1)
        if merged is None:
            break
        joined = as_symbols(merged[symbols])
        better = select(joined[:window], propose(joined[:window], shown), shown)
        if better is None or better.coverage <= pick.coverage:
            break
        symbols, pick = joined, better
    return None if pick is None else (symbols, pick)


def make_loop(symbols: SymbolArray, candidate: Candidate, phase: Phase, verdict: Verdict) -> Loop:
    """Match the template, turned into phase, against the whole sequence."""
    template = np.roll(candidate.template.symbols, -phase.offset)
    iterations = to_iterations(match(symbols, template), len(template))
    confidence = round(verdict.certainty * (1.0 if phase.source == "annotation" else 0.9 + 0.1 * phase.certainty), 3)
    evidence = f"{verdict.reason}; begins at: {phase.reason}"
    nested = tuple(find_nested(template))
    return Loop(template, iterations, confidence, evidence, phase.source, phase.family, nested)


def to_iterations(matches: Matches, period: int) -> Iterations:
    """Keep passes that match half of the template, and the shorter ones at both ends as incomplete."""
    complete = (matches.matched + matches.edits >= WHOLE * period) & (2 * matches.matched >= period)
    keep = 2 * matches.matched >= period
    sizeable = matches.matched >= max(1, 0.02 * period)
    keep[:1] |= sizeable[:1]
    keep[-1:] |= sizeable[-1:]
    return Iterations(
        matches.first[keep], matches.end[keep], matches.matched[keep], matches.edits[keep], complete[keep]
    )


def hide(evidence: Evidence, trusts: Sequence[str] = ("step", "range", "framework")) -> Evidence:
    """Return the evidence without host ranges of the given trust: how the miner does without them is measured."""
    return replace(evidence, families=tuple(f for f in evidence.families if f.trust not in trusts))
