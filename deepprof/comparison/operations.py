"""The kernels of two iterations, aligned and summed up: the same change at many places is one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.comparison.alignment import TOO_LONG, AlignedSpan, KernelSymbols, align, aligned_ratio, count_kernels
from deepprof.comparison.rotation import find_rotation
from deepprof.comparison.template import UsualIteration
from deepprof.metrics.names import coarse_ids
from deepprof.render.units import format_ratio
from deepprof.results.comparison_result import Kind, OperationChange, ProgramChange

Floats = npt.NDArray[np.float64]

ANOTHER = 0.5  # share of aligned kernels: with less, most are new, and rows would only list both programs
MAX_REPLACED_KERNELS = 12  # kernels in the row of a replacement; a longer one is identified by its first kernels


class _RunIteration(Struct, frozen=True, eq=False):
    """One run's iteration in the ids that both runs share; `durations_ns` per kernel."""

    symbols: KernelSymbols
    durations_ns: Floats

    def rotate(self, by: int) -> _RunIteration:
        """Return the same period, beginning `by` kernels later."""
        return _RunIteration(self.symbols.rotate(by), np.roll(self.durations_ns, -by))


def compare_programs(a: UsualIteration, a_names: pl.Series, b: UsualIteration, b_names: pl.Series) -> ProgramChange:
    """Return how A's iteration changed in B; the names are those of every trace."""
    before, after, names = _share_ids(a, a_names, b, b_names)
    sizes = len(before.symbols), len(after.symbols)
    if sizes[0] * sizes[1] > TOO_LONG:
        return _empty_program(sizes, f"iterations of {sizes[0]:,} and {sizes[1]:,} kernels are too long to align")
    rotation = find_rotation(before.symbols, after.symbols)
    after = after.rotate(rotation)
    runs = align(before.symbols, after.symbols)
    ratio, counts = aligned_ratio(runs, sum(sizes)), count_kernels(runs)
    another = f"not the same program: {format_ratio(ratio)} of the kernels stand in both in the same order"
    return ProgramChange(
        aligned_ratio=round(ratio, 4),
        rotation=rotation,
        a_kernels=sizes[0],
        b_kernels=sizes[1],
        kept=counts["kept"],
        replaced=counts["replaced"],
        added=counts["added"],
        removed=counts["removed"],
        operations=tuple(_sum_up(runs, before, after, names)) if ratio >= ANOTHER else (),
        problem=None if ratio >= ANOTHER else another,
    )


def _empty_program(sizes: tuple[int, int], problem: str) -> ProgramChange:
    """Return the change for iterations that cannot be aligned: their sizes and the problem."""
    none = dict.fromkeys(("rotation", "kept", "replaced", "added", "removed"), 0)
    return ProgramChange(
        aligned_ratio=0.0, a_kernels=sizes[0], b_kernels=sizes[1], operations=(), problem=problem, **none
    )


def _share_ids(
    a: UsualIteration, a_names: pl.Series, b: UsualIteration, b_names: pl.Series
) -> tuple[_RunIteration, _RunIteration, list[str]]:
    """Return both iterations with common name ids, and the name of every id."""
    spelled = [names.gather(t.name_ids).fill_null("") for t, names in ((a, a_names), (b, b_names))]
    vocabulary = pl.concat(spelled).unique().sort()
    coarse = coarse_ids(vocabulary).cast(pl.Int64).to_numpy()
    sides = []
    for template, texts in zip((a, b), spelled, strict=True):
        exact = vocabulary.search_sorted(texts).cast(pl.Int64).to_numpy()
        sides.append(_RunIteration(KernelSymbols(exact, coarse[exact]), template.durations_ns))
    return sides[0], sides[1], vocabulary.to_list()


Key = tuple[Kind, tuple[int, ...], tuple[int, ...]]


def _sum_up(
    runs: Sequence[AlignedSpan], a: _RunIteration, b: _RunIteration, names: Sequence[str]
) -> list[OperationChange]:
    """Return the rows that changed, the largest difference first."""
    totals: dict[Key, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for key, a_ns, b_ns in changes(runs, a, b):
        total = totals[key]
        total[0], total[1], total[2] = total[0] + 1, total[1] + a_ns, total[2] + b_ns
    rows = [
        OperationChange(kind, _spell(before, names), _spell(after, names), int(times), round(a_ns), round(b_ns))
        for (kind, before, after), (times, a_ns, b_ns) in totals.items()
    ]
    changed = [row for row in rows if row.kind != "kept" or row.difference_ns]
    return sorted(changed, key=lambda row: (-abs(row.difference_ns), row.kind, row.a, row.b))


def _spell(ids: Iterable[int], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names[number] for number in ids)


def changes(runs: Sequence[AlignedSpan], a: _RunIteration, b: _RunIteration) -> Iterable[tuple[Key, float, float]]:
    """Yield one change per place: kernel by kernel, but a replacement by more or fewer kernels as a whole."""
    for run in runs:
        if run.kind == "replaced" and not run.alike and run.a_end - run.a_first != run.b_end - run.b_first:
            yield whole(run, a, b)
        else:
            yield from _singly(run, a, b)


def whole(run: AlignedSpan, a: _RunIteration, b: _RunIteration) -> tuple[Key, float, float]:
    """Return a run as one change."""
    (before, a_ns), (after, b_ns) = _cut(a, run.a_first, run.a_end), _cut(b, run.b_first, run.b_end)
    return (run.kind, tuple(before[:MAX_REPLACED_KERNELS]), tuple(after[:MAX_REPLACED_KERNELS])), sum(a_ns), sum(b_ns)


def _singly(run: AlignedSpan, a: _RunIteration, b: _RunIteration) -> Iterable[tuple[Key, float, float]]:
    """Yield the kernels of a run one by one; a kernel missing on one side has no name and uses no time."""
    (before, a_ns), (after, b_ns) = _cut(a, run.a_first, run.a_end), _cut(b, run.b_first, run.b_end)
    for at in range(max(len(before), len(after))):
        old, new = before[at : at + 1], after[at : at + 1]
        yield (run.kind, tuple(old), tuple(new)), sum(a_ns[at : at + 1]), sum(b_ns[at : at + 1])


def _cut(side: _RunIteration, first: int, end: int) -> tuple[list[int], list[float]]:
    """Return ids and durations of the kernels from `first` to before `end`."""
    return side.symbols.exact[first:end].tolist(), side.durations_ns[first:end].tolist()
