"""Calling contexts as sampled profiles of speedscope: stacks of frames, and what each took itself.

There is a profile for every measure of `deepprof flame` that anything was taken of. Stacks are in the order of the
tree, so that frames in common are side by side. A profile holds at most `MOST_REFERENCES` references to frames: the
smallest stacks beyond that are one stack, which states how many they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.contexts.frames import FRAMES, number_distinct
from deepprof.metrics.contexts.paths import add_up, read_places
from deepprof.render.flame import MEASURES, FlameMeasure
from deepprof.render.plain import printable, shorten
from deepprof.render.pprof import Frame, frame_of

Int64s = npt.NDArray[np.int64]

MOST_REFERENCES = 1 << 21  # of stacks to frames, in one profile: the viewer is given some 15 MB
MAX_FRAME_CHARS = 1000  # of a name or a file: templates make names of any length
UNITS = {"nanoseconds": "nanoseconds", "bytes": "bytes", "count": "none"}


class SpeedscopeFrames:
    """The frames of all profiles, each with a number."""

    def __init__(self) -> None:
        self.numbers: dict[Frame, int] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def number(self, name: str, file: str | None = None, line: int | None = None) -> int:
        """Return the number of a frame."""
        return self.numbers.setdefault((name, file, line), len(self.numbers))

    def describe(self) -> list[dict[str, str | int]]:
        """Return the frames as the format has them: what is unknown has no key."""
        keys = ("name", "file", "line")
        return [
            {key: value for key, value in zip(keys, frame, strict=True) if value is not None} for frame in self.numbers
        ]


class _ContextProfiles(Struct, frozen=True):
    """The profiles, and how many stacks of all of them were put together because they are small."""

    profiles: Sequence[dict[str, Any]]
    merged: int


class _ContextStacks(Struct, frozen=True, eq=False):
    """All contexts of a job by row: the row around each (-1: none), how many are, its place in the tree, its frame.

    `frame` is a number of `frames`. `shown` states whether it is a frame of the stacks of what is within it: the whole
    recording of a job of one rank is not.
    """

    parent: Int64s
    depth: Int64s
    place: Int64s
    frame: Int64s
    shown: npt.NDArray[np.bool_]
    frames: Sequence[Frame]


def profile_contexts(
    contexts: pl.DataFrame, frames: SpeedscopeFrames, measures: Mapping[str, FlameMeasure] = MEASURES
) -> _ContextProfiles:
    """Return a profile of every measure of which anything was taken; of several ranks, each is around its contexts.

    `contexts` are those of an `Analysis`, whose tables of ranks follow one another.
    """
    profiles, merged = [], 0
    if contexts.is_empty():
        return _ContextProfiles((), 0)
    stacks = _lay_out(contexts)
    for measure in measures.values():
        own = contexts.select(measure.own).to_series().cast(pl.Int64).to_numpy()
        if own.any():
            kept, small = _choose(stacks, own)
            samples, weights = _list_stacks(stacks, kept, frames), own[kept].tolist()
            if len(small):
                samples.append([frames.number(f"{len(small):,} smaller ones")])
                weights.append(int(own[small].sum()))
            profiles.append(_profile(measure, samples, weights))
            merged += len(small)
    return _ContextProfiles(profiles, merged)


def _lay_out(contexts: pl.DataFrame) -> _ContextStacks:
    """Return the stacks of the contexts of all ranks, whose tables follow one another."""
    parent, depth = read_places(contexts)
    first = np.flatnonzero(depth == 0)
    tree = np.searchsorted(first, np.arange(len(depth)), side="right") - 1
    around = np.where(depth == 0, -1, parent + first[tree])
    frame, frames = _number_frames(contexts)
    if several := len(first) > 1:
        frame[first] = len(frames) + np.arange(len(first))
        frames += [(f"rank {rank}", None, None) for rank in contexts["rank"].gather(first).to_list()]
    return _ContextStacks(around, depth, _find_places(around, depth), frame, (depth > 0) | several, frames)


def _number_frames(contexts: pl.DataFrame) -> tuple[Int64s, list[Frame]]:
    numbers, distinct = number_distinct(contexts.select(list(FRAMES)))
    return numbers.to_numpy().copy(), [_spell(frame_of(row)) for row in distinct.iter_rows(named=True)]


def _spell(frame: Frame) -> Frame:
    """Return a frame whose texts can be shown."""
    name, file, line = frame
    shown = None if file is None else shorten(printable(file), MAX_FRAME_CHARS)
    return shorten(printable(name), MAX_FRAME_CHARS), shown, line


def _find_places(around: Int64s, depth: Int64s) -> Int64s:
    """Return the place of every context where those within one follow it, each before its next sibling."""
    top = np.where(around >= 0, around, np.arange(len(around)))
    size = add_up(np.ones(len(around), np.int64), top, depth)
    order = np.argsort(around, kind="stable")
    ends = np.cumsum(size[order])
    begins = np.searchsorted(around[order], around[order])  # the first one in the same context
    step = np.empty_like(size)
    step[order] = 1 + ends - size[order] - (ends - size[order])[begins]
    place = step.copy()
    for at, outer in _climb(around, np.arange(len(around))):
        place[at] += step[outer]
    return place


def _climb(around: Int64s, rows: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the numbers of the `rows` that are within something, and that: what is around, what is around that, …."""
    at, outer = np.arange(len(rows)), around[rows]
    while (inner := outer >= 0).any():
        at, outer = at[inner], outer[inner]
        yield at, outer
        outer = around[outer]


def _choose(stacks: _ContextStacks, own: Int64s) -> tuple[Int64s, Int64s]:
    """Return the contexts with a stack, in the order of the tree, and those for which there is no room."""
    taken = np.flatnonzero(own)
    order = taken[np.argsort(-own[taken], kind="stable")]
    fits = np.cumsum(stacks.depth[order] + 1) <= MOST_REFERENCES
    kept = order[fits]
    return kept[np.argsort(stacks.place[kept])], order[~fits]


def _profile(measure: FlameMeasure, samples: list[list[int]], weights: list[int]) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": f"calling contexts: {measure.title}",
        "unit": UNITS[measure.unit],
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _list_stacks(stacks: _ContextStacks, rows: Int64s, frames: SpeedscopeFrames) -> list[list[int]]:
    """Return the numbers of the frames of every context's stack, the outermost first."""
    ends = np.cumsum(stacks.depth[rows] + 1)
    flat = np.full(int(ends[-1]) if len(ends) else 0, -1, np.int64)
    flat[ends - 1] = stacks.frame[rows]
    for at, outer in _climb(stacks.parent, rows):
        shown = stacks.shown[outer]
        back = stacks.depth[rows[at]] - stacks.depth[outer]
        flat[ends[at] - 1 - back] = np.where(shown, stacks.frame[outer], -1)
    begins = ends - stacks.depth[rows] - 1
    begins += flat[begins] < 0
    used, number = np.unique(flat, return_inverse=True)
    numbers = [frames.number(*stacks.frames[each]) if each >= 0 else -1 for each in used.tolist()]
    values = np.array(numbers, np.int64)[number].tolist()
    return [values[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
