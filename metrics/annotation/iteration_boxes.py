"""One iteration as boxes within boxes: stages, layers, operators, and the events of the device; or of the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import empty_table
from deepprof.metrics.annotation.boxes import BOXES
from deepprof.metrics.annotation.device_segments import DeviceSegments, find_windows
from deepprof.metrics.annotation.host_segments import join_bounds
from deepprof.metrics.annotation.host_stages import StageSegments, find_host_windows
from deepprof.metrics.annotation.layers import TraceLayers
from deepprof.metrics.annotation.stage_names import STAGES, UNKNOWN
from deepprof.metrics.annotation.titles import shorten_host, shorten_kernels
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.contexts.code_lines import find_lines
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]

NOT_RECORDED = "not recorded"
_KINDS = ("iteration", "stage", "layer", "operator", "line", "kernel", "nothing")
_BOXED = (
    "iteration",
    "stage",
    "layer",
    "operator",
    "operator",
    "kernel",
    "call",
)  # how boxes of these kinds are called
_SIZE = 1 << 40  # ids of one kind


class _Pieces(Struct, frozen=True, eq=False):
    """Pieces of time, sorted, each with the path to it: `keys` has a column per level, -1 where there is none."""

    start: Int64s
    end: Int64s
    keys: Int64s


def box_device(known: TraceAnnotation, loop: Loop, segments: DeviceSegments, row: int | None = None) -> pl.DataFrame:
    """Return one iteration, the `row` of `Loop.table`, as the device ran it, with the schema `BOXES`.

    Without a `row` all iterations, but no more of them than stages and layers. Busy times of boxes add up, level by
    level. What ran next to the main stream has a box where that one rested.
    """
    wanted = segments.busy & (segments.event >= 0) & (segments.iteration >= 0)
    pieces = _join(segments, wanted if row is None else wanted & (segments.iteration == row))
    event, of_events = pieces.event, known.stages.stage
    stage = np.where(of_events[event] < 0, UNKNOWN, of_events[event]).astype(np.int64)
    columns = [
        _key("iteration", pieces.iteration),
        _key("stage", stage),
        *_layer_keys(known.layers, None if known.layers is None else known.layers.of_events[event]),
    ]
    if row is not None:
        launched = np.full(len(event), -1, np.int64) if known.tree is None else known.tree.sites.row[event]
        columns += [_key("operator", _find_outermost(known.tree, launched)), _key("kernel", event)]
    boxes = _make_boxes(_Pieces(pieces.start, pieces.end, _compact(columns)), "device", known, loop)
    return _widen(boxes, *find_windows(loop), pieces.iteration)


def box_host(known: TraceAnnotation, loop: Loop, row: int, host: StageSegments) -> pl.DataFrame:
    """Return one iteration as the threads that launch its work ran it, with the schema `BOXES`; times add up.

    `host` is of `cut_host`, which finds none where there are no contexts.
    """
    tree, layers = known.tree, known.layers
    begin, until = (int(each[row]) for each in find_host_windows(known.trace, loop, host))
    if tree is None or until <= begin:
        return empty_table(BOXES)
    first, last = np.searchsorted(host.bounds, [begin, until])
    bounds = join_bounds(np.array([begin, until]), host.bounds[first:last])
    at = np.clip(np.searchsorted(host.bounds, bounds[:-1], side="right") - 1, 0, len(host.stage) - 1)
    rows = host.row[at]
    of_layer = np.append(layers.of_slices, 0)[rows] if layers is not None and len(layers.of_slices) else None
    columns = [
        _key("iteration", np.full(len(at), row, np.int64)),
        _key("stage", host.stage[at].astype(np.int64)),
        *_layer_keys(layers, of_layer),
        *_host_keys(tree, rows),
    ]
    return _make_boxes(_Pieces(bounds[:-1], bounds[1:], _compact(columns)), "host", known, loop)


def _host_keys(tree: ContextTree, rows: Int64s) -> list[Int64s]:
    """Return what segments of the host are called: by operator, else by function, else by what is around them."""
    operator = _find_outermost(tree, rows)
    line = np.append(find_lines(tree.contexts)[tree.of_slices], -1)[rows]
    line = np.where(operator >= 0, -1, line)
    around = np.where((operator >= 0) | (line >= 0), operator, _find_outermost(tree, rows, anything=True))
    return [_key("operator", around), _key("line", line), _key("nothing", np.where(rows < 0, 0, -1))]


def _join(segments: DeviceSegments, wanted: npt.NDArray[np.bool_]) -> DeviceSegments:
    start, end, iteration, event = (
        each[wanted] for each in (segments.start, segments.end, segments.iteration, segments.event)
    )
    apart = (event[1:] != event[:-1]) | (start[1:] != end[:-1]) | (iteration[1:] != iteration[:-1])
    first = np.flatnonzero(np.append(True, apart)[: len(event)])
    last = np.append(first, len(event))[1:] - 1
    true = np.ones(len(first), np.bool_)
    return DeviceSegments(start[first], end[last], iteration[first], event[first], true, ~true, ~true)


def _widen(boxes: pl.DataFrame, begin: Int64s, until: Int64s, iteration: Int64s) -> pl.DataFrame:
    """Return boxes with those of iterations over all of their time, idle times at their ends too."""
    whole = (boxes["kind"] == "iteration").to_numpy()
    rows = np.unique(iteration)
    start, end = boxes["start_ns"].to_numpy().copy(), boxes["end_ns"].to_numpy().copy()
    start[whole], end[whole] = begin[rows], until[rows]
    return boxes.with_columns(start_ns=pl.Series(start), end_ns=pl.Series(end))


def _key(kind: str, ids: Int64s) -> Int64s:
    """Return keys of one kind, -1 where there is no id."""
    return np.where(ids < 0, -1, _KINDS.index(kind) * _SIZE + ids)


def _layer_keys(layers: TraceLayers | None, of_pieces: Int64s | None) -> list[Int64s]:
    """Return the keys of the layers around pieces, a column per depth, the outermost first."""
    if layers is None or of_pieces is None:
        return []
    depth, around = layers.depth, of_pieces.copy()
    columns = []
    for level in range(int(depth.max(initial=0)), 0, -1):
        here = depth[around] == level
        columns.append(_key("layer", np.where(here, around, -1)))
        around = np.where(here, np.maximum(layers.parent[around], 0), around)
    return columns[::-1]


def _find_outermost(tree: ContextTree | None, rows: Int64s, *, anything: bool = False) -> Int64s:
    """Return the outermost operator (or `anything`) around slices, the row itself included; -1 for none."""
    found = np.full(len(rows), -1, np.int64)
    if tree is None:
        return found
    wanted = (tree.slices.rows["kind"] == "operator").to_numpy() | anything
    at = rows.copy()
    while (inner := np.flatnonzero(at >= 0)).size:
        here = inner[wanted[at[inner]]]
        found[here] = at[here]
        at[inner] = tree.slices.parent[at[inner]]
    return found


def _compact(columns: Sequence[Int64s]) -> Int64s:
    """Return paths, a row each, with what is missing at their ends."""
    keys = np.stack(columns, axis=1)
    order = np.argsort(keys < 0, axis=1, kind="stable")
    return np.take_along_axis(keys, order, axis=1)


def _make_boxes(pieces: _Pieces, side: str, known: TraceAnnotation, loop: Loop) -> pl.DataFrame:
    """Return boxes for all runs of pieces with equal paths; the first level is that of iterations."""
    levels, many = pieces.keys.shape[1], len(pieces.start)
    changed = np.ones((many, levels), np.bool_)
    changed[1:] = np.logical_or.accumulate(pieces.keys[1:] != pieces.keys[:-1], axis=1)
    opens = changed & (pieces.keys >= 0)
    piece, level = np.nonzero(opens)  # row by row: parents before children, siblings in the order of time
    number = np.full((many, levels), -1, np.int64)
    number[piece, level] = np.arange(len(piece))
    number = np.maximum.accumulate(number, axis=0)
    until = _find_ends(changed, piece, level)
    before = np.append(0, np.cumsum(pieces.end - pieces.start))
    keys = pieces.keys[piece, level]
    parent = pl.Series(np.where(level > 0, number[piece, np.maximum(level - 1, 0)], -1), dtype=pl.Int64)
    rows = pl.DataFrame(
        {
            "box": np.arange(len(piece)),
            "parent": parent.replace(-1, None),
            "depth": level,
            "side": pl.Series([side]).new_from_index(0, len(piece)),
            "kind": pl.Series(_BOXED).gather(keys // _SIZE),
            "title": _name_boxes(keys, known, loop),
            "start_ns": pieces.start[piece],
            "end_ns": pieces.end[until - 1],
            "busy_ns": before[until] - before[piece],
            "events": until - piece,
        }
    )
    rows = rows.hstack(_name_sources(keys, known))
    return rows.with_columns(_spell_out(keys, known, rows["title"])).select(list(BOXES)).cast(dict(BOXES))  # type: ignore[arg-type]


def _find_ends(changed: npt.NDArray[np.bool_], piece: Int64s, level: Int64s) -> Int64s:
    """Return the piece after the last one of every box: where the path changes next at its level."""
    many, levels = changed.shape
    following = np.full((many + 1, levels), many, np.int64)
    places = np.where(changed, np.arange(many)[:, None], many)
    following[:-1] = np.minimum.accumulate(places[::-1], axis=0)[::-1]
    found: Int64s = following[piece + 1, level]
    return found


def _name_boxes(keys: Int64s, known: TraceAnnotation, loop: Loop) -> pl.Series:
    titles = pl.Series([""]).new_from_index(0, len(keys))
    kind, ids = keys // _SIZE, keys % _SIZE
    for number, name in enumerate(_KINDS):
        rows = np.flatnonzero(kind == number)
        if len(rows):
            titles = titles.scatter(rows, _name_kind(name, ids[rows], known, loop))
    return titles


def _spell_out(keys: Int64s, known: TraceAnnotation, titles: pl.Series) -> pl.Series:
    """Return the whole names of operators and kernels, null where the title is all of it."""
    kind, ids = keys // _SIZE, keys % _SIZE
    names = pl.Series("name", [None], dtype=pl.String).new_from_index(0, len(keys))
    tables = {"kernel": known.trace.device_events["name_id"]}
    if known.tree is not None:
        tables["operator"] = known.tree.slices.rows["name_id"]
    for each, name_ids in tables.items():
        rows = np.flatnonzero(kind == _KINDS.index(each))
        names = names.scatter(rows, known.trace.names.gather(name_ids.gather(ids[rows])).cast(pl.String))
    return names.set(names == titles, None)


def _name_sources(keys: Int64s, known: TraceAnnotation) -> pl.DataFrame:
    """Return `file` and `line` of the functions that boxes are, or were called or launched from."""
    tree, kind, ids = known.tree, keys // _SIZE, keys % _SIZE
    nothing = pl.DataFrame(schema={name: BOXES[name] for name in ("file", "line")})
    if tree is None:
        return nothing.clear(len(keys))
    row, lines = np.full(len(keys), -1, np.int64), find_lines(tree.contexts)
    for each, contexts in (("kernel", tree.of_events), ("operator", tree.of_slices)):
        here = kind == _KINDS.index(each)
        row[here] = lines[contexts[ids[here]]]
    row = np.where(kind == _KINDS.index("line"), ids, row)
    places = pl.concat([tree.contexts.select("file", "line").cast(dict(nothing.schema)), nothing.clear(1)])  # type: ignore[arg-type]
    return places[np.where(row < 0, tree.contexts.height, row)]


def _name_kind(kind: str, ids: Int64s, known: TraceAnnotation, loop: Loop) -> pl.Series:
    trace, tree, names = known.trace, known.tree, pl.Series([NOT_RECORDED]).new_from_index(0, len(ids))
    if kind == "iteration":
        names = loop.table.select(pl.format("iteration {}", "index")).to_series().gather(ids)
    elif kind == "stage":
        names = pl.Series(STAGES).gather(ids)
    elif kind == "layer" and known.layers is not None:
        names = pl.Series(known.layers.name).gather(ids)
    elif kind == "kernel":
        names = shorten_kernels(trace.names.gather(trace.device_events["name_id"].gather(ids)))
    elif kind == "operator" and tree is not None:
        names = shorten_host(trace.names.gather(tree.slices.rows["name_id"].gather(ids)))
    elif kind == "line" and tree is not None:
        place = pl.concat_str("name", pl.lit(" "), pl.col("file").str.extract(r"([^/\\]+)$"))
        names = tree.contexts.select(place.fill_null("")).to_series().gather(ids)
    return names
