"""Finding the iteration of a symbol sequence: levels, choice, phase, match, and the rule that accepts it or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.mining.acceptance import Verdict, judge
from deepprof.mining.candidates import Candidate, follow, propose, verify
from deepprof.mining.choice import MAX_EDITS, select
from deepprof.mining.cycles import Cycle, find_cycles
from deepprof.mining.evidence import Evidence
from deepprof.mining.iterations import Iterations, count_edits, to_iterations
from deepprof.mining.levels import Level
from deepprof.mining.nesting import Nested, find_nested
from deepprof.mining.phase import Source, find_phase
from deepprof.mining.symbols import SymbolArray, as_symbols
from deepprof.mining.template import merge_variants

__all__ = ["Iterations", "Loop", "Mined", "find_loop"]

Int64s = npt.NDArray[np.int64]

WINDOWS = (1 << 16, 1 << 18, 1 << 20)  # symbols looked at; more only while the smaller window shows no clear loop
ENOUGH_PASSES = 8
ENOUGH_COVERAGE = 0.7
MIN_COVERAGE = 0.5  # of the window, for a candidate that stands in for one refused as a layer
VARIANT_ROUNDS = 3
SUPPORT = 0.8  # of the iterations that a framework range must point at to have decided with the rest
MOST = 0.9  # of the sequence: less is worth a remark
NOTHING = Verdict(False, 0.0, "no sequence of kernels comes back at regular distances three times or more")


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
        """Symbols per iteration."""
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
    symbols = as_symbols(sequence)
    evidence = (evidence or Evidence()).between(0, len(symbols))
    if len(symbols) < 3:
        return Mined(None, f"only {len(symbols)} kernels on the main stream: nothing can repeat three times")
    found = search(symbols, evidence)
    if found.candidate is None or not found.verdict.accepted:
        return Mined(None, found.verdict.reason)
    loop = make_loop(found, found.candidate, evidence)
    complete = int(loop.iterations.complete.sum())
    return Mined(loop) if complete >= 2 else Mined(None, f"only {complete} whole iterations of {loop.period} kernels")


@dataclass(frozen=True, slots=True)
class Look:
    """What one window shows: its best candidate, if any, and the verdict; `symbols` is the whole, variants merged."""

    symbols: SymbolArray
    window: SymbolArray
    evidence: Evidence  # of the window
    candidate: Candidate | None
    verdict: Verdict

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


def search(symbols: SymbolArray, evidence: Evidence) -> Look:
    """Return the first look that is accepted and clear, else the best accepted one, else the first refused one.

    A clear loop in a small window is enough. Later windows serve loops that begin late; what they show must explain
    more of the whole than what was refused at first, or it is an inner loop of that.
    """
    refused: Look | None = None
    best: Look | None = None
    for first, end in windows(len(symbols)):
        look = look_at(symbols, evidence, first, end)
        if not look.verdict.accepted:
            refused = refused or look
        elif first and refused and explains_less(look, refused):
            continue
        elif best is None or look.coverage > best.coverage:
            best = look
        if best is not None and (best.is_clear or first > 0 or end == len(symbols)):
            break
        if best is None and look.verdict.final:
            break
    return best or refused or Look(symbols, symbols, evidence, None, NOTHING)


def explains_less(look: Look, refused: Look) -> bool:
    """Return whether a loop found in a later window matches less of the whole than what was refused before."""
    if look.candidate is None:
        return True
    matches = follow(look.symbols, look.candidate.template.symbols)[1]
    return int(matches.matched.sum()) <= refused.explained


def windows(n: int) -> list[tuple[int, int]]:
    """Return the parts of a sequence to look at: growing ones from its start, then from later on."""
    sizes = [size for size in WINDOWS if size < n] + [min(n, WINDOWS[-1])]
    later = [(n // 2, n), (n // 4, 3 * n // 4), (3 * n // 4, n)]
    return [(0, size) for size in dict.fromkeys(sizes)] + [(a, min(b, a + WINDOWS[1])) for a, b in later if n >= 64]


def look_at(symbols: SymbolArray, evidence: Evidence, first: int, end: int) -> Look:
    """Return what the window [first, end) shows.

    When the choice is refused for what it is, a larger candidate may still be the iteration: one bad iteration among
    few makes the climb stop at the layers.
    """
    shown = evidence.between(first, end)
    candidates = propose(symbols[first:end], shown)
    pick = select(symbols[first:end], candidates, shown)
    if pick is None:
        return Look(symbols, symbols[first:end], shown, None, NOTHING)
    pick = promote(symbols[first:end], pick, shown)
    verdict = judge(pick, shown)
    larger = [c for c in candidates if c.period >= 2 * pick.period and c.coverage >= MIN_COVERAGE]
    for other in larger if verdict.final else []:
        if (second := judge(other, shown)).accepted:
            pick, verdict = other, second
            break
    joined, better = join_variants(symbols, pick, shown, first, end)
    return Look(joined, joined[first:end], shown, better, verdict if better is pick else judge(better, shown))


def promote(symbols: SymbolArray, pick: Candidate, evidence: Evidence) -> Candidate:
    """Return the iteration of several micro-batches and the optimizer where `pick` is only a micro-batch."""
    rows = to_iterations(pick.matches, pick.period)
    cycles = find_cycles(symbols, rows, pick.template.symbols, evidence.optimizer)
    for cycle in (c for c in cycles if c.kind == "accumulation"):
        whole = verify(symbols, Level(cycle.every * pick.period + cycle.extra, 1.0, 1, cycle.ends))
        if whole is not None and is_whole(whole, pick, cycle):
            return whole
    return pick


def is_whole(whole: Candidate, part: Candidate, cycle: Cycle) -> bool:
    """Return whether a candidate is what the cycle promised, and explains at least as much as its part."""
    expected = cycle.every * part.period + cycle.extra
    near = abs(whole.period - expected) <= 0.05 * expected
    return near and whole.edit_share <= MAX_EDITS and whole.coverage >= 0.95 * part.coverage


def join_variants(
    symbols: SymbolArray, pick: Candidate, shown: Evidence, first: int, end: int
) -> tuple[SymbolArray, Candidate]:
    """Join the variants of one kernel as long as that explains more of the window."""
    for _ in range(VARIANT_ROUNDS - 1):
        merged = merge_variants(pick.template.variants, int(symbols.max()) + 1) if pick.template.variants else None
        if merged is None:
            break
        joined = as_symbols(merged[symbols])
        better = select(joined[first:end], propose(joined[first:end], shown), shown)
        better = better and promote(joined[first:end], better, shown)
        if better is None or better.coverage <= pick.coverage:
            break
        symbols, pick = joined, better
    return symbols, pick


def make_loop(found: Look, candidate: Candidate, evidence: Evidence) -> Loop:
    """Match the template, turned into phase, against the whole sequence."""
    phase = find_phase(found.window, candidate, found.evidence)
    template = np.roll(candidate.template.symbols, -phase.offset)
    iterations = to_iterations(follow(found.symbols, template)[1], len(template))
    iterations = count_edits(iterations, found.symbols, template)
    sureness = 1.0 if phase.source == "annotation" else 0.9 + 0.1 * phase.certainty
    family, source = phase.family, phase.source
    if source == "mined" and (supporting := supporting_range(iterations, evidence)):
        family, source = supporting, "framework"
    return Loop(
        template=template,
        iterations=iterations,
        confidence=round(found.verdict.certainty * sureness, 3),
        evidence=f"{found.verdict.reason}{covering(iterations, len(found.symbols))}; begins at: {phase.reason}",
        source=source,
        family=family,
        nested=tuple(find_nested(template)),
    )


def covering(iterations: Iterations, length: int) -> str:
    """Return a remark when much of the sequence lies outside the iterations: a second loop may be there."""
    share = float((iterations.end - iterations.first).sum()) / max(1, length)
    return "" if share >= MOST else f", on {100 * share:.0f} % of the stream's kernels"


def supporting_range(iterations: Iterations, evidence: Evidence) -> str | None:
    """Return the framework's range that points at nearly all of the iterations' first symbols, if there is one."""
    first = iterations.first[iterations.complete]
    for family in evidence.families:
        if len(first) and family.trust in ("loop", "framework") and np.isin(first, family.positions).mean() >= SUPPORT:
            return family.name
    return None
