"""Candidates for the iteration: a template from every level, matched against the sequence to see how it fits.

A candidate that is several iterations and an evaluation is a supercycle: it is replaced by the iteration within.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.mining.evidence import Evidence
from deepprof.mining.heads import align_head, begin_late
from deepprof.mining.levels import RepeatLevel, find_levels
from deepprof.mining.matching import Matcher, Matches, match
from deepprof.mining.nesting import find_cyclic, has_inner_loops, has_parameter_loop
from deepprof.mining.ranges import suggest_levels
from deepprof.mining.suffix_tree import SuffixTree
from deepprof.mining.symbols import SymbolArray, as_symbols
from deepprof.mining.template import Template, fit_template

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MAX_CANDIDATES = 12
EDITED = 0.1  # edits per symbol: a candidate with more is not tried as a part of a cycle
RARE_PLACES = 0.3  # of a template: if most passes lack more of its places, that is no noise, and the template is wrong

MIN_PART_SYMBOLS = 64  # symbols: a shorter part of a period may be its layer
TWICE = 2  # fewest iterations in a cycle
WHOLE, PART = 0.9, 0.3  # share of a part that must match in a whole pass, and in one of which noise left only some
SCRAPS = 0.02  # of the period: if no more is next to the passes, those that are cut short are examined
MIN_EVALUATION_SHARE = 0.15  # of the part: less next to the passes is no evaluation
KNOWN = 0.8  # of the short sequences next to the passes that must occur within them as well
OWN = 0.15  # of the short sequences within a pass that must occur only there: its backward pass and the update
NEW = 0.1  # of the part's different symbols, or two, may be new: an evaluation may count its correct results
LEFT = 0.5  # of the part's optimizer kernels, one in place of many: a second model's update is whole
GRAM = 2  # symbols: longer sequences are broken by what an evaluation leaves out
MOST_SYMBOLS = 1 << 17  # of the longest period examined


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A template and how well it fits.

    `coverage` is the share of all symbols that its passes match, `relocks` counts, for every place of the template, how
    often the stream resumed there after foreign symbols. `left` and `right` bound the section that the cyclic template
    matches without a difference around the exact passes; both are 0 when no pass is exact.
    """

    template: Template
    matches: Matches
    relocks: Int64s
    coverage: float
    left: int
    right: int
    before: SymbolArray | None = None  # the symbols before `left`, or before the first good pass
    after: SymbolArray | None = None  # the symbols from `right` on, or from the end of the last good pass on

    @property
    def period(self) -> int:
        """Symbols per pass."""
        return len(self.template.symbols)

    @property
    def good(self) -> npt.NDArray[np.bool_]:
        """Passes that match at least half of the template."""
        return 2 * self.matches.matched >= self.period

    @property
    def passes(self) -> float:
        """Number of periods matched, with fractions for partial passes, so that the phase does not change it."""
        return float(self.matches.matched.sum()) / self.period

    @property
    def edit_share(self) -> float:
        """Edits per matched symbol in whole passes, without the worst of four or more passes; 1 without a whole pass.

        One pass often differs for a good reason: the first is autotuned, the last has a smaller batch.
        """
        m = self.matches
        whole = self.good & (m.matched + m.edits >= self.period)
        if not whole.any():
            return 1.0
        kept = np.argsort(m.edits[whole])[: max(3, int(whole.sum()) - 1)]
        return float(m.edits[whole][kept].sum()) / max(1, int(m.matched[whole][kept].sum()))

    @property
    def exact(self) -> Int64s:
        """First symbols of up to 200 passes without edits."""
        m = self.matches
        return np.asarray(m.first[(m.edits == 0) & (m.matched == self.period)][:200])

    def typical(self, values: Floats) -> Floats:
        """Return the median over exact passes of `values` at every place of the period; zeros without an exact pass."""
        if not len(self.exact):
            return np.zeros(self.period)
        places: Floats = np.median(values[self.exact[:, None] + np.arange(self.period)], axis=0)
        return places

    def typical_share(self, marks: npt.NDArray[np.bool_]) -> Floats:
        """Return the share of the exact passes that have a mark at every place of the period; zeros without one."""
        if not len(self.exact):
            return np.zeros(self.period)
        share: Floats = marks[self.exact[:, None] + np.arange(self.period)].mean(axis=0)
        return share

    def count(self, positions: Int64s) -> Int64s:
        """Return how many of `positions` fall into each good pass."""
        first, end = self.matches.first[self.good], self.matches.end[self.good]
        ordered = np.sort(positions)
        return np.asarray(np.searchsorted(ordered, end) - np.searchsorted(ordered, first))


def propose(symbols: SymbolArray, evidence: Evidence) -> list[Candidate]:
    """Return verified candidates by ascending period; each distinct template once."""
    levels = _plausible(find_levels(SuffixTree.build(symbols)))
    levels += suggest_levels(evidence.families, len(symbols))
    found: dict[bytes, Candidate] = {}
    for level in levels:
        candidate = _verify(symbols, level)
        if candidate is not None and candidate.good.sum() >= 2:
            found.setdefault(candidate.template.symbols.tobytes(), candidate)
    return _without_cycles(symbols, sorted(found.values(), key=lambda c: c.period), evidence)


def _without_cycles(symbols: SymbolArray, candidates: list[Candidate], evidence: Evidence) -> list[Candidate]:
    """Return the candidates, with every cycle of iterations and an evaluation replaced by its iteration."""
    kept = {c.template.symbols.tobytes(): c for c in candidates}
    for candidate in candidates:
        smaller = [
            c.template.symbols for c in candidates if 2 * c.period <= candidate.period and c.edit_share <= EDITED
        ]
        inner = _iteration_within(candidate.template.symbols, smaller, evidence.optimizer)
        if inner is None:
            continue
        del kept[candidate.template.symbols.tobytes()]
        if inner.tobytes() not in kept:
            kept[inner.tobytes()] = measure(symbols, Template(inner, candidate.template.variants))
    return sorted(kept.values(), key=lambda c: c.period)


def _plausible(levels: list[RepeatLevel]) -> list[RepeatLevel]:
    """Return the levels that enough classes vote for, compared with the best one."""

    def weight(level: RepeatLevel) -> float:
        wanted = min(max(3.0, 0.01 * level.period), 12.0)
        return level.coverage * min(1.0, (0.1 + level.classes) / wanted)

    best = max(map(weight, levels), default=0.0)
    kept = [level for level in levels if weight(level) >= 0.3 * best]
    return sorted(kept, key=weight, reverse=True)[:MAX_CANDIDATES]


def _verify(symbols: SymbolArray, level: RepeatLevel) -> Candidate | None:
    """Return the candidate of a level: fit a template, drop places that most passes do not have, and match it."""
    template = fit_template(symbols, level.anchors, level.period)
    if template is None:
        return None
    matcher, matches = follow(symbols, template.symbols)
    for _ in range(2):
        usual = float(np.quantile(matcher.hits, 0.9))
        # With inner loops it is no layer: places hit more often than there are good passes run in evaluations too.
        if has_inner_loops(template.symbols):
            usual = min(usual, int((2 * matches.matched >= len(template.symbols)).sum()))
        rare = matcher.hits < 0.5 * usual
        if usual < 3 or not rare.any() or rare.mean() > RARE_PLACES:
            break
        template = Template(template.symbols[~rare], template.variants)
        matcher, matches = follow(symbols, template.symbols)
    return _make_candidate(symbols, template, matcher, matches)


def measure(symbols: SymbolArray, template: Template) -> Candidate:
    """Return a template's candidate as it is."""
    return _make_candidate(symbols, template, *follow(symbols, template.symbols))


def _make_candidate(symbols: SymbolArray, template: Template, matcher: Matcher, matches: Matches) -> Candidate:
    coverage = float(matches.matched.sum()) / max(1, len(symbols))
    exact = matches.first[(matches.edits == 0) & (matches.matched == len(template.symbols))]
    left = reach_left(symbols, template.symbols, int(exact[0])) if len(exact) else 0
    right = reach_right(symbols, template.symbols, int(exact[-1])) if len(exact) else 0
    good = 2 * matches.matched >= len(template.symbols)
    first, end = (int(matches.first[good][0]), int(matches.end[good][-1])) if good.any() else (0, len(symbols))
    before, after = symbols[: left if len(exact) else first], symbols[right if len(exact) else end :]
    return Candidate(template, matches, matcher.relocks, coverage, left, right, before, after)


def follow(symbols: SymbolArray, template: SymbolArray) -> tuple[Matcher, Matches]:
    """Return the matcher with its counts per place, and the passes of a template over all symbols."""
    matcher = Matcher(template)
    matches = align_head(symbols, template, matcher.feed(symbols, final=True))
    return matcher, begin_late(symbols, template, matches)


def reach_left(symbols: SymbolArray, template: SymbolArray, at: int) -> int:
    """Return the position from which the cyclic template matches exactly up to `at`, where a pass begins."""
    period = len(template)
    while at >= period and np.array_equal(symbols[at - period : at], template):
        at -= period
    part = min(period, at)
    wrong = np.flatnonzero(symbols[at - part : at] != template[period - part :])
    return at - part + (int(wrong[-1]) + 1 if len(wrong) else 0)


def reach_right(symbols: SymbolArray, template: SymbolArray, at: int) -> int:
    """Return the position up to which the cyclic template matches exactly from `at` on, where a pass begins."""
    period = len(template)
    while np.array_equal(symbols[at : at + period], template):
        at += period
    rest = symbols[at : at + period]
    wrong = np.flatnonzero(rest != template[: len(rest)])
    return at + (int(wrong[0]) if len(wrong) else len(rest))


def _iteration_within(
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
    """Return whether the period consists of passes of `part` and, next to them, forward passes of it."""
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
    """Return whether a part contains an update: layers that run forward again in the backward pass do not."""
    return bool(optimizer[part].any()) if optimizer is not None else has_parameter_loop(part)


def _updates_beside(
    optimizer: npt.NDArray[np.bool_], template: SymbolArray, part: SymbolArray, beside: npt.NDArray[np.integer]
) -> bool:
    """Return whether more of the optimizer runs next to the part than an edited pass may leave there."""
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
    if len(symbols) < GRAM:
        return np.zeros(0, f"V{4 * GRAM}")
    windows = np.lib.stride_tricks.sliding_window_view(symbols.astype(np.uint32), GRAM)
    return np.ascontiguousarray(windows).view(f"V{4 * GRAM}").ravel()
