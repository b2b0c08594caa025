"""One iteration of each rank as boxes within boxes, host above device: Hotline's multi-scale timeline."""

from __future__ import annotations

from typing import Literal

import msgspec

from deepprof.web.documents.schema import TimePart


class TimelineTrack(msgspec.Struct, frozen=True, kw_only=True):
    """One row of boxes: those from `first` on, `count` of them; the first one is around all others.

    `iteration` is its index in the loop, `start_ns` its start on the trace's own clock. Tracks of one rank follow each
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
    numbers of `strings`. `start_ns` is since the track's start. `part` is a row of `parts` for boxes of idle time, -1
    for others. `twin` is the box of the same stage or layer on the other side, -1 for none, `finding` the number of
    the finding that it is about. Tracks share boxes' numbers.
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
