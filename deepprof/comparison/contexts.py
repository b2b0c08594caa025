"""Which code uses more or less time in B: the innermost calling contexts that carry the change.

A context carries what changed within it and is not carried by a context further in. It has to be a good part of the
iteration, and more than iterations of one run differ.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.comparison.code_paths import CodePaths, match_paths
from deepprof.comparison.pairing import RunLoop
from deepprof.comparison.path_times import DEVICE, HOST, PathTimes, read_path_times
from deepprof.metrics.contexts.code_lines import find_lines
from deepprof.metrics.series.statistics import bootstrap_change
from deepprof.results.comparison_result import CodeLine, ContextChange, Measure, Status

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Of the mean iteration: less is not worth a row. The host's times differ more from run to run.
LEAST: Mapping[str, float] = MappingProxyType({DEVICE: 0.01, HOST: 0.02})
ALIKE = 0.5  # of one run's time is in code of both: else they are two programs, or recorded differently
BALANCED = 0.5  # of what an operator needed that one run does not have: the other one takes as much for it
_NEW: Status = "new"
_GONE: Status = "gone"
INTERNAL = {"operator", "scope"}  # other versions of a framework have others in the same place
MOST_EXAMINED = 2_000  # contexts, those that changed most: nested deeply, all of them change alike


def compare_contexts(a: RunLoop, b: RunLoop) -> tuple[ContextChange, ...]:
    """Return the contexts that carry the change, the largest difference first; none where a run recorded no code."""
    both = read_both(a, b)
    if both is None or a.tree is None or b.tree is None:
        return ()
    paths, before, after = both.paths, both.before, both.after
    places = _PathPlaces(paths, _find_code(a.tree.contexts, paths.of_a), _find_code(b.tree.contexts, paths.of_b))
    iteration_ns = max(float(side.loop.usual["iteration_ns"].mean() or 0) for side in (a, b))  # type: ignore[arg-type]
    found = [
        places.describe(measure, each)
        for measure in before.keys() & after.keys()
        if _are_alike(paths.parent, before[measure], after[measure])
        for each in _find_carriers(paths, before[measure], after[measure], LEAST[measure] * iteration_ns)
    ]
    return tuple(sorted(found, key=lambda row: (-abs(row.difference_ns), row.measure, row.path, row.kind)))


class _CodeOfBoth(Struct, frozen=True):
    """The code of two runs by path, and what it needed in the usual iterations of each, by `DEVICE` and `HOST`."""

    paths: CodePaths
    before: Mapping[str, PathTimes]
    after: Mapping[str, PathTimes]


def read_both(a: RunLoop, b: RunLoop) -> _CodeOfBoth | None:
    """Return what the code of both runs took, None where a run recorded no code or no whole iteration."""
    if a.tree is None or b.tree is None or a.loop.usual.is_empty() or b.loop.usual.is_empty():
        return None
    paths = match_paths(a.tree.contexts, b.tree.contexts)
    many = len(paths.parent)
    before = read_path_times(a.trace, a.tree, a.loop, paths.of_a, many)
    return _CodeOfBoth(paths, before, read_path_times(b.trace, b.tree, b.loop, paths.of_b, many))


def _are_alike(parent: Int64s, a: PathTimes, b: PathTimes) -> bool:
    """Return whether one run's time is mostly in code that both have: the other one may do much more than that."""
    both = a.seen & b.seen
    shared = []
    for side in (a, b):
        own = side.means.copy()
        np.subtract.at(own, parent[1:], side.means[1:])
        shared.append(own[1:][both[1:]].sum() >= ALIKE * own[1:].sum())
    return any(shared)


class _Carrier(Struct, frozen=True):
    """A path that carries a change: its times per mean iteration, without what paths further in carry."""

    path: int
    status: Status
    a_ns: int
    b_ns: int


def _find_carriers(paths: CodePaths, a: PathTimes, b: PathTimes, least_ns: float) -> Iterator[_Carrier]:
    """Yield the paths that carry a change of at least `least_ns`, from the innermost to the outermost."""
    change = b.means - a.means
    large = 1 + np.flatnonzero(np.abs(change[1:]) >= least_ns)
    large = large[np.lexsort((-large, -np.abs(change[large])))[:MOST_EXAMINED]]
    queue, queued = [-path for path in large.tolist()], set(large.tolist())
    heapq.heapify(queue)
    carried = defaultdict[int, list[int]](list)  # paths that carry something within a path
    taken = dict[int, tuple[Floats, Floats]]()
    while queue:
        path = -heapq.heappop(queue)
        within = [taken[each] for each in carried[path]]
        before, after = (side.of_path(path) - sum(each[at] for each in within) for at, side in enumerate((a, b)))
        status = _judge(path, paths, (a, b), change)
        if status is None or abs(after.mean() - before.mean()) < least_ns or not _surely_differ(before, after):
            continue
        yield _Carrier(path, status, round(before.mean()), round(after.mean()))
        taken[path] = before, after
        for outer in _list_outer(path, paths.parent):
            carried[outer].append(path)
            if outer not in queued:
                queued.add(outer)
                heapq.heappush(queue, -outer)


def _judge(path: int, paths: CodePaths, sides: tuple[PathTimes, PathTimes], change: Floats) -> Status | None:
    """Return whether both runs have a path; None where what is around it has to be examined instead.

    That is new or gone as well, or, around an operator, hardly changed; with nothing around it an operator may be
    recorded elsewhere in the other run.
    """
    a, b = sides
    if a.seen[path] and b.seen[path]:
        return "changed"
    outer, status = int(paths.parent[path]), _NEW if b.seen[path] else _GONE
    alone = outer > 0 and not (a if status == "new" else b).seen[outer]
    internal = paths.frames["kind"][path - 1] in INTERNAL
    balanced = internal and (not outer or abs(change[outer]) < BALANCED * abs(change[path]))
    return None if alone or balanced else status


def _list_outer(path: int, parent: Int64s) -> Iterator[int]:
    while path := int(parent[path]):
        yield path


def _surely_differ(a: Floats, b: Floats) -> bool:
    """Return whether iterations of the runs differ beyond chance; of few iterations, whether all of them do."""
    interval = bootstrap_change(a, b, relative=False)
    if interval is None:
        return bool(a.max() < b.min() or b.max() < a.min())
    return interval[0] > 0 or interval[1] < 0


class _RunCode(Struct, frozen=True, eq=False):
    """A run's contexts, the line of code of each, and a context of every path."""

    contexts: pl.DataFrame
    lines: Int64s
    of_paths: Mapping[int, int]

    def line_of(self, path: int) -> CodeLine | None:
        """Return the line that a path belongs to, None where it is not in the run or no line is recorded."""
        context = self.of_paths.get(path)
        if context is None or (line := int(self.lines[context])) < 0:
            return None
        frame = self.contexts.row(line, named=True)
        return CodeLine(frame["name"], frame["file"], frame["line"])


def _find_code(contexts: pl.DataFrame, paths: Int64s) -> _RunCode:
    """Return where the code of a run is; `paths` has a path for each of its contexts."""
    numbers, first = np.unique(paths, return_index=True)
    return _RunCode(contexts, find_lines(contexts), dict(zip(numbers.tolist(), first.tolist(), strict=True)))


class _PathPlaces(Struct, frozen=True):
    """The paths, and where they are in the code of both runs."""

    paths: CodePaths
    a: _RunCode
    b: _RunCode

    def describe(self, measure: str, carrier: _Carrier) -> ContextChange:
        """Return the change of a path."""
        return ContextChange(
            status=carrier.status,
            measure=cast("Measure", measure),
            kind=self.paths.frames["kind"][carrier.path - 1],
            path=self.paths.spell(carrier.path),
            a=self.a.line_of(carrier.path),
            b=self.b.line_of(carrier.path),
            a_ns=carrier.a_ns,
            b_ns=carrier.b_ns,
        )
