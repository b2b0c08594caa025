"""Calling contexts of one rank: from the threads down, or from what used the time up to its callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.analysis import Analysis
from deepprof.collectors.names.short import shorten
from deepprof.comparison.contexts import read_both
from deepprof.comparison.pairing import RunLoop
from deepprof.comparison.path_times import DEVICE, HOST
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.contexts.frames import FRAMES
from deepprof.metrics.contexts.paths import read_places
from deepprof.metrics.contexts.views import look_up_by
from deepprof.render.flame import ENGINE, MEASURES, ON_DEVICE, SENT_MEASURES, FlameMeasure
from deepprof.web.documents.texts import TextTable

Int64s = npt.NDArray[np.int64]

MOST_FRAMES = 10_000  # of a document, those with the largest shares: about 500 kB as JSON
SHOWN = ("device", "host", "idle")  # measures; launches and bytes are in `deepprof flame`
UNITS: dict[str, Literal["ns", "bytes", "count"]] = {"nanoseconds": "ns", "bytes": "bytes", "count": "count"}


class FlameMeasureEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What frames are measured by."""

    name: str
    title: str
    unit: Literal["ns", "bytes", "count"]


class FlameDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Frames, columns; the first is around all, parents are before their children.

    `value[m][f]` is what frame `f` took by measure `m`, with all within it. `name`, `kind` and `file` are numbers of
    `strings`, -1 for none; `line` -1 for none. `finding` is the number of the finding that is about it, -1 for none.
    With `before`, of the same shape, two runs are compared: `value` is B's, `before` A's. `left_out` frames are too
    small; what they needed is their parents' own.
    """

    schema: Literal["deepprof.view.flame/1"] = "deepprof.view.flame/1"
    direction: Literal["down", "up"]
    rank: int
    measures: list[FlameMeasureEntry]
    strings: list[str]
    parent: list[int]
    name: list[int]
    kind: list[int]
    file: list[int]
    line: list[int]
    finding: list[int]
    value: list[list[int]]
    before: list[list[int]] | None = None
    left_out: int = 0


def write_flame(analysis: Analysis, rank: int, direction: Literal["down", "up"]) -> FlameDocument:
    """Return the calling contexts of a rank; measures of which nothing was taken are left out."""
    contexts = analysis.contexts.filter(pl.col("rank") == rank)
    about = [(k, each) for k, each in enumerate(analysis.findings) if each.rank in {None, rank}]
    return _write_contexts(contexts, rank, direction, {name: MEASURES[name] for name in SHOWN}, about)


def write_sent_flame(contexts: pl.DataFrame, rank: int, direction: Literal["down", "up"]) -> FlameDocument:
    """Return the calling contexts that a rank of a running job has sent, a table with the schema `SENT`."""
    return _write_contexts(contexts, rank, direction, SENT_MEASURES, [])


def _write_contexts(
    contexts: pl.DataFrame,
    rank: int,
    direction: Literal["down", "up"],
    possible: Mapping[str, FlameMeasure],
    about: Sequence[tuple[int, Finding]],
) -> FlameDocument:
    """Return the contexts of a rank, with those of the `possible` measures of which anything was taken."""
    measures = {name: each for name, each in possible.items() if contexts.select(each.own.sum()).item()}
    if direction == "down":
        parent, frames = read_places(contexts)[0].copy(), contexts.select(list(FRAMES))
        value = contexts.select(**{name: each.whole for name, each in measures.items()}).cast(pl.Int64).to_numpy()
    else:
        own = contexts.select(**{name: each.own for name, each in measures.items()})
        tree, value = look_up_by(contexts, own)
        parent, frames = tree.parent.copy(), tree.frames
    parent[:1] = -1
    return _write(direction, rank, measures, _FlameRows(frames, parent, value), about)


def write_flame_of_both(a: RunLoop, b: RunLoop) -> FlameDocument | None:
    """Return the code of two runs in one flame graph, means of an iteration; None where one recorded no code."""
    both = read_both(a, b)
    if both is None:
        return None
    names = [name for name in (DEVICE, HOST) if name in both.before and name in both.after]
    parent = both.paths.parent.copy()
    parent[0] = -1
    values = [[_add_whole(times[name].means, parent) for name in names] for times in (both.after, both.before)]
    value = np.stack([column for side in values for column in side], axis=1)
    whole = pl.DataFrame({"kind": ["all"], "name": ["mean iteration"], "file": [None]}, schema=both.paths.frames.schema)
    frames = pl.concat([whole, both.paths.frames]).with_columns(line=pl.lit(None, pl.UInt32))
    found = _write("down", b.loop.rank, {name: MEASURES[name] for name in names}, _FlameRows(frames, parent, value), [])
    return msgspec.structs.replace(found, value=found.value[: len(names)], before=found.value[len(names) :])


def _add_whole(means: npt.NDArray[np.float64], parent: Int64s) -> Int64s:
    """Return means in whole nanoseconds; the first frame is the sum of those directly in it."""
    value = np.rint(means).astype(np.int64)
    value[0] = value[parent == 0].sum()
    return value


class _FlameRows(msgspec.Struct, frozen=True):
    """Frames (`FRAMES`), the row around each (-1: none), and what they needed with all within, a column per measure."""

    frames: pl.DataFrame
    parent: Int64s
    value: Int64s


def _write(
    direction: Literal["down", "up"],
    rank: int,
    measures: dict[str, FlameMeasure],
    rows: _FlameRows,
    about: Sequence[tuple[int, Finding]],
) -> FlameDocument:
    kept, texts = _keep_largest(rows), TextTable()
    frames = kept.frames
    return FlameDocument(
        direction=direction,
        rank=rank,
        measures=[FlameMeasureEntry(name=k, title=m.title, unit=UNITS[m.unit]) for k, m in measures.items()],
        parent=kept.parent.tolist(),
        name=texts.column(_name_frames(frames)),
        kind=texts.column(frames["kind"].cast(pl.String)),
        file=texts.column(frames["file"]),
        line=frames["line"].cast(pl.Int64).fill_null(-1).to_list(),
        finding=_find_about(frames, about).to_list(),
        value=kept.value.T.tolist(),
        strings=texts.strings,
        left_out=len(rows.parent) - len(kept.parent),
    )


def _keep_largest(rows: _FlameRows) -> _FlameRows:
    """Return the `MOST_FRAMES` frames with the largest share of any measure; what is around a frame is no smaller."""
    share = (rows.value / np.maximum(rows.value[:1], 1)).max(axis=1, initial=0)
    order = np.lexsort((np.arange(len(share)), -share))[:MOST_FRAMES]
    kept = np.sort(order[(share[order] > 0) | (order == 0)])
    number = np.full(len(share) + 1, -1, np.int64)  # the last one for -1
    number[kept] = np.arange(len(kept))
    return _FlameRows(rows.frames[kept], number[rows.parent[kept]], rows.value[kept])


def _name_frames(frames: pl.DataFrame) -> pl.Series:
    """Return the names that people read: of a kernel its short one, of a backward node the node's."""
    names = frames.select(pl.col("name").fill_null("").str.strip_prefix(ENGINE)).to_series()
    kernels = frames["kind"].is_in(list(ON_DEVICE))
    distinct = names.filter(kernels).unique()
    short = pl.Series([shorten(name) for name in distinct], dtype=pl.String)
    return names.set(kernels, None).fill_null(names.replace_strict(distinct, short, default=names))


def _find_about(frames: pl.DataFrame, about: Sequence[tuple[int, Finding]]) -> pl.Series:
    """Return the number of the first finding that is about a frame: its line of code, or its operator or kernel."""
    found = pl.Series([-1], dtype=pl.Int64).new_from_index(0, frames.height)
    for number, finding in reversed(about):
        place = finding.location or {}
        inner = next((str(place[key]) for key in ("kernel", "operator") if place.get(key)), None)
        keys = {"name": inner} if inner is not None else {"file": place.get("file"), "line": place.get("line")}
        wanted = pl.all_horizontal(pl.col(key) == pl.lit(value) for key, value in keys.items())
        found = found.set(frames.select(wanted.fill_null(value=False)).to_series(), number)
    return found
