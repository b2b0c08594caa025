"""One iteration as boxes within boxes: stages, layers, operators, and the events of the device; or of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import empty_table
from deepprof.metrics.annotation.boxes import BOXES
from deepprof.metrics.annotation.device_segments import DeviceSegments
from deepprof.metrics.annotation.host_stages import StageSegments, find_host_windows
from deepprof.metrics.annotation.layers import Layers
from deepprof.metrics.annotation.stage_names import STAGES
from deepprof.metrics.annotation.titles import shorten_host, shorten_kernels
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.contexts.code_lines import find_lines
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]

NOT_RECORDED = "not recorded"
UNKNOWN = STAGES.index("unknown")
_KINDS = ("stage", "layer", "operator", "line", "kernel", "nothing")
_BOXED = ("stage", "layer", "operator", "operator", "kernel", "call")  # how boxes of these kinds are called
_SIZE = 1 << 40  # ids of one kind


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Pieces of time, sorted, each with the path to it: `keys` has a column per level, -1 where there is none."""

    start: Int64s
    end: Int64s
    keys: Int64s


@dataclass(frozen=True, slots=True)
class _Root:
    """The box around all of one side."""

    side: str
    title: str
    start: int
    end: int


def box_device(known: TraceAnnotation, loop: Loop, row: int, segments: DeviceSegments) -> pl.DataFrame:
    """Return one iteration, the `row` of `Loop.table`, as the device ran it, with the schema `BOXES`.

    Busy times of boxes add up, level by level. What ran beside the main stream has a box where that one rested.
    """
    tree, layers, of_events = known.tree, known.layers, known.stages.stage
    mine = (segments.iteration == row) & segments.busy & (segments.event >= 0)
    start, end, event = (each[mine] for each in (segments.start, segments.end, segments.event))
    joined = np.append(True, (event[1:] != event[:-1]) | (start[1:] != end[:-1]))[: len(event)]
    begins = np.flatnonzero(joined)
    last = np.append(begins[1:], len(event))[: len(begins)] - 1
    start, end, event = start[begins], end[last], event[begins]
    stage = np.where(of_events[event] < 0, UNKNOWN, of_events[event]).astype(np.int64)
    launched = np.full(len(event), -1, np.int64) if tree is None else tree.sites.row[event]
    columns = [
        _key("stage", stage),
        *_layer_keys(layers, None if layers is None else layers.of_events[event]),
        _key("operator", _find_outermost(tree, launched)),
        _key("kernel", event),
    ]
    window = int(loop.table["start_ns"][row]), int(segments.end[segments.iteration == row].max(initial=0))
    return _make_boxes(_Pieces(start, end, _compact(columns)), _Root("device", _title(loop, row), *window), known)


def box_host(known: TraceAnnotation, loop: Loop, row: int, host: StageSegments) -> pl.DataFrame:
    """Return one iteration as the threads that launch its work ran it, with the schema `BOXES`; times add up.

    `host` is of `cut_host`, which finds none where there are no contexts.
    """
    tree, layers = known.tree, known.layers
    begin, until = (int(each[row]) for each in find_host_windows(known.trace, loop, host))
    if tree is None or until <= begin:
        return empty_table(BOXES)
    first, last = np.searchsorted(host.bounds, [begin, until])
    bounds = np.unique(np.concatenate([[begin], host.bounds[first:last], [until]]))
    at = np.clip(np.searchsorted(host.bounds, bounds[:-1], side="right") - 1, 0, len(host.stage) - 1)
    rows = host.row[at]
    of_layer = np.append(layers.of_slices, 0)[rows] if layers is not None and len(layers.of_slices) else None
    operator = _find_outermost(tree, rows)
    line = np.append(find_lines(tree.contexts)[tree.of_slices], -1)[rows]
    line = np.where(operator >= 0, -1, line)
    outermost = np.where((operator >= 0) | (line >= 0), operator, _find_outermost(tree, rows, anything=True))
    nothing = np.where(rows < 0, 0, -1)
    columns = [
        _key("stage", host.stage[at].astype(np.int64)),
        *_layer_keys(layers, of_layer),
        _key("operator", outermost),
        _key("line", line),
        _key("nothing", nothing),
    ]
    pieces = _Pieces(bounds[:-1], bounds[1:], _compact(columns))
    return _make_boxes(pieces, _Root("host", _title(loop, row), begin, until), known)


def _title(loop: Loop, row: int) -> str:
    """Return what an iteration is called."""
    return f"iteration {loop.table['index'][row]}"


def _key(kind: str, ids: Int64s) -> Int64s:
    """Return keys of one kind, -1 where there is no id."""
    return np.where(ids < 0, -1, _KINDS.index(kind) * _SIZE + ids)


def _layer_keys(layers: Layers | None, of_pieces: Int64s | None) -> list[Int64s]:
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


def _make_boxes(pieces: _Pieces, root: _Root, known: TraceAnnotation) -> pl.DataFrame:
    """Return boxes for all runs of pieces with equal paths, with one around all."""
    levels, many = pieces.keys.shape[1], len(pieces.start)
    changed = np.ones((many, levels), np.bool_)
    changed[1:] = np.logical_or.accumulate(pieces.keys[1:] != pieces.keys[:-1], axis=1)
    opens = changed & (pieces.keys >= 0)
    piece, level = np.nonzero(opens)  # row by row: parents before children, siblings in the order of time
    number = np.full((many, levels), -1, np.int64)
    number[piece, level] = np.arange(1, len(piece) + 1)
    number = np.maximum.accumulate(number, axis=0)
    until = _find_ends(changed, piece, level)
    before = np.append(0, np.cumsum(pieces.end - pieces.start))
    leaf = np.append(0, np.cumsum(np.ones(many, np.int64)))
    parent = np.where(level > 0, number[piece, np.maximum(level - 1, 0)], 0)
    keys = pieces.keys[piece, level]
    kinds = pl.Series(_BOXED).gather(keys // _SIZE)
    rows = pl.DataFrame(
        {
            "box": np.arange(len(piece) + 1),
            "parent": pl.Series(np.append(-1, parent)).replace(-1, None),
            "depth": np.append(0, level + 1),
            "side": pl.Series([root.side]).new_from_index(0, len(piece) + 1),
            "kind": pl.concat([pl.Series(["iteration"]), kinds]),
            "title": pl.concat([pl.Series([root.title]), _name_boxes(keys, known)]),
            "start_ns": np.append(root.start, pieces.start[piece]),
            "end_ns": np.append(root.end, pieces.end[np.maximum(until - 1, 0)]),
            "busy_ns": np.append(before[-1], before[until] - before[piece]),
            "events": np.append(many, leaf[until] - leaf[piece]),
        }
    )
    return rows.cast(dict(BOXES))  # type: ignore[arg-type]


def _find_ends(changed: npt.NDArray[np.bool_], piece: Int64s, level: Int64s) -> Int64s:
    """Return the piece after the last one of each box: where the path changes next at its level."""
    many, levels = changed.shape
    following = np.full((many + 1, levels), many, np.int64)
    places = np.where(changed, np.arange(many)[:, None], many)
    following[:-1] = np.minimum.accumulate(places[::-1], axis=0)[::-1]
    found: Int64s = following[piece + 1, level]
    return found


def _name_boxes(keys: Int64s, known: TraceAnnotation) -> pl.Series:
    """Return the titles of boxes."""
    titles = pl.Series([""]).new_from_index(0, len(keys))
    kind, ids = keys // _SIZE, keys % _SIZE
    for number, name in enumerate(_KINDS):
        rows = np.flatnonzero(kind == number)
        if len(rows):
            titles = titles.scatter(rows, _name_kind(name, ids[rows], known))
    return titles


def _name_kind(kind: str, ids: Int64s, known: TraceAnnotation) -> pl.Series:
    """Return the titles of boxes of one kind."""
    trace, tree = known.trace, known.tree
    if kind == "stage":
        return pl.Series(STAGES).gather(ids)
    if kind == "layer" and known.layers is not None:
        return pl.Series(known.layers.name).gather(ids)
    if kind == "kernel":
        return shorten_kernels(trace.names.gather(trace.device_events["name_id"].gather(ids)))
    if kind == "operator" and tree is not None:
        return shorten_host(trace.names.gather(tree.slices.rows["name_id"].gather(ids)))
    if kind == "line" and tree is not None:
        place = pl.concat_str("name", pl.lit(" "), pl.col("file").str.extract(r"([^/\\]+)$"))
        return tree.contexts.select(place.fill_null("")).to_series().gather(ids)
    return pl.Series([NOT_RECORDED]).new_from_index(0, len(ids))
