"""Which loop of one run is compared with which of the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.comparison.template import take_template
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop
from deepprof.results.analysis_result import AnalysisResult
from deepprof.results.comparison_result import LoopPair

ALIKE = 0.5  # share of common kernels: with less it is not the same loop, and the one with most time is taken

Devices = dict[int, list[Loop]]  # of one rank: the loops of every device


class RunLoop(Struct, frozen=True, eq=False):
    """A loop, the trace that it was found in, and the calling contexts of that where its host recorded code."""

    loop: Loop
    trace: Trace
    tree: ContextTree | None = None


def side_of(analysis: AnalysisResult, loop: Loop) -> RunLoop:
    """Return a loop with the trace that it was found in."""
    return RunLoop(loop, analysis.find_trace(loop.rank), analysis.trees.get(loop.rank))


def find_sides(a: AnalysisResult, b: AnalysisResult, pair: LoopPair) -> tuple[RunLoop, RunLoop]:
    """Return the two loops of a pair of a comparison of these runs: each rank and device has one pair at most."""
    loops, _ = pair_loops(a, b)
    wanted = (pair.a.rank, pair.a.device)
    before, after = next(each for each in loops if (each[0].rank, each[0].device) == wanted)
    return side_of(a, before), side_of(b, after)


def pair_loops(a: AnalysisResult, b: AnalysisResult) -> tuple[list[tuple[Loop, Loop]], tuple[str, ...]]:
    """Return pairs of loops by rank and device, and why others have no partner.

    Of several loops on A's device the one with most time is compared, of B's the one that shares most kernels with it.
    A single rank or device is compared with a single one, whatever their numbers.
    """
    ones, others = _by_place(a.loops), _by_place(b.loops)
    pairs: list[tuple[Loop, Loop]] = []
    for rank_a, rank_b in _partners(ones, others):
        devices_a, devices_b = ones[rank_a], others[rank_b]
        for x, y in _partners(devices_a, devices_b):
            first = devices_a[x][0]
            pairs.append((first, _most_alike(side_of(a, first), [side_of(b, loop) for loop in devices_b[y]])))
    return pairs, (*_explain("A", a, b, [x for x, _ in pairs]), *_explain("B", b, a, [y for _, y in pairs]))


def _by_place(loops: Iterable[Loop]) -> dict[int, Devices]:
    """Return the loops that can be compared by rank and device, those with most time first."""
    found: dict[int, Devices] = defaultdict(lambda: defaultdict(list))
    for loop in sorted(loops, key=_time_of, reverse=True):
        if loop.usual.height:
            found[loop.rank][loop.device].append(loop)
    return found


def _most_alike(one: RunLoop, others: Sequence[RunLoop]) -> Loop:
    """Return the loop that shares most kernels with `one`: A may spend most time in training, B in validation."""
    if len(others) == 1:
        return others[0].loop
    wanted = _names_of(one)
    shared = [(wanted & names).total() / max(wanted.total(), names.total()) for names in map(_names_of, others)]
    best = max(range(len(others)), key=shared.__getitem__)
    return others[best if shared[best] >= ALIKE else 0].loop


def _names_of(side: RunLoop) -> Counter[str]:
    """Return how often each kernel occurs in an iteration."""
    return Counter(side.trace.names.gather(take_template(side.loop, side.trace).name_ids).to_list())


def _time_of(loop: Loop) -> int:
    """Return the time that a loop's iterations need together."""
    return int(loop.iterations.select((pl.col("busy_ns") + pl.col("idle_ns")).sum()).item())


def _partners(ones: Mapping[int, object], others: Mapping[int, object]) -> list[tuple[int, int]]:
    """Return which numbers belong together: the same ones, or the only ones."""
    if len(ones) == len(others) == 1:
        return [(next(iter(ones)), next(iter(others)))]
    return [(number, number) for number in sorted(ones) if number in others]


def _explain(run: str, mine: AnalysisResult, other: AnalysisResult, compared: Sequence[Loop]) -> Iterable[str]:
    """Yield why parts of a run could not be compared, a sentence each; a run without any loop gives its own reason."""
    if mine.no_loop_reason is not None:
        yield f"{run}: no iteration found: {mine.no_loop_reason}"
    yield from (f"{run}, {reason}" for reason in mine.missing)
    paired = {(loop.rank, loop.device) for loop in compared}
    usual = {(loop.rank, loop.device) for loop in mine.loops if loop.usual.height}
    for rank, device in dict.fromkeys((loop.rank, loop.device) for loop in mine.loops):
        place = f"{run}, rank {rank}, device {device}: no iteration to compare"
        if (rank, device) not in usual:
            yield f"{place}: none is complete, after warm-up and followed by another one"
        elif (rank, device) not in paired and other.loops:
            yield f"{place}: the other run has none"
