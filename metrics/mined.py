"""The measured loops of a main stream: from the miner, or from the paper's mode when the count is given."""

from __future__ import annotations

from collections.abc import Sequence as Counts

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from deepprof import mining
from deepprof.collectors.trace import Trace
from deepprof.metrics.iteration_table import measure_coverage, measure_iterations, measure_steadiness, summarize
from deepprof.metrics.loop import STALL, Agreement, Loop, OutsideIterations
from deepprof.metrics.marked import MarkedIterations, find_marked
from deepprof.metrics.names import coarse_ids
from deepprof.metrics.sequence import Sequence
from deepprof.mining.evidence import Evidence, Family, short
from deepprof.mining.iterations import split_at
from deepprof.mining.nesting import NestedBlock
from deepprof.mining.paper import PaperLoop, mine_with_counts
from deepprof.plurals import counted, verb

MIN_STREAM_KERNELS = 6  # kernels: a stream with fewer is not searched
MISSED = 0.1  # of the pattern: how much of an iteration the paper's pattern may miss
LARGE_BLOCK = 0.05  # of the period
MEANT = 0.5
DISAGREE, FILLED = 0.6, 0.8  # below this agreement, or with this share of kernels inside growing ones, markers decide
KEPT = 0.9  # of marked iterations that grow: if no mined loop has as many, the markers decide
KERNELS, COPIES = ("kernel", "graph"), ("memcpy",)  # activities
EXPLAINED, DOUBTED = 0.8, 0.5  # of the kernels' time: with less confidence falls, to this part with none
STEADY = 0.8  # of the iterations that must work about as long as the median one; with fewer confidence falls
NEAR = 0.01  # of the period: a range begins "at" an iteration when it is this close

BOTH = ("HtoD", "DtoH")
IN_MOST = 0.8  # of the iterations that must copy both ways
ONE_WAY = "each copies in one direction only, as a model's weights or a checkpoint are copied layer by layer"


def find_loops(trace: Trace, sequence: Sequence, evidence: Evidence) -> tuple[list[Loop], str | None]:
    """Return the loops of one main stream, and the reason if there is none."""
    mined = mine(trace, sequence, evidence)
    marked = find_marked(sequence, evidence)
    if marked is not None and (mined.reason is not None or _overrules(marked, mined, sequence)):
        beside = [loop for loop in mined.loops if not _lies_among(marked.family, loop.iterations)]
        others = [_from_mined(trace, sequence, evidence, loop) for loop in beside]
        return _with_coverage(trace, sequence, [_from_marked(trace, sequence, evidence, marked), *others]), None
    if mined.reason is not None:
        return [], f"{mined.reason}{_count_markers(evidence)}"
    return _with_coverage(trace, sequence, [_from_mined(trace, sequence, evidence, loop) for loop in mined.loops]), None


def _with_coverage(trace: Trace, sequence: Sequence, loops: Counts[Loop]) -> list[Loop]:
    """Return the loops of one stream with what they cover.

    The less of the kernels' time all of them explain, and the less alike the work of a loop's iterations is, the less
    certain a loop is, unless the user marked its iterations. Copies before a loop, of a model's weights, are no doubt.
    """
    mined = KERNELS if sequence.directions is None else COPIES
    kernels = (measure_coverage(trace, loop.device, loop.iterations, mined) for loop in loops)
    explained = DOUBTED + (1 - DOUBTED) * min(1.0, sum(kernels) / EXPLAINED)
    return [
        replace(
            loop,
            coverage_ratio=round(measure_coverage(trace, loop.device, _without_others(loop.iterations)), 4),
            confidence=round(_doubt(loop, explained), 3),
        )
        for loop in loops
    ]


def _without_others(iterations: pl.DataFrame) -> pl.DataFrame:
    """Return the iterations without incomplete ones that work far longer: they hold something else as well."""
    busy = iterations["busy_ns"]
    return iterations.filter(iterations["complete"] | (busy <= STALL * float(busy.median() or 0)))  # type: ignore[arg-type]


def _doubt(loop: Loop, explained: float) -> float:
    """Return the confidence of a loop whose recording is `explained` (0..1), and which may be unsteady."""
    if loop.boundary_source == "annotation":
        return loop.confidence
    return loop.confidence * explained * min(1.0, measure_steadiness(loop.iterations) / STEADY)


def find_counted(
    trace: Trace, sequence: Sequence, evidence: Evidence, counts: Counts[int]
) -> tuple[list[Loop], str | None]:
    """Return the paper's loops of one main stream for the user's `counts`, and the reason if there is none."""
    found = mine_with_counts(sequence.symbols, counts)
    missing = None if found else f"no pattern repeats {' or '.join(map(str, counts))} times"
    loops = [_from_paper(trace, sequence, evidence, loop) for loop in found]
    ratios = [measure_coverage(trace, loop.device, _without_others(loop.iterations)) for loop in loops]
    return [replace(loop, coverage_ratio=round(r, 4)) for loop, r in zip(loops, ratios, strict=True)], missing


def pick_counted(loops: Counts[Loop], counts: Counts[int]) -> list[Loop] | None:
    """Return a different one of `loops`, found without counts, for every count; None if a count fits none that is left.

    The paper's pattern is shorter than an iteration by its third criterion, so that it describes less of the same loop.
    """
    picked: list[Loop] = []
    for count in counts:
        left = (loop for loop in loops if loop not in picked)
        fitting = next((loop for loop in left if _counts_as(loop.iterations, count)), None)
        if fitting is None:
            return None
        picked.append(fitting)
    given = " and ".join(map(str, counts))
    return [replace(loop, evidence=f"paper mode: {given} iterations given; {loop.evidence}") for loop in picked]


def _counts_as(iterations: pl.DataFrame, count: int) -> bool:
    """Return whether `count` is between the number of complete iterations and that of all."""
    return int(iterations["complete"].sum()) <= count <= iterations.height


def _overrules(marked: MarkedIterations, mined: mining.MiningResult, sequence: Sequence) -> bool:
    """Return whether the markers contradict the mined loops where both are.

    A loop that keeps its graph grows by whole passes: only a part of an iteration then repeats. If it grows a kernel at
    a time, iterations are mined only as long as they are nearly alike; then ranges of either source decide.
    """
    rows = marked.iterations
    filled = int((rows.end - rows.first).sum()) / max(1, len(sequence.symbols))
    if marked.grows and filled >= FILLED:
        return max(int(loop.iterations.complete.sum()) for loop in mined.loops) < KEPT * len(rows.first)
    among = [loop for loop in mined.loops if _lies_among(marked.family, loop.iterations)]
    agreement = [agreement_with(marked.family, loop.iterations, loop.period).ratio for loop in among]
    return marked.family.trust == "step" and max(agreement, default=1.0) < DISAGREE


def mine(trace: Trace, sequence: Sequence, evidence: Evidence) -> mining.MiningResult:
    """Return the loops that the miner finds with exact names, or with variants of a kernel under one name."""
    kernels = len(sequence.symbols)
    if kernels < MIN_STREAM_KERNELS:
        return mining.MiningResult((), f"only {counted(kernels, 'kernel')} on the main stream, too few to repeat")
    if sequence.directions is not None:
        found = mining.find_loops(sequence.symbols, evidence, coarse=sequence.directions)
        return _keep_both_ways(found, trace, sequence)
    coarse = coarse_ids(trace.names).to_numpy()
    return mining.find_loops(sequence.symbols, evidence, coarse=coarse)


def _count_markers(evidence: Evidence) -> str:
    """Return a remark when step markers show that too few iterations were recorded."""
    few = [f for f in evidence.families if f.trust == "step" and len(f.positions) < 3]
    if not few:
        return ""
    return f" (the trace holds {counted(len(few[0].positions), f'{short(few[0].name)} range')}; record three or more)"


def _from_mined(trace: Trace, sequence: Sequence, evidence: Evidence, found: mining.MinedLoop) -> Loop:
    iterations = measure_iterations(trace, sequence, found.iterations)
    blocks = _large_blocks(found)
    return Loop(
        rank=trace.rank or 0,
        device=sequence.device,
        stream=sequence.stream,
        period=found.period,
        confidence=found.confidence,
        evidence=found.evidence,
        boundary_source=found.source,
        boundary_confidence=found.start_confidence,
        agreement=find_agreement(evidence, found.iterations, found.period),
        iterations=iterations,
        metrics=summarize(iterations),
        cycles=tuple({"every": c.every, "extra_events": c.extra, "kind": c.kind} for c in found.cycles),
        nested=tuple(_list_kinds(blocks)),
        blocks=tuple(blocks),
        prologue=measure_outside(sequence, 0, found.prologue),
        epilogue=measure_outside(sequence, len(sequence.symbols) - found.epilogue, len(sequence.symbols)),
    )


def _from_marked(trace: Trace, sequence: Sequence, evidence: Evidence, found: MarkedIterations) -> Loop:
    """Return the measured loop of iterations that only ranges mark; its period is that of the median iteration."""
    rows = split_at(found.iterations, sequence.breaks)
    iterations, period = measure_iterations(trace, sequence, rows), int(np.median(rows.end - rows.first))
    return Loop(
        rank=trace.rank or 0,
        device=sequence.device,
        stream=sequence.stream,
        period=period,
        confidence=found.confidence,
        evidence=found.evidence,
        boundary_source=found.source,
        boundary_confidence=found.confidence,
        agreement=find_agreement(evidence, rows, period),
        iterations=iterations,
        metrics=summarize(iterations),
        prologue=measure_outside(sequence, 0, int(rows.first[0])),
        epilogue=measure_outside(sequence, int(rows.end[-1]), len(sequence.symbols)),
    )


def measure_outside(sequence: Sequence, first: int, end: int) -> OutsideIterations:
    """Return the number of kernels from `first` to before `end`, and the time that they span."""
    if end <= first:
        return OutsideIterations()
    until = int(sequence.end_ns[first:end].max())
    return OutsideIterations(end - first, until - int(sequence.start_ns[first]))


def _large_blocks(found: mining.MinedLoop) -> list[NestedBlock]:
    """Return the inner loops that make up a good part of the iteration, the largest first."""
    return [b for b in found.nested if b.events * b.repeats >= LARGE_BLOCK * found.period]


def _list_kinds(blocks: Counts[NestedBlock]) -> list[dict[str, int]]:
    """Return each kind of block once, the largest first."""
    kinds = dict.fromkeys((b.events, b.repeats) for b in blocks)
    return [{"events": events, "repeats": repeats} for events, repeats in kinds]


def _from_paper(trace: Trace, sequence: Sequence, evidence: Evidence, found: PaperLoop) -> Loop:
    """Return the measured loop of the paper's mode; every match of its Algorithm 1 counts as complete."""
    rows = split_at(_close_gaps(found), sequence.breaks)
    period = int(np.median(rows.end - rows.first)) if len(rows.first) else len(found.pattern.symbols)
    iterations = measure_iterations(trace, sequence, rows)
    pattern = counted(len(found.pattern.symbols), "kernel")
    matched = f"{counted(len(rows.first), 'match', 'matches')} of a pattern of {pattern}"
    return Loop(
        rank=trace.rank or 0,
        device=sequence.device,
        stream=sequence.stream,
        period=period,
        confidence=round(min(1.0, len(rows.first) / found.count) * _explained(rows), 3),
        evidence=f"paper mode: {matched}, {counted(found.count, 'iteration')} given, ε = {found.pattern.epsilon}",
        boundary_source="mined",
        boundary_confidence=0.0,
        agreement=find_agreement(evidence, rows, period),
        iterations=iterations,
        metrics=summarize(iterations),
    )


def _explained(rows: mining.Iterations) -> float:
    """Return the share of the kernels from the first iteration to the last that the iterations match."""
    return float(rows.matched.sum()) / max(1, int(rows.end[-1] - rows.first[0])) if len(rows.first) else 0.0


def _close_gaps(found: PaperLoop) -> mining.Iterations:
    """Return the matches as iterations that reach to the next one where little is in between.

    Criterion 3 keeps the pattern shorter than an iteration, so that it misses a few of every iteration's kernels.
    """
    matches, size = found.iterations, len(found.pattern.symbols)
    following = np.append(matches.first[1:], np.iinfo(np.int64).max)[: len(matches.first)]
    near = following - matches.end <= max(1, MISSED * size)
    end = np.where(near, following, matches.end)
    every: npt.NDArray[np.bool_] = np.ones(len(end), bool)
    return mining.Iterations(matches.first, end, matches.matched, matches.edits, every)


def find_agreement(evidence: Evidence, found: mining.Iterations, period: int) -> Agreement | None:
    """Return the agreement with the user's step markers, or else with the user's ranges that fit best."""
    known = [f for f in evidence.families if f.trust in ("step", "range") and len(f.positions) >= 2]
    families = [f for f in known if _lies_among(f, found)]
    steps = [f for f in families if f.trust == "step"]
    scored = [agreement_with(f, found, period) for f in steps or families]
    scored = [a for a in scored if steps or a.ratio >= MEANT]  # other ranges are not meant to be iterations
    return max(scored, key=lambda a: a.ratio, default=None)


def _lies_among(family: Family, found: mining.Iterations) -> bool:
    """Return whether any range begins among the iterations: markers of a warm-up do not describe an evaluation."""
    return bool(len(found.first) and ((family.positions >= found.first[0]) & (family.positions < found.end[-1])).any())


def agreement_with(family: Family, found: mining.Iterations, period: int) -> Agreement:
    """Return the share of the ranges and the iterations that meet, an F1 score with a tolerance of 1 % of the period.

    Only what both cover is compared: iterations from the first range to the last, ranges up to the last iteration.
    """
    limit, near = int(found.end[-1]) if len(found.end) else 0, max(2.0, NEAR * period)
    wanted, given = family.positions[family.positions < limit], found.first[found.complete]
    if len(wanted):
        given = given[(given >= wanted[0] - near) & (given <= wanted[-1] + near)]
    if not len(given):
        return Agreement(family.name, len(wanted), 0.0)
    hits = min(_count_near(wanted, given, near), _count_near(given, wanted, near))
    return Agreement(family.name, len(wanted), round(2 * hits / (len(wanted) + len(given)), 4), hits, len(given))


def _count_near(ones: npt.NDArray[np.int64], others: npt.NDArray[np.int64], near: float) -> int:
    """Return how many of `ones` have one of the sorted `others` within `near`."""
    right = np.minimum(np.searchsorted(others, ones), len(others) - 1)
    left = np.maximum(right - 1, 0)
    distance = np.minimum(np.abs(others[right] - ones), np.abs(others[left] - ones))
    return int((distance <= near).sum())


def _keep_both_ways(found: mining.MiningResult, trace: Trace, sequence: Sequence) -> mining.MiningResult:
    """Return the loops whose iterations copy from the host and to it, or the reason why none of them is a loop."""
    if found.loop is None:
        return found
    kept = tuple(loop for loop in found.loops if _goes_both_ways(loop, trace, sequence))
    return mining.MiningResult(kept) if kept else mining.MiningResult((), _refuse(found.loop))


def _refuse(loop: mining.MinedLoop) -> str:
    repeated = f"{counted(loop.period, 'kernel')} {verb(loop.period, 'repeats', 'repeat')}"
    return f"{repeated} {len(loop.iterations.first)} times, but {ONE_WAY}"


def _goes_both_ways(loop: mining.MinedLoop, trace: Trace, sequence: Sequence) -> bool:
    """Return whether copies in both directions begin in most of the iterations, on any stream of the device."""
    rows = trace.device_events.filter(pl.col("device") == sequence.device, pl.col("activity") == "memcpy")
    bounds = np.append(sequence.start_ns[loop.iterations.first], _end(loop, sequence))
    return all(_share_with(bounds, rows.filter(pl.col("copy_kind") == way)) >= IN_MOST for way in BOTH)


def _end(loop: mining.MinedLoop, sequence: Sequence) -> int:
    """Return when the last copy of the last iteration has ended."""
    return int(sequence.end_ns[int(loop.iterations.end[-1]) - 1])


def _share_with(bounds: npt.NDArray[np.int64], copies: pl.DataFrame) -> float:
    """Return the share of the sections between `bounds` in which any of the copies begins."""
    places = np.searchsorted(copies["start_ns"].to_numpy(), bounds)
    return float((np.diff(places) > 0).mean())
