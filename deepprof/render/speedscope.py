"""One iteration for www.speedscope.app: what runs in it, in its order, and where its time goes; then calling contexts.

The format is that of https://www.speedscope.app/file-format-schema.json. Iterations are evented profiles: frames open
and close in balance, and time never goes back. Contexts are sampled ones (`speedscope_contexts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from deepprof.collectors.names.short import shorten
from deepprof.metrics.breakdown.parts import BUSY_PARTS, PART_NAMES
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.template.median_iteration import MedianIteration, find_median_iteration, operators_at_launch
from deepprof.plurals import counted
from deepprof.render.speedscope_contexts import SpeedscopeFrames, profile_contexts

if TYPE_CHECKING:
    import polars as pl

    from deepprof.collectors.trace import Trace
    from deepprof.metrics.loop import Loop
    from deepprof.render.flame import FlameMeasure
    from deepprof.results.analysis_result import AnalysisResult

SCHEMA = "https://www.speedscope.app/file-format-schema.json"

Frame = tuple[object, str]  # what it represents, and its name
Stretch = tuple[int, int, list[Frame]]  # a pause and a duration in ns, and the frames that are open in the latter


def write_speedscope(analysis: AnalysisResult, file: BinaryIO) -> str:
    """Write two profiles per loop, of the median iteration and of the parts of its time, and those of the contexts.

    Returns a summary of what was written.
    """
    frames = SpeedscopeFrames()
    loops, contexts = _profile_loops(analysis, frames), profile_contexts(analysis.contexts, frames)
    name = ", ".join(dict.fromkeys(trace.path for trace in analysis.traces))
    return _write(file, name, frames, [*loops, *contexts.profiles], contexts.merged)


def write_speedscope_contexts(
    contexts: pl.DataFrame, file: BinaryIO, name: str, measures: Mapping[str, FlameMeasure]
) -> str:
    """Write the profiles of contexts alone; return a summary of what was written."""
    frames = SpeedscopeFrames()
    found = profile_contexts(contexts, frames, measures)
    return _write(file, name, frames, found.profiles, found.merged)


def _write(file: BinaryIO, name: str, frames: SpeedscopeFrames, profiles: Sequence[dict[str, Any]], merged: int) -> str:
    """Write profiles; `merged` small stacks were put together."""
    document = {
        "$schema": SCHEMA,
        "exporter": "deepprof",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": frames.describe()},
        "profiles": profiles,
    }
    file.write(msgspec.json.encode(document))
    small = f" ({merged:,} small stacks put together)" if merged else ""
    return f"{counted(len(profiles), 'profile')} of {counted(len(frames), 'frame')}{small}"


def _profile_loops(analysis: AnalysisResult, frames: SpeedscopeFrames) -> list[dict[str, Any]]:
    """Return two profiles for every loop of which the traces have a median iteration."""
    profiles = []
    traces = {trace.rank or 0: trace for trace in analysis.traces}
    for loop in analysis.loops:
        median = find_median_iteration(loop, traces[loop.rank])
        if median is not None:
            kind = "CPU" if is_stand_in(traces[loop.rank]) else "GPU"
            place = f"rank {loop.rank} {kind} {loop.device} stream {loop.stream}"
            title = f"{place}: iteration of {counted(len(median.busy_ns), 'kernel')}, median of {median.iterations}"
            profiles.append(profile(title, _kernel_stretches(traces[loop.rank], median), median.interval_ns, frames))
            profiles.append(profile(f"{place}: where the time goes", _part_stretches(loop), 0, frames))
    return profiles


def profile(title: str, stretches: Iterable[Stretch], rest_ns: int, frames: SpeedscopeFrames) -> dict[str, Any]:
    """Return an evented profile of the sections one after the other and `rest_ns` at the iteration's end."""
    events = list(_to_events(stretches, rest_ns, frames))
    end = events[-1]["at"]
    return {"type": "evented", "name": title, "unit": "nanoseconds", "startValue": 0, "endValue": end, "events": events}


def _to_events(stretches: Iterable[Stretch], rest_ns: int, frames: SpeedscopeFrames) -> Iterator[dict[str, Any]]:
    """Yield the frames that open and close; what two sections have in common stays open in between."""
    stack: list[Frame] = []
    now = 0
    yield {"type": "O", "frame": frames.number("iteration"), "at": 0}
    for pause, duration, path in stretches:
        common = _shared(stack, path)
        yield from ({"type": "C", "frame": frames.number(name), "at": now} for _, name in reversed(stack[common:]))
        now += pause
        yield from ({"type": "O", "frame": frames.number(name), "at": now} for _, name in path[common:])
        now += duration
        stack = path
    yield from ({"type": "C", "frame": frames.number(name), "at": now} for _, name in reversed(stack))
    yield {"type": "C", "frame": frames.number("iteration"), "at": now + rest_ns}


def _shared(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the prefix that both share."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _kernel_stretches(trace: Trace, median: MedianIteration) -> Iterator[Stretch]:
    """Yield the kernels, each in the nested loop and the operators around it."""
    known = {int(name): shorten(trace.name(name) or "") for name in set(median.name_ids.tolist())}
    operators = operators_at_launch(trace, median.events)
    ids = trace.host_events["name_id"]
    times = zip(median.gap_ns.tolist(), median.busy_ns.tolist(), strict=True)
    for place, (gap, busy) in enumerate(times):
        around = [(row, trace.name(ids[row]) or "") for row in operators[place].tolist() if row >= 0]
        kernel = (("kernel", place), known[int(median.name_ids[place])])
        yield gap, busy, [*_blocks_at(median, place), *around, kernel]


def _blocks_at(median: MedianIteration, place: int) -> list[Frame]:
    """Return the frames of the nested loop that a kernel is in."""
    for block in median.blocks:
        inside = place - block.first
        if 0 <= inside < block.events * block.repeats:
            whole = (block, f"{block.repeats} times {counted(block.events, 'kernel')}")
            return [whole, ((block, inside // block.events), counted(block.events, "kernel"))]
    return []


def _part_stretches(loop: Loop) -> Iterator[Stretch]:
    """Yield the median of every part of the iterations' time, the busy ones first."""
    rows = loop.usual if loop.usual.height else loop.table
    for part in PART_NAMES:
        median = round(rows[part].median() or 0)  # type: ignore[arg-type]
        if median:
            kind = "busy" if part in BUSY_PARTS else "idle"
            name = part.removesuffix("_ns").replace("_", " ")
            yield 0, median, [(kind, kind), (part, name)]
