"""One iteration of every rank as boxes within boxes, host above device: Hotline's multi-scale timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.metrics.annotation.boxes import BOX_KINDS, BOXES
from deepprof.metrics.annotation.idle_boxes import find_idle_boxes
from deepprof.metrics.annotation.sections import place_in_preorder
from deepprof.metrics.annotation.twins import find_twins
from deepprof.metrics.annotation.typical import box_whole_iteration
from deepprof.metrics.breakdown.parts import IDLE_PARTS
from deepprof.metrics.contexts.paths import measure_depths
from deepprof.render.wording import wording_of
from deepprof.web.documents.places import name_parts
from deepprof.web.documents.schema import TimePart
from deepprof.web.documents.texts import TextTable

if TYPE_CHECKING:
    from deepprof.analysis import Analysis, Loop

Int64s = npt.NDArray[np.int64]

MOST_BOXES = 60_000  # of a document: about 2 MB as JSON, a fifth of that compressed
KINDS = (*BOX_KINDS, "idle")
IDLE = KINDS.index("idle")
ROWS = {name: dtype for name, dtype in BOXES.items() if name not in {"kind", "side"}} | {
    "kind": pl.Int64(),
    "part": pl.Int64(),
    "finding": pl.Int64(),
}


class TimelineTrack(msgspec.Struct, frozen=True, kw_only=True):
    """One row of boxes: those from `first` on, `count` of them; the first one is around all others.

    `iteration` is its index in the loop, `start_ns` when the first box begins since the iteration's start: hosts begin
    earlier. (Times on the trace's clock are beyond what a page can count exactly.) Tracks of one rank follow each
    other, the slowest rank first.
    """

    title: str
    side: Literal["host", "device"]
    loop: int
    rank: int
    device: int
    iteration: int
    start_ns: int
    first: int
    count: int


class TimelineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes, columns; parents before their children, siblings in the order of time.

    `kind` is a number of `kinds`, `title` and `full` (the whole name, -1: as the title), `source` (`file:line`) are
    numbers of `strings`. `start_ns` is since the start of the track's first box. `part` is a row of `parts` for boxes
    of idle time, -1 for others. `twin` is the box of the same stage or layer on the other side, -1 for none, `finding`
    the number of the finding that it is about. Tracks share boxes' numbers.
    """

    schema: Literal["deepprof.view.timeline/1"] = "deepprof.view.timeline/1"
    strings: list[str]
    kinds: list[str]
    parts: list[TimePart]
    tracks: list[TimelineTrack]
    parent: list[int]
    kind: list[int]
    title: list[int]
    full: list[int]
    start_ns: list[int]
    duration_ns: list[int]
    busy_ns: list[int]
    events: list[int]
    part: list[int]
    twin: list[int]
    finding: list[int]
    source: list[int]
    left_out: int = 0  # boxes that would be too many: the deepest of them


def write_timeline(analysis: Analysis, places: Sequence[tuple[int, int]]) -> TimelineDocument:
    """Return iterations as boxes: `places` are loops of an analysis by number, each with the index of an iteration."""
    whole = [side for number, index in places for side in _box_sides(analysis, number, index)]
    depth = _find_depth([rows for _, rows in whole])
    kept = [(track, _cut(rows, depth)) for track, rows in whole]
    first = np.cumsum([0, *(rows.height for _, rows in kept)])
    rows = pl.concat([_empty_rows(), *(_shift(rows, int(at)) for (_, rows), at in zip(kept, first, strict=False))])
    texts = TextTable()
    return TimelineDocument(
        kinds=list(KINDS),
        parts=name_parts(IDLE_PARTS, wording_of(analysis)),
        tracks=[_place(track, int(at), rows.height) for (track, rows), at in zip(kept, first, strict=False)],
        **_list_columns(rows, texts),
        twin=find_twins(rows).tolist(),
        strings=texts.strings,
        left_out=sum(rows.height for _, rows in whole) - rows.height,
    )


def _empty_rows() -> pl.DataFrame:
    """Return a table of boxes without a row."""
    return pl.DataFrame(schema={"side": BOXES["side"]} | ROWS)


def _box_sides(analysis: Analysis, number: int, index: int) -> list[tuple[TimelineTrack, pl.DataFrame]]:
    """Return the host's and the device's boxes of one iteration, each with its track; times are the track's own."""
    loop = analysis.loops[number]
    timeline = analysis.timelines[loop.rank, loop.device]
    boxes = box_whole_iteration(analysis.annotated[loop.rank], loop, timeline, index)
    waits = find_idle_boxes(boxes, timeline)
    about = [(k, finding) for k, finding in enumerate(analysis.findings) if finding.is_on(loop)]
    sides = []
    for side in ("host", "device"):
        part = boxes.filter(pl.col("side") == side)
        if part.height:
            rows = _read_rows(part, waits if side == "device" else waits.clear(), about)
            sides.append((_describe_track(number, loop, index, side, part), rows))
    return sides


def _describe_track(number: int, loop: Loop, index: int, side: Any, boxes: pl.DataFrame) -> TimelineTrack:
    """Return the track of one side of an iteration; where its boxes are is unknown yet."""
    return TimelineTrack(
        title=side if side == "host" else f"device {loop.device}",
        side=side,
        loop=number,
        rank=loop.rank,
        device=loop.device,
        iteration=index,
        start_ns=int(boxes["start_ns"][0]) - _find_start(loop, index),
        first=0,
        count=0,
    )


def _find_start(loop: Loop, index: int) -> int:
    return int(loop.iterations.filter(index=index)["start_ns"][0])


def _place(track: TimelineTrack, first: int, count: int) -> TimelineTrack:
    return msgspec.structs.replace(track, first=first, count=count)


def _read_rows(boxes: pl.DataFrame, waits: pl.DataFrame, about: Sequence[tuple[int, Finding]]) -> pl.DataFrame:
    """Return the boxes of one side with the waits in them, numbered from 0; times are since the first one's start."""
    first = int(boxes["box"][0])
    own = boxes.with_columns(
        pl.col("kind").to_physical().cast(pl.Int64),
        pl.col("parent").cast(pl.Int64) - first,
        part=pl.lit(-1, pl.Int64),
        finding=_find_about(boxes, about),
    )
    claimed = {part: k for k, finding in reversed(about) for part in finding.parts}
    idle = waits.select(
        pl.col("start_ns", "end_ns"),
        side=pl.lit(boxes["side"][0], BOXES["side"]),
        title=pl.lit(""),
        parent=pl.col("around").cast(pl.Int64) - first,
        kind=pl.lit(IDLE, pl.Int64),
        busy_ns=pl.lit(0, pl.Int64),
        events=pl.lit(0, pl.UInt32),
        part=pl.col("part")
        .cast(pl.String)
        .replace_strict(list(IDLE_PARTS), range(len(IDLE_PARTS)), return_dtype=pl.Int64),
        finding=pl.col("part").cast(pl.String).replace_strict(claimed, default=-1, return_dtype=pl.Int64),
    )
    return _order(pl.concat([own, idle], how="diagonal"))


def _order(rows: pl.DataFrame) -> pl.DataFrame:
    """Return boxes in each other, parents first, siblings by time; `parent` are rows, and times since the first."""
    parent = rows["parent"].fill_null(-1).to_numpy()
    depth = measure_depths(parent)
    by_time = np.empty(rows.height, np.int64)
    by_time[np.lexsort((np.arange(rows.height), rows["start_ns"].to_numpy()))] = np.arange(rows.height)
    place = place_in_preorder(parent, depth, by_time)
    order = np.argsort(place)
    around = pl.Series(np.where(parent >= 0, place[parent], -1)[order])
    start = int(rows["start_ns"][0])
    return (
        rows[order]
        .with_columns(
            pl.col("start_ns", "end_ns") - start,
            box=pl.int_range(pl.len(), dtype=pl.UInt32),
            parent=around.replace(-1, None).cast(pl.UInt32),
            depth=pl.Series(depth[order]).cast(pl.UInt16),
        )
        .select(list(_empty_rows().schema))
    )


def _find_about(boxes: pl.DataFrame, about: Sequence[tuple[int, Finding]]) -> pl.Series:
    """Return the number of the first finding about the kernel or the operator that a box is, -1 for none."""
    names = boxes.select(pl.coalesce("name", "title")).to_series()
    found = pl.Series([-1], dtype=pl.Int64).new_from_index(0, boxes.height)
    for number, finding in reversed(about):
        place = finding.location or {}
        wanted = [str(place[key]) for key in ("kernel", "operator") if place.get(key)][:1]
        found = found.set(names.is_in(wanted), number)
    return found


def _find_depth(tables: Sequence[pl.DataFrame]) -> int:
    """Return how deep boxes may be so that there are no more than `MOST_BOXES`."""
    depths = np.concatenate([np.zeros(0, np.int64), *(rows["depth"].to_numpy() for rows in tables)])
    counts = np.cumsum(np.bincount(depths.astype(np.int64), minlength=1))
    return max(1, int(np.searchsorted(counts, MOST_BOXES, side="right")) - 1)


def _cut(rows: pl.DataFrame, depth: int) -> pl.DataFrame:
    """Return the boxes that are no deeper, numbered anew."""
    kept = (rows["depth"] <= depth).to_numpy()
    number = pl.Series(np.cumsum(kept) - 1)
    left = rows.filter(pl.Series(kept))
    parent = number.gather(left["parent"]).cast(pl.UInt32)
    return left.with_columns(parent=parent, box=pl.int_range(pl.len(), dtype=pl.UInt32))


def _shift(rows: pl.DataFrame, first: int) -> pl.DataFrame:
    """Return boxes numbered from `first` on."""
    return rows.with_columns((pl.col("box", "parent") + first).cast(pl.UInt32))


def _list_columns(rows: pl.DataFrame, texts: TextTable) -> dict[str, Any]:
    """Return the columns of a document; texts are in `texts`."""
    place = pl.when(pl.col("line").is_not_null()).then(pl.format("{}:{}", "file", "line")).otherwise("file")
    return {
        "parent": rows["parent"].cast(pl.Int64).fill_null(-1).to_list(),
        "kind": rows["kind"].to_list(),
        "title": texts.column(rows["title"]),
        "full": texts.column(rows["name"]),
        "start_ns": rows["start_ns"].to_list(),
        "duration_ns": (rows["end_ns"] - rows["start_ns"]).to_list(),
        "busy_ns": rows["busy_ns"].to_list(),
        "events": rows["events"].to_list(),
        "part": rows["part"].to_list(),
        "finding": rows["finding"].to_list(),
        "source": texts.column(rows.select(place).to_series()),
    }
