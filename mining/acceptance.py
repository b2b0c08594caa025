"""The accept rule: a repetition is called an iteration only with enough evidence; otherwise a reason is given.

Layers of one forward pass repeat more exactly than most training loops, and each may have its own range, copy, wait or
graph launch. So those are weak signs. Strong signs are the ranges that only iterations have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.mining.candidates import Candidate
from deepprof.mining.choice import (
    FEWEST_KERNELS,
    LAYER_SIZES,
    MAX_EDITS,
    could_be_layers,
    holds_once,
    in_most_passes,
    is_flat,
)
from deepprof.mining.evidence import Evidence, short
from deepprof.mining.extent import LAYER_EDITS, Extent, burst_size, measure_extent
from deepprof.mining.nesting import LAYER, find_nested, has_layers
from deepprof.mining.ranges import by_trust
from deepprof.mining.symbols import SymbolArray
from deepprof.plurals import counted

BACKWARD = "as many parts of something else run once before them, as layers do forward before they do backward"
MIN_PASSES = 2.9  # three iterations, of which the capture may cut off a little
MIN_COVERAGE = 0.5  # of the symbols between the first and the last pass
FORWARD_PASS = 0.25  # of the period: a pass that matches less is no forward pass
MANY_PASSES = 3  # this many passes inside one step marker are parts of an iteration
MORE_THAN_LAYERS = 150  # passes: more than a model has layers
SHORT = 20  # kernels: a shorter loop belongs to a solver or an operator, fewer in all passes show nothing
MIN_COVERED, NEARLY_ALL_COVERED = 0.8, 0.95  # of the sequence: most of it, and nearly all of it
ONE_OF_TWO = 0.4  # of the sequence: a program of two loops runs each for about half of the time
MOST_BEFORE, MOSTLY_RUN = 1 << 14, 0.5  # most symbols before the passes, and the share of them that must be in one run
ENDS = 2.0  # size, in layers, of the other kernels before and after the layers
CLEARLY = 0.2  # share of symbols that must repeat at the layers' distance, beyond the share at a usual distance
FORWARD = 0.15  # of the matched symbols: a forward pass has at least this many kernels, compared with its backward pass
STEADY = 0.8  # of the passes that must use about as long as the median one
SEVERAL = 8  # passes: this many, with nothing else in the capture, are a loop though nothing else shows it
SPREAD = 0.5  # of the period from the first to the last optimizer kernel: with more, the update runs layer by layer
TWO_BURSTS = 2  # of passes without their own input are no accident; a stall leaves two, too
ALIKE = 0.02  # edits per symbol: with more, passes without any sign are too different to be iterations
EVENLY = 0.8  # of the distances between waits that are equal: they come every this many kernels, whatever repeats
MIN_PERIOD = 3  # kernels: a shorter period has no pause that is distinct
NEARLY_WHOLE = 0.75  # of the template: a pass that matches this much is nearly whole
MOSTLY_OPTIMIZER = 0.6  # of a template's kernels: with more of the optimizer's, it is the optimizer's own loop
ONE_GAP = 3.0  # a pause this many times longer than any other in the period ends an iteration, not a layer


@dataclass(frozen=True, slots=True)
class AcceptanceVerdict:
    """Whether a candidate is accepted, how certain that is (0..1), and why or why not.

    `final` is set when it is refused for what it is, not because too little of it was seen: searching elsewhere is no
    use. `layers` is set when the passes are the layers of one iteration's backward pass. `strong` is set when names or
    ranges are evidence of an iteration, `weak` counts the signs that a layer may show too.
    """

    accepted: bool
    certainty: float
    reason: str
    final: bool = False
    layers: bool = False
    strong: bool = False
    weak: int = 0


@dataclass(frozen=True, slots=True)
class _IterationSigns:
    """What happens once per pass: `strong` signs occur in iterations only, `weak` ones may occur in layers too.

    `rare` counts the weak ones that layers seldom show: its own range, a copy from the host, a host wait. `own` is set
    when one of them is no copy: weights may be copied layer by layer. `graph` is set when each pass contains a graph
    launch."""

    strong: list[str]
    weak: list[str]
    rare: int
    own: bool
    graph: bool


def judge(candidate: Candidate, evidence: Evidence) -> AcceptanceVerdict:
    """Return the verdict on a candidate within the window it was found in."""
    p, passes = counted(candidate.period, "kernel"), candidate.passes
    if passes < MIN_PASSES:
        return _reject(f"the best repetition, {p}, occurs only {passes:.1f} times; three are needed")
    inner = _inner_coverage(candidate)
    if inner < MIN_COVERAGE:
        return _reject(f"a sequence of {p} repeats, but covers only {100 * inner:.0f} % of what is between")
    edits = candidate.edit_share
    if edits > MAX_EDITS:
        return _reject(f"a sequence of {p} repeats only roughly ({100 * edits:.0f} % of it differs each time)")
    signs = _find_signs(candidate, evidence)
    if are_layers(candidate, candidate, evidence):
        return refuse_layers(candidate)
    doubt = _find_doubt(candidate, evidence, signs)
    if doubt is not None:
        layers = _updates_as_it_goes(candidate, evidence) and not signs.strong
        reason = f"{_say_repeat(candidate.period)} {passes:.0f} times, but {doubt}"
        return AcceptanceVerdict(False, 0.0, reason, final=True, layers=layers)
    return _accept(candidate, inner, edits, signs)


def _reject(reason: str) -> AcceptanceVerdict:
    return AcceptanceVerdict(False, 0.0, reason)


def _accept(candidate: Candidate, inner: float, edits: float, signs: _IterationSigns) -> AcceptanceVerdict:
    """Return a verdict that accepts; many exact passes and independent signs make it more certain."""
    said = signs.strong + signs.weak
    certainty = inner * (1 - edits) * (1 - 0.5 ** (candidate.passes + len(said) - 0.9))
    repeats = f"{_say_repeat(candidate.period)} {candidate.passes:.1f} times"
    exact = "exactly" if edits == 0 else f"with {100 * edits:.1f} % edits"
    reason = f"{repeats} {exact}" + (f", with {', '.join(said)}" if said else "")
    return AcceptanceVerdict(True, certainty, reason, strong=bool(signs.strong), weak=len(signs.weak))


def _say_repeat(period: int) -> str:
    """Return the phrase that this many kernels repeat."""
    return f"{counted(period, 'kernel')} repeat{'s' if period == 1 else ''}"


def _inner_coverage(candidate: Candidate) -> float:
    """Return the share of symbols between the first and the last good pass that passes match.

    Forward passes of an evaluation count too: each matches the beginning of a pass.
    """
    m, good = candidate.matches, candidate.good
    if not good.any():
        return 0.0
    first, end = int(m.first[good][0]), int(m.end[good][-1])
    known = (m.matched >= FORWARD_PASS * candidate.period) & (m.first >= first) & (m.end <= end)
    return float(m.matched[good | known].sum()) / max(1, end - first)


def _find_doubt(candidate: Candidate, evidence: Evidence, signs: _IterationSigns) -> str | None:
    """Return why this may be a layer, a micro-benchmark or a solver, not an iteration; None if signs outweigh that."""
    if any(holds_once(candidate, family) for family in by_trust(evidence, "step")):
        return None
    return _doubt_by_ranges(candidate, evidence, signs) or _doubt_by_shape(candidate, evidence, signs)


def _doubt_by_ranges(candidate: Candidate, evidence: Evidence, signs: _IterationSigns) -> str | None:
    """Return how host ranges show that the passes are parts of something, else None."""
    named = [f.name for f in by_trust(evidence, "part") if holds_once(candidate, f)]
    if named and not signs.strong:
        return f"each is one {short(named[0])}"
    rarer = _rarer_loop(candidate, evidence)
    if rarer is not None:
        return f"there are several for each {short(rarer)}, as micro-batches or layers would be"
    enclosing = _encloser(candidate, evidence)
    large = candidate.period >= LAYER_SIZES[1]
    if enclosing is not None and not (large and (signs.strong or signs.rare + signs.graph >= 2)):
        return f"several lie within one {short(enclosing)}, as its layers would"
    return None


def _doubt_by_shape(candidate: Candidate, evidence: Evidence, signs: _IterationSigns) -> str | None:
    """Return why the repetition looks like the layers of one pass, else None."""
    if _updates_as_it_goes(candidate, evidence) and not signs.strong:
        return (
            f"they update as they go, on {100 * candidate.coverage:.0f} % of the stream, as layers going backward would"
        )
    fed = _is_fed_once(candidate, evidence) and signs.rare > 0
    if not signs.strong and (size := burst_size(candidate, evidence, MANY_PASSES if fed else TWO_BURSTS)):
        return f"they come in bursts of {size}, as a part of something longer"
    if _is_varied(candidate):
        return None
    if could_be_layers(candidate.template.symbols):
        clear = _outweighs_flatness(candidate, evidence, signs)
        return None if clear else _say_flat(measure_extent(candidate, evidence), candidate.passes)
    large = candidate.period >= LAYER_SIZES[1] or has_layers(candidate.template.symbols)
    if not large and not signs.strong and not signs.weak and _is_framed(candidate, evidence):
        return "other kernels run once before and after them, as around the layers of a single iteration"
    return None


def _say_flat(extent: Extent, passes: float) -> str:
    """Return what speaks against a repetition without inner loops."""
    if extent.covered < MIN_COVERED:
        return f"these take only {100 * extent.covered:.0f} % of the stream's time, and could be layers"
    if 0 < extent.steady < STEADY:
        return "they take unequal times, and could be layers"
    if extent.sides == 2 and passes < MORE_THAN_LAYERS:
        return "other kernels run before and after them, as around the layers of a single pass"
    return "nothing shows that they are more than the layers of a single pass"


def are_layers(candidate: Candidate, whole: Candidate, evidence: Evidence) -> bool:
    """Return whether a window's passes are a backward pass; `whole` matches the template up to the window's end."""
    marked = any(holds_once(candidate, family) for family in by_trust(evidence, "step", "loop"))
    return not marked and _is_backward(whole)


def refuse_layers(whole: Candidate) -> AcceptanceVerdict:
    """Return the refusal of the layers of one iteration."""
    reason = f"{_say_repeat(whole.period)} {whole.passes:.0f} times, but {BACKWARD}"
    return AcceptanceVerdict(False, 0.0, reason, final=True, layers=True)


def _is_backward(candidate: Candidate) -> bool:
    """Return whether most of what runs before the passes is one run of as many parts: the layers of a forward pass."""
    before, matched = candidate.before, float(candidate.matches.matched.sum())
    if before is None or not FORWARD * matched <= len(before) <= min(matched, MOST_BEFORE):
        return False
    least = max(MOSTLY_RUN * len(before), FORWARD * matched)
    layers = [run for run in find_nested(before)[:3] if run.events >= 2 and run.events * run.repeats >= least]
    return any(
        _as_many(run.repeats, candidate.passes)
        and is_flat(before[run.first : run.first + run.events])  # a layer, not another loop that ran before
        for run in layers
    ) or (_is_one_step(candidate, before) and _is_as_regular(before, candidate.passes))


def _is_one_step(candidate: Candidate, before: SymbolArray) -> bool:
    """Return whether the passes are all equal and, with what runs before them, cover most of the sequence."""
    together = candidate.coverage * (1 + len(before) / float(candidate.matches.matched.sum()))
    return candidate.edit_share <= LAYER_EDITS and together >= MIN_COVERED


def _is_as_regular(before: SymbolArray, passes: float) -> bool:
    """Return whether the symbols of `before` repeat at the distance that this many layers, and a head, would have.

    The layers of a model may differ in a kernel or two, as libraries choose kernels by shape, so that no run of equal
    layers is long.
    """
    longest = int(len(before) / max(2.0, passes - 1))
    if passes < MANY_PASSES or longest < 2:
        return False
    same = np.array([np.mean(before[lag:] == before[:-lag]) for lag in range(1, min(3 * longest, len(before)))])
    shortest = max(2, int(len(before) / (passes + max(ENDS, passes / 4))))
    there = same[shortest - 1 : longest]
    lag = shortest + int(np.argmax(there)) if len(there) else 0
    usual = float(np.median(same))
    return bool(lag and there.max() >= max(MOSTLY_RUN, usual + CLEARLY) and is_flat(before[-lag:]))


def _as_many(repeats: int, passes: float) -> bool:
    """Return whether both numbers are about equal, or one is a small multiple of the other; noise may hide some."""
    fewer, more = min(repeats, passes), max(repeats, passes)
    parts = round(more / fewer) if fewer >= 2 * MANY_PASSES else 1
    return parts <= MANY_PASSES and abs(more / parts - fewer) <= max(1.5, 0.1 * fewer)


def _is_varied(candidate: Candidate) -> bool:
    """Return whether there are more passes than a model has layers, of many kernels each.

    A shorter pass must hold different kernels only, and be nearly all that runs, as the time steps of a simulation:
    solvers use one kernel in several places.
    """
    kernels, passes = len(np.unique(candidate.template.symbols)), candidate.passes
    if kernels < FEWEST_KERNELS or passes < MORE_THAN_LAYERS - 1 or candidate.coverage < MIN_COVERED:
        return False
    exact = candidate.edit_share <= LAYER_EDITS and candidate.coverage >= NEARLY_ALL_COVERED
    return (candidate.period >= SHORT and passes >= MORE_THAN_LAYERS) or (kernels == candidate.period and exact)


def _rarer_loop(candidate: Candidate, evidence: Evidence) -> str | None:
    """Return the name of a framework's loop range that comes at most half as often as the passes around it, else None.

    A range that comes after all passes counts too, when there are three passes or more for each, unless each pass has
    its own input: a loader may run once before all of them.
    """
    first, end = int(candidate.matches.first[candidate.good][0]), int(candidate.matches.end[candidate.good][-1])
    loops, known = by_trust(evidence, "loop"), min(1.0, (end - max(first, evidence.start)) / (end - first))
    passes = candidate.passes * max(0.0, known)  # the ranges around passes launched before the capture are unknown
    for family in loops:
        count = len(np.unique(family.positions[(family.positions > first) & (family.positions < end)]))
        if 1 <= count <= passes / 2 - 1:
            return family.name
    if _is_fed_alone(candidate, evidence):
        return None
    most = max((len(np.unique(f.positions)) for f in loops), default=0)
    return loops[0].name if loops and most * MANY_PASSES <= passes else None


def _outweighs_flatness(candidate: Candidate, evidence: Evidence, signs: _IterationSigns) -> bool:
    """Return whether the signs suffice for a period that could be a layer.

    One strong sign suffices, or two signs that layers seldom have together; else the passes must use most of the
    capture, in equal times.
    """
    if signs.strong or signs.rare >= 2:
        return True
    extent, long = measure_extent(candidate, evidence), candidate.period >= LAYER_SIZES[0]
    if evidence.durations is None:
        whole = candidate.period >= MIN_PERIOD and extent.covered >= NEARLY_ALL_COVERED
        return whole and _is_alone(extent, signs, clear=long)
    if extent.steady < STEADY or extent.covered < MIN_COVERED:
        return extent.steady >= STEADY and _is_one_of_two(candidate, extent)
    many = candidate.passes >= MORE_THAN_LAYERS or signs.own
    alike = candidate.edit_share <= ALIKE
    alone = _is_alone(extent, signs, clear=alike and (long or _is_several(candidate)))
    if many or alone:
        return True
    return _is_fed_alone(candidate, evidence) or (
        extent.sides == 1 and _is_more_than_layers(candidate, evidence, signs)
    )


def _is_one_of_two(candidate: Candidate, extent: Extent) -> bool:
    """Return whether more passes than a model has layers follow each other, for about half of the time."""
    many = candidate.passes >= MORE_THAN_LAYERS and extent.within >= NEARLY_ALL_COVERED
    return many and extent.covered >= ONE_OF_TWO


def _is_several(candidate: Candidate) -> bool:
    """Return whether there are several passes, and not just a few kernels in all."""
    return candidate.passes >= SEVERAL and candidate.passes * candidate.period >= SHORT


def _is_alone(extent: Extent, signs: _IterationSigns, *, clear: bool) -> bool:
    """Return whether nothing but the passes runs in the capture, if they are `clear` by themselves or show a sign."""
    return extent.sides == 0 and (clear or bool(signs.weak))


def _is_more_than_layers(candidate: Candidate, evidence: Evidence, signs: _IterationSigns) -> bool:
    """Return whether passes with other kernels at one end of them are no layers of a model without a head.

    They have fewer kernels than a layer, or one copy from the host or graph launch in each, or a pause in each that is
    longer than what the device then does. Weights are copied to several places of a layer.
    """
    if candidate.period < LAYER and _is_several(candidate):
        return True
    return signs.graph or _is_fed_once(candidate, evidence) or _is_mostly_idle(candidate, evidence)


def _is_fed_once(candidate: Candidate, evidence: Evidence) -> bool:
    """Return whether one copy from the host precedes a kernel of every pass, as the batch of an iteration."""
    return evidence.copies is not None and float(np.median(candidate.count(np.flatnonzero(evidence.copies)))) == 1


def _is_fed_alone(candidate: Candidate, evidence: Evidence) -> bool:
    """Return whether each pass is fed once, and nothing else is: a single pass has an input besides its weights."""
    if evidence.copies is None or not _is_fed_once(candidate, evidence):
        return False
    fed = candidate.count(np.flatnonzero(evidence.copies))
    return int(fed.sum()) == int(evidence.copies.sum()) and bool((fed == 1).mean() >= MIN_COVERED)


def _is_mostly_idle(candidate: Candidate, evidence: Evidence) -> bool:
    """Return whether the one long pause of every pass is longer than what the device works in it.

    What else runs must be less than a pass: a model's head has more kernels than its small layers.
    """
    gaps, durations = evidence.gaps, evidence.durations
    if gaps is None or durations is None or not _one_gap(candidate, gaps):
        return False
    if (1 - candidate.coverage) * evidence.length >= candidate.period:
        return False
    return float(candidate.typical(gaps).max()) >= float(candidate.typical(durations).sum())


def _is_framed(candidate: Candidate, evidence: Evidence) -> bool:
    """Return whether other kernels run before and after one unbroken repetition, as an embedding and a head would.

    Without other evidence both must be smaller than a pass. Where copies and waits are known and no pass has any, what
    frames the passes may be the rest of a model that runs one part of it in chunks.
    """
    head, tail = candidate.left - evidence.start, evidence.length - candidate.right
    inside = (candidate.matches.first >= candidate.left) & (candidate.matches.end <= candidate.right)
    known = evidence.copies is not None and evidence.syncs is not None
    whole = candidate.right - candidate.left
    matched = candidate.matches.matched[inside] if known else candidate.matches.matched
    most = whole if known else candidate.period - 1
    exact = known or candidate.edit_share <= LAYER_EDITS
    unbroken = exact and whole >= 0.98 * matched.sum() and 0.98 * whole <= matched.sum() + 2 * candidate.period
    return bool(unbroken and 0 < head <= most and 0 < tail <= most)


def _encloser(candidate: Candidate, evidence: Evidence) -> str | None:
    """Return the name of a step marker with one range around several passes, or most ranges around two, else None."""
    first, end = candidate.matches.first[candidate.good], candidate.matches.end[candidate.good]
    for family in evidence.families:
        if family.marks_steps and family.ends is not None:
            held = np.searchsorted(end, family.ends, side="right") - np.searchsorted(first, family.positions)
            if held.max(initial=0) >= MANY_PASSES or (len(held) >= 2 and np.median(held) >= 2):
                return family.name
    return None


def _find_signs(candidate: Candidate, evidence: Evidence) -> _IterationSigns:
    """Return the signs of an iteration in host ranges, copies, waits, pauses and kernels."""
    strong = [f"one {short(f.name)} each" for f in by_trust(evidence, "step", "loop") if holds_once(candidate, f)]
    strong += ["an optimizer's kernels in each"] if _ends_in_optimizer(candidate, evidence) else []
    ranges = [f"one {short(f.name)} each" for f in by_trust(evidence, "framework", "range") if holds_once(candidate, f)]
    fed, read = in_most_passes(candidate, evidence.copies), _is_read(candidate, evidence.syncs)
    weak = ranges[:1] + ["a copy from the host in each"] * fed + ["a host wait in each"] * read
    rare = len(weak)
    graph = in_most_passes(candidate, evidence.graphs)
    if graph:
        weak.append("a graph launch in each")
    if any(_one_gap(candidate, gaps) for gaps in (evidence.launch_gaps, evidence.gaps)):
        weak.append("one long pause in each")
    return _IterationSigns(strong[:1], weak, rare, bool(ranges) or read, graph)


def _is_read(candidate: Candidate, waits: npt.NDArray[np.bool_] | None) -> bool:
    """Return whether the host waits in most passes, at places of the pass: an iteration's results are read.

    A program that reads a value every this many kernels waits in its layers too, at places that have nothing to do with
    them.
    """
    if waits is None or not in_most_passes(candidate, waits):
        return False
    if np.median(candidate.count(np.flatnonzero(waits))) <= 1:
        return True
    share = candidate.typical_share(waits)
    apart = np.diff(np.flatnonzero(waits))
    evenly = bool((apart == np.median(apart)).mean() >= EVENLY)
    return not evenly and bool(share[share >= MIN_COVERED].sum() >= MIN_COVERED * share.sum() > 0)


def _ends_in_optimizer(candidate: Candidate, evidence: Evidence) -> bool:
    """Return whether the template, and most passes, have kernels named like an optimizer's, and others before them."""
    if evidence.optimizer is None:
        return False
    share = float(evidence.optimizer[candidate.template.symbols].mean())
    if not 0 < share <= MOSTLY_OPTIMIZER or _updates_as_it_goes(candidate, evidence):
        return False
    return evidence.updates is None or _in_nearly_whole_passes(candidate, evidence.updates)


def _in_nearly_whole_passes(candidate: Candidate, marks: npt.NDArray[np.bool_]) -> bool:
    """Return whether 80 % of the nearly whole passes (an evaluation's forward passes are shorter) contain a mark."""
    whole = candidate.matches.matched[candidate.good] >= NEARLY_WHOLE * candidate.period
    marked = candidate.count(np.flatnonzero(marks))[whole] > 0
    return bool(marked.sum() >= max(1.0, 0.8 * len(marked) - 1))


def _updates_as_it_goes(candidate: Candidate, evidence: Evidence) -> bool:
    """Return whether the passes may be layers of one backward pass, each with its own update parameters.

    Iterations differ: they cover most of what runs, forward passes too, or hold their update in one place after the
    rest.
    """
    if evidence.optimizer is None or candidate.coverage >= MIN_COVERAGE:
        return False
    places = np.flatnonzero(evidence.optimizer[candidate.template.symbols])
    if not len(places):
        return False
    period = candidate.period
    apart = np.diff(np.append(places, places[0] + period))
    return bool(period - apart.max() >= SPREAD * period or is_flat(candidate.template.symbols))


def _one_gap(candidate: Candidate, gaps: npt.NDArray[np.float64] | None) -> bool:
    """Return whether one place of the period has a much longer pause than all others."""
    if gaps is None or candidate.period < MIN_PERIOD:
        return False
    usual = np.sort(candidate.typical(gaps))
    return bool(usual[-1] > 0 and usual[-1] >= ONE_GAP * usual[-2])
