"""Which level is the iteration: candidates are verified by matching, then the hierarchy is climbed with care."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.mining.evidence import Evidence, Family
from deepprof.mining.levels import Level, find_levels
from deepprof.mining.matching import Matcher, Matches
from deepprof.mining.nesting import nested_share
from deepprof.mining.suffix_tree import SuffixTree
from deepprof.mining.symbols import SymbolArray
from deepprof.mining.template import Template, fit_template

__all__ = [
    "MAX_EDITS",
    "Candidate",
    "count_per_pass",
    "exact_passes",
    "families_by_trust",
    "holds_once",
    "is_flat",
    "propose",
    "select",
    "typical_pass",
]

Int64s = npt.NDArray[np.int64]

MAX_CANDIDATES = 12
ONCE_PER_PASS = 0.8  # share of passes that must hold exactly one range of a family
NEW_SYMBOLS = 0.15  # share of a period's own symbols that makes a larger level more than a repetition
NESTED = 0.3  # a period with less of it in inner loops is flat: it may be a layer
LAYER_SIZES = (64, 400)  # a shorter period may always be a layer, a longer one hardly ever is
MIN_COVERAGE = 0.3
MAX_EDITS = 0.1  # per matched symbol: quasi-periodic sequences need more, noisy jobs far less
NEARLY = 0.8
TILING = 0.7  # share of the time that a user's ranges must fill to be iterations


@dataclass(frozen=True, slots=True)
class Candidate:
    """A template and how it fits.

    `coverage` is the share of all symbols that its passes match, `relocks` counts per place of the template how often
    the stream came back there after symbols foreign to it.
    """

    template: Template
    matches: Matches
    relocks: Int64s
    coverage: float

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
        """How many periods are matched, parts counted as parts: the phase does not change it."""
        return float(self.matches.matched.sum()) / self.period

    @property
    def edit_share(self) -> float:
        """Edits per matched symbol in the good passes, those at the sequence's cut ends left out."""
        m = self.matches
        whole = self.good & (m.matched + m.edits >= self.period)
        return float(m.edits[whole].sum()) / max(1, int(m.matched[whole].sum()))


def propose(symbols: SymbolArray, evidence: Evidence) -> list[Candidate]:
    """Return verified candidates by ascending period; each distinct template once."""
    levels = plausible(find_levels(SuffixTree.build(symbols)))
    levels += [level for f in evidence.families if (level := family_level(f, len(symbols))) is not None]
    found: dict[bytes, Candidate] = {}
    for level in levels:
        candidate = verify(symbols, level)
        if candidate is not None and candidate.good.sum() >= 2:
            found.setdefault(candidate.template.symbols.tobytes(), candidate)
    return sorted(found.values(), key=lambda c: c.period)


def plausible(levels: list[Level]) -> list[Level]:
    """Drop levels that few classes vote for, measured against the best one."""

    def weight(level: Level) -> float:
        wanted = min(max(3.0, 0.01 * level.period), 12.0)
        return level.coverage * min(1.0, (0.1 + level.classes) / wanted)

    best = max(map(weight, levels), default=0.0)
    kept = [level for level in levels if weight(level) >= 0.3 * best]
    return sorted(kept, key=weight, reverse=True)[:MAX_CANDIDATES]


def family_level(family: Family, n: int) -> Level | None:
    """Return the level that host ranges suggest: they may show an iteration whose kernels are too few to vote."""
    positions = np.unique(family.positions[(family.positions >= 0) & (family.positions < n)])
    if len(positions) < 3:
        return None
    return Level(int(np.median(np.diff(positions))), 1.0, 1, positions)


def verify(symbols: SymbolArray, level: Level) -> Candidate | None:
    """Fit a template to a level, drop phases that most passes do not have, and match it."""
    template = fit_template(symbols, level.anchors, level.period)
    if template is None:
        return None
    matcher, matches = follow(symbols, template)
    for _ in range(2):
        usual = np.quantile(matcher.hits, 0.9)
        rare = matcher.hits < 0.5 * usual
        if usual < 3 or not rare.any() or rare.mean() > NESTED:
            break
        template = Template(template.symbols[~rare], template.share, template.variants)
        matcher, matches = follow(symbols, template)
    return Candidate(template, matches, matcher.relocks, float(matches.matched.sum()) / max(1, len(symbols)))


def follow(symbols: SymbolArray, template: Template) -> tuple[Matcher, Matches]:
    """Return the passes of a template over all symbols, and the matcher with its counts per place."""
    matcher = Matcher(template.symbols)
    return matcher, matcher.feed(symbols, final=True)


def count_per_pass(candidate: Candidate, positions: Int64s) -> Int64s:
    """Return how many of `positions` fall into each good pass."""
    first, end = candidate.matches.first[candidate.good], candidate.matches.end[candidate.good]
    ordered = np.sort(positions)
    return np.asarray(np.searchsorted(ordered, end) - np.searchsorted(ordered, first))


def holds_once(candidate: Candidate, family: Family) -> bool:
    """Return whether nearly every pass holds exactly one range of the family.

    Ranges may stand at the passes' very edges, where a pass cut in another phase sees two and its neighbour none:
    then the counts still are right, so equal numbers over the span of the passes serve too.
    """
    per_pass = count_per_pass(candidate, family.positions)
    if not len(per_pass):
        return False
    return bool((per_pass == 1).mean() >= ONCE_PER_PASS)


def families_by_trust(evidence: Evidence) -> list[Family]:
    """Return the families that may be iterations: step markers, then the framework's, then ranges that tile time."""
    usable = [f for f in evidence.families if f.trust != "range" or f.coverage >= TILING]
    rank = {"step": 0, "framework": 1, "range": 2}
    return sorted((f for f in usable if len(f.positions) >= 3), key=lambda f: rank[f.trust])


def select(symbols: SymbolArray, candidates: list[Candidate], evidence: Evidence) -> Candidate | None:
    """Return the candidate that is the iteration: by host ranges, by optimizer kernels, else by structure.

    Candidates that fit roughly only are left out, unless there is nothing better to say no to.
    """
    usable = [c for c in candidates if c.coverage >= MIN_COVERAGE and c.passes >= 2]
    usable = [c for c in usable if c.edit_share <= MAX_EDITS] or usable
    for family in families_by_trust(evidence):
        agreeing = [c for c in usable if holds_once(c, family)]
        if agreeing:
            return smallest_of_best(agreeing)
    if evidence.optimizer is not None:
        optimizing = [c for c in usable if optimizes(symbols, c, evidence.optimizer)]
        if optimizing:
            return smallest_of_best(optimizing)
    return climb(symbols, usable)


def smallest_of_best(candidates: list[Candidate]) -> Candidate:
    """Return the shortest of the candidates that explain nearly as much as the best one."""
    best = max(c.coverage for c in candidates)
    return next(c for c in candidates if c.coverage >= NEARLY * best)


def optimizes(symbols: SymbolArray, candidate: Candidate, optimizer: npt.NDArray[np.bool_]) -> bool:
    """Return whether nearly every pass contains an optimizer's kernel."""
    per_pass = count_per_pass(candidate, np.flatnonzero(optimizer[symbols]))
    return bool(len(per_pass) and (per_pass > 0).mean() >= ONCE_PER_PASS)


def climb(symbols: SymbolArray, candidates: list[Candidate]) -> Candidate | None:
    """Return the level reached by climbing from the smallest one as long as the next is more than its repetition."""
    if not candidates:
        return None
    best = max(c.coverage for c in candidates)
    ladder = [c for c in candidates if c.coverage >= 0.6 * best]
    pick = ladder[0]
    for larger in ladder[1:]:
        if larger.passes >= 2.9 and is_above(symbols, larger, pick):
            pick = larger
    return pick


def is_above(symbols: SymbolArray, larger: Candidate, pick: Candidate) -> bool:
    """Return whether `larger` is an iteration made of `pick`s rather than a longer cycle of iterations.

    It is when it explains clearly more, when it brings symbols of its own, or when the smaller period is flat and
    short and the larger one fits at least as exactly.
    """
    if larger.coverage < pick.coverage - 0.05:
        return False
    if larger.period < 1.5 * pick.period:
        return larger.coverage > pick.coverage + 0.02
    explains_more = larger.coverage >= pick.coverage + 0.2
    return explains_more or is_flat(pick.template.symbols) or new_share(symbols, larger, pick) >= NEW_SYMBOLS


def is_flat(template: SymbolArray) -> bool:
    """Return whether a period could be a layer: short, or without the inner loops that layers make of an iteration."""
    shortest, longest = LAYER_SIZES
    if len(template) < shortest:
        return True
    return len(template) < longest and nested_share(template) < NESTED


def exact_passes(candidate: Candidate) -> Int64s:
    """Return the first symbols of up to 200 passes without edits."""
    m = candidate.matches
    return np.asarray(m.first[(m.edits == 0) & (m.matched == candidate.period)][:200])


def typical_pass(candidate: Candidate, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the median over exact passes of `values` at each place of the period; zeros when there is no pass."""
    first = exact_passes(candidate)
    if not len(first):
        return np.zeros(candidate.period)
    places: npt.NDArray[np.float64] = np.median(values[first[:, None] + np.arange(candidate.period)], axis=0)
    return places


def new_share(symbols: SymbolArray, larger: Candidate, pick: Candidate) -> float:
    """Return the share of the larger period's symbols, rare noise left out, that the smaller one has not."""
    total = np.bincount(symbols)
    inside = np.unique(larger.template.symbols)
    steady = inside[total[inside] >= 0.5 * larger.passes]
    return float((~np.isin(steady, pick.template.symbols)).mean()) if len(steady) else 0.0
