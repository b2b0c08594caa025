"""Find the loop of a symbol sequence: search the iteration, find its phase, match it with the whole sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from deepprof.mining.acceptance import MORE_THAN_LAYERS, AcceptanceVerdict
from deepprof.mining.candidates import Candidate, follow
from deepprof.mining.choice import could_be_layers
from deepprof.mining.cycles import MANY_MICRO_BATCHES, LoopCycle, find_cycles
from deepprof.mining.evidence import Evidence
from deepprof.mining.iterations import (
    Iterations,
    count_edits,
    cut_ends,
    join_parts,
    rejoin_tails,
    shifted,
    to_iterations,
)
from deepprof.mining.nesting import (
    LAYER,
    NestedBlock,
    are_as_many,
    find_cyclic,
    find_nested,
    has_parameter_loop,
    size_of,
)
from deepprof.mining.phase import Phase, Source, find_phase
from deepprof.mining.search import WINDOWS, WindowSearch, search, windows_of
from deepprof.mining.symbols import SymbolArray, Symbols, as_symbols
from deepprof.plurals import counted

BASE, PER_DOUBLING, PER_EDIT, LOOP, PER_VOTE, COVERED, PER_SIGN = -2.8, 0.27, -41.0, 0.92, 0.66, 1.46, 0.5

MOST_DOUBLINGS, MOST_EDITS, MOST_VOTES = 6.0, 0.1, 4.0  # larger values count as these

ONE_RUN, PARTNER = 0.8, 0.1  # share of a period in one run of layers; least size of a second run, relative to the first

ONE_RUN_LIMIT = 0.85  # highest confidence: the period may be some small iterations and what follows them

LEAST_CONFIDENCE = 0.04  # a loop with less is refused: of four in random jobs none was right

CYCLE_LIMIT = 0.88  # highest confidence: what comes every few passes may be their optimizer

PART_LIMIT = 0.6  # highest confidence: it looks like an optimizer's, but no whole iteration could be made with it

UNSHOWN_LIMIT = 0.7  # highest confidence: it could be the layers of a model, but for what runs before and after it

LEADS = (0.0, 0.1, 0.3, 0.45, 0.8, 1.5, 2.5, 3.0)  # votes for the start beyond those for any other place

STARTS = (0.3, 0.32, 0.5, 0.75, 0.9, 0.955, 0.99, 0.995)  # share of the starts with such a lead that were right


SUPPORT = 0.8  # of the iterations that must begin at a framework range for it to count as the source
REMARKED_COVERAGE = 0.9  # of the sequence: a lower coverage is mentioned
EXPLAINED = 0.85  # of the sequence matched: with less, coarser symbols are tried too
SPARSE = 4  # times the length: larger symbols are renumbered
BETTER = 0.1  # of the sequence: coarser symbols are used when they match this much more
MINORITY = 0.5  # of the sequence matched: with less, what coarser symbols show to be layers is no iteration
SAME_LAYER = 2  # times the period of a refused layer: a shorter period found with other symbols is that layer


@dataclass(frozen=True, slots=True)
class MinedLoop:
    """A repeated iteration: its template from its first symbol on, where it occurs, and how certain this is.

    `confidence` (0..1) is the confidence that period and first symbol are right, `start_confidence` the part of it for
    the first symbol alone. `cycles` is what comes back every this many iterations, `nested` what repeats inside one;
    `prologue` and `epilogue` count the symbols before the first iteration and after the last.
    """

    template: SymbolArray
    iterations: Iterations
    confidence: float
    start_confidence: float
    evidence: str
    source: Source
    family: str | None
    nested: tuple[NestedBlock, ...]
    cycles: tuple[LoopCycle, ...]
    prologue: int
    epilogue: int

    @property
    def period(self) -> int:
        """Symbols per iteration."""
        return len(self.template)

    def translated(self, values: SymbolArray) -> MinedLoop:
        """Return the loop with every symbol replaced by its entry of `values`."""
        cycles = tuple(replace(c, content=values[c.content], whole=values[c.whole]) for c in self.cycles)
        return replace(self, template=values[self.template], cycles=cycles)


@dataclass(frozen=True, slots=True)
class MiningResult:
    """The loops that were found, the one that explains most first, or why there is none (exactly one of the two).

    `layer` is the period of a repetition that was refused as a layer, else 0.
    """

    loops: tuple[MinedLoop, ...] = ()
    reason: str | None = None
    layer: int = 0

    @property
    def loop(self) -> MinedLoop | None:
        """The main loop."""
        return self.loops[0] if self.loops else None


def find_loop(
    sequence: Symbols,
    evidence: Evidence | None = None,
    *,
    coarse: npt.NDArray[np.integer] | None = None,
    windows: Sequence[int] = WINDOWS,
) -> MiningResult:
    """Find the iteration that `sequence` repeats, without a given count; of several loops, one that is clear.

    `sequence` contains non-negative integers, one per kernel. `coarse`, one entry per symbol value, gives variants of
    one kernel the same number; it is used when the symbols themselves explain too little. `windows` are the sizes of
    the windows searched, ascending. Raises `ValueError` for other arguments. Time is O(w log w) for a window of w
    symbols and O(n) to match the rest; memory is 8 bytes per symbol of the window for every k-gram depth."""
    mined, problem = find_posed(pose(sequence, evidence, coarse, windows))
    return problem.named(mined)


@dataclass(frozen=True, slots=True, eq=False)
class _MiningProblem:
    """Checked input for mining; `values` are the symbols' original values where they were renumbered."""

    symbols: SymbolArray
    evidence: Evidence
    coarse: npt.NDArray[np.integer] | None
    windows: tuple[int, ...]
    values: SymbolArray | None

    def named(self, mined: MiningResult) -> MiningResult:
        """Return the loops in the symbols' original values."""
        values = self.values
        if values is None:
            return mined
        return replace(mined, loops=tuple(loop.translated(values) for loop in mined.loops))

    def coarser(self, coarse: npt.NDArray[np.integer]) -> _MiningProblem:
        """Return the same problem with coarser symbols."""
        values, ranks = np.unique(coarse, return_inverse=True)
        marks = self.evidence.optimizer
        known = replace(self.evidence, optimizer=None if marks is None else np.bincount(ranks, marks) > 0)
        return _MiningProblem(as_symbols(ranks[self.symbols]), known, None, self.windows, as_symbols(values))


def pose(
    sequence: Symbols,
    evidence: Evidence | None,
    coarse: npt.NDArray[np.integer] | None,
    windows: Sequence[int],
) -> _MiningProblem:
    """Return the checked arguments of `find_loop`; symbols far above the length are renumbered to keep tables small."""
    symbols = as_symbols(sequence)
    known, alphabet = evidence or Evidence(), int(symbols.max()) + 1 if len(symbols) else 0
    known.check(len(symbols), alphabet)
    _check_coarse(coarse, alphabet)
    if not windows or min(windows) < 1 or list(windows) != sorted(windows):
        raise ValueError(f"windows must be ascending sizes of 1 or more, not {list(windows)}")
    coarse = None if coarse is None else coarse[:alphabet]
    known = replace(known, optimizer=None if known.optimizer is None else known.optimizer[:alphabet])
    values = None
    if alphabet > SPARSE * len(symbols) + (1 << 16):
        values, ranks = np.unique(symbols, return_inverse=True)
        symbols, coarse = as_symbols(ranks), None if coarse is None else coarse[values]
        known = replace(known, optimizer=None if known.optimizer is None else known.optimizer[values])
    named = None if values is None else as_symbols(values)
    return _MiningProblem(symbols, known.between(0, len(symbols)), coarse, tuple(windows), named)


def find_posed(problem: _MiningProblem) -> tuple[MiningResult, _MiningProblem]:
    """Return the loop of the exact symbols, or of coarser ones if these explain clearly more, and the problem used."""
    length = len(problem.symbols)
    exact = _find_in(problem)
    if problem.coarse is None or _share(exact, length) >= EXPLAINED:
        return exact, problem
    coarser = problem.coarser(problem.coarse)
    rough = _find_in(coarser)
    better = _share(rough, length) >= _share(exact, length) + BETTER
    if rough.loop is not None and (rough.loop.period < SAME_LAYER * exact.layer or rough.loop.period == 1):
        return exact, problem  # coarser symbols only hide that these are layers, or different kernels
    if exact.loop is not None and _share(exact, length) < MINORITY and exact.loop.period < SAME_LAYER * rough.layer:
        return MiningResult(
            (), rough.reason, rough.layer
        ), problem  # some layers of one shape, as the coarser symbols show
    return (rough, coarser) if better else (exact, problem)


def _check_coarse(coarse: npt.NDArray[np.integer] | None, alphabet: int) -> None:
    """Raise `ValueError` unless the coarse symbols map all symbols to non-negative integers."""
    if coarse is None:
        return
    if coarse.dtype.kind not in "iu" or coarse.ndim != 1 or len(coarse) < alphabet:
        raise ValueError(f"`coarse` must be integers, one for each of {alphabet} symbol values")
    if len(coarse) and int(coarse.min()) < 0:
        raise ValueError("`coarse` must not be negative")


def _share(mined: MiningResult, length: int) -> float:
    return 0.0 if mined.loop is None else float(mined.loop.iterations.matched.sum()) / max(1, length)


def _find_in(problem: _MiningProblem) -> MiningResult:
    symbols, evidence = problem.symbols, problem.evidence
    if len(symbols) < 3:
        return MiningResult(
            (), f"only {counted(len(symbols), 'kernel')} on the main stream: nothing can repeat three times"
        )
    found = search(symbols, evidence, windows_of(len(symbols), problem.windows))
    if found.candidate is None or not found.verdict.accepted:
        return MiningResult((), found.verdict.reason, _layer_of(found, evidence))
    loop = make_loop(found, found.candidate, evidence)
    reason = _why_refused(loop)
    return MiningResult((), reason) if reason else MiningResult((loop,))


def _why_refused(loop: MinedLoop) -> str:
    """Return why a matched loop is not reported; empty: it is."""
    complete = int(loop.iterations.complete.sum())
    if complete < 2:
        return f"only {counted(complete, 'whole iteration')} of {counted(loop.period, 'kernel')}"
    if loop.confidence >= LEAST_CONFIDENCE:
        return ""
    repeats = f"{counted(loop.period, 'kernel')} that repeat {counted(complete, 'time')}"
    return f"{repeats} are more likely parts of one pass than iterations"


def _layer_of(found: WindowSearch, evidence: Evidence) -> int:
    """Return the period that was refused as a layer, 0 if none was.

    Where an optimizer's kernels are known, what may be a layer counts too: with coarser symbols these kernels would
    make it an iteration, though layers that update their own parameters have them as well.
    """
    is_layer = found.verdict.layers or (found.verdict.final and evidence.optimizer is not None)
    return found.candidate.period if is_layer and found.candidate is not None else 0


def make_loop(found: WindowSearch, candidate: Candidate, evidence: Evidence) -> MinedLoop:
    """Return the loop of the template, in phase and matched against the whole sequence."""
    phase = find_phase(found.window, candidate, found.evidence)
    template = np.roll(candidate.template.symbols, -phase.offset)
    rows = _follow_stretches(found.symbols, template, evidence.breaks)
    source, family = _decided_by(phase, rows, evidence)
    cycles = tuple(find_cycles(found.symbols, rows, template, evidence.optimizer, evidence.update_ranges))
    start = sure_of_start(phase)
    first, end = (int(rows.first[0]), int(rows.end[-1])) if len(rows.first) else (0, 0)
    return MinedLoop(
        template=template,
        iterations=rows,
        confidence=round(sure_of_period(candidate, found.verdict, phase, cycles) * start, 3),
        start_confidence=round(start, 3),
        evidence=f"{found.verdict.reason}{_covering(rows, len(found.symbols))}; begins at: {phase.reason}",
        source=source,
        family=family,
        nested=tuple(find_nested(template)),
        cycles=cycles,
        prologue=first,
        epilogue=len(found.symbols) - end,
    )


def _follow_stretches(symbols: SymbolArray, template: SymbolArray, breaks: Sequence[int]) -> Iterations:
    """Return the iterations of the template; each section between breaks is matched separately."""
    bounds = [0, *breaks, len(symbols)]
    parts = [
        cut_ends(
            _iterations_of(symbols[first:end], template), end - first, len(template), first > 0, end < len(symbols)
        )
        for first, end in pairwise(bounds)
    ]
    return join_parts([shifted(rows, first) for rows, first in zip(parts, bounds, strict=False)])


def _iterations_of(symbols: SymbolArray, template: SymbolArray) -> Iterations:
    rows = to_iterations(follow(symbols, template)[1], len(template))
    return count_edits(rejoin_tails(rows, symbols, template), symbols, template)


def _covering(iterations: Iterations, length: int) -> str:
    """Return a remark when much of the sequence is outside the iterations."""
    covered = float((iterations.end - iterations.first).sum()) / max(1, length)
    return "" if covered >= REMARKED_COVERAGE else f", on {100 * covered:.0f} % of the stream's kernels"


def _decided_by(phase: Phase, iterations: Iterations, evidence: Evidence) -> tuple[Source, str | None]:
    """Return the source of the boundaries: a mined phase counts as the framework's when one of its ranges agrees."""
    first = iterations.first[iterations.complete]
    for family in evidence.families if phase.source == "mined" else ():
        if len(first) and family.trust in ("loop", "framework") and np.isin(first, family.positions).mean() >= SUPPORT:
            return "framework", family.name
    return phase.source, phase.family


def sure_of_start(phase: Phase) -> float:
    """Return the confidence that iterations begin there, from the agreement of ranges or from the lead in votes."""
    if phase.source == "annotation":
        return 0.9 + 0.1 * phase.certainty
    return float(np.interp(phase.lead, LEADS, STARTS))


def sure_of_period(
    candidate: Candidate, verdict: AcceptanceVerdict, phase: Phase, cycles: Sequence[LoopCycle]
) -> float:
    """Return the confidence that the passes are iterations, neither parts nor multiples of them."""
    if verdict.strong:
        return verdict.certainty
    logit = BASE + PER_DOUBLING * min(math.log2(max(1.0, candidate.passes)), MOST_DOUBLINGS)
    logit += PER_EDIT * min(candidate.edit_share, MOST_EDITS) + COVERED * candidate.coverage
    logit += LOOP * has_parameter_loop(candidate.template.symbols) + PER_VOTE * min(phase.votes, MOST_VOTES)
    logit += PER_SIGN * verdict.weak
    shown = verdict.weak > 0 or candidate.passes >= MORE_THAN_LAYERS or not could_be_layers(candidate.template.symbols)
    highest = limit(candidate.template.symbols, cycles)
    return min(1 / (1 + math.exp(-logit)), highest if shown else min(highest, UNSHOWN_LIMIT))


def limit(template: SymbolArray, cycles: Sequence[LoopCycle]) -> float:
    """Return the highest confidence for a period that may be a multiple or a part of the iteration."""
    if is_one_run(template):
        return ONE_RUN_LIMIT
    near = {c.kind for c in cycles if c.every <= MANY_MICRO_BATCHES}
    if "accumulation" in near:
        return PART_LIMIT
    return CYCLE_LIMIT if near & {"statistics", "checkpoint"} else 1.0


def is_one_run(template: SymbolArray) -> bool:
    """Return whether nearly all of a period is one run of equal parts, without a second run of as many parts."""
    runs = sorted((b for b in find_cyclic(template) if b.events >= LAYER), key=size_of, reverse=True)
    if not runs or size_of(runs[0]) < ONE_RUN * len(template):
        return False
    return not any(are_as_many(b, runs[0]) and size_of(b) >= PARTNER * size_of(runs[0]) for b in runs[1:])
